"""Every process killed once while it works: nothing is lost, nothing is there twice.

The short form of the crash matrix; `make soak` plays the long one (docs/reliability.md).
"""

import pytest

from tests.soak.stack import PROCESSES
from tests.soak.trial import Order, Outcome, run_trial

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

ORDER = Order(
    seed=1, num_steps=150, kills_each=1, two_workers=True, concurrency=8, pause_seconds=0.5
)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run_trial(ORDER, tmp_path_factory.mktemp("crashes"), print)


def test_every_process_was_killed_at_work_and_came_back(outcome: Outcome) -> None:
    assert sorted(kill.process for kill in outcome.kills) == sorted(PROCESSES)
    assert all(kill.in_flight > 0 for kill in outcome.kills)
    assert [kill.process for kill in outcome.kills if kill.back_after_seconds is None] == []
    assert sum(kill.num_orphans for kill in outcome.kills) == 0


def test_clients_noticed(outcome: Outcome) -> None:
    assert outcome.steps >= ORDER.num_steps
    assert outcome.attempts_failed > 0


def test_nothing_is_lost_doubled_or_joined_wrongly(outcome: Outcome) -> None:
    assert outcome.verdict.is_right, outcome.plain()
