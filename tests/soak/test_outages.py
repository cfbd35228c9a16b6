"""ClickHouse or Kafka away while a load runs: no loss, bounded memory, catch-up by itself."""

from pathlib import Path

import pytest

from tests.soak.load import Load
from tests.soak.outages import Outage
from tests.soak.stack import Victims
from tests.soak.trial import Disturbance, Order, Outcome, run_trial

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(2400)]

ORDER = Order(
    seed=1, num_steps=100, kills_each=0, concurrency=4, pause_seconds=0.3, allowed_backlog=10**9
)
#: More than a batch, a queue and the buffers of the libraries hold.
MAX_GROWTH_BYTES = 300 * 1024**2


def run_outage(child: str, seconds: float, folder: Path) -> tuple[Outcome, Outage]:
    outages: list[Outage] = []

    def disturb(load: Load, _victims: Victims) -> Disturbance:
        outages.append(Outage(load, folder / "stack", child, seconds, at_step=50))
        return outages[0]

    return run_trial(ORDER, folder, print, disturb), outages[0]


@pytest.mark.parametrize(("child", "seconds"), [("clickhouse", 600.0), ("kafka", 120.0)])
def test_an_outage_costs_time_and_nothing_else(child: str, seconds: float, tmp_path: Path) -> None:
    outcome, outage = run_outage(child, seconds, tmp_path)
    assert outcome.verdict.is_right, outcome.plain()
    # agents did not notice: neither of the two is on the path of a call
    assert outcome.attempts_failed == 0
    assert outage.steps_within > 50
    for name, num_bytes in outage.bytes_within.items():
        assert num_bytes < outage.bytes_before[name] + MAX_GROWTH_BYTES, name
