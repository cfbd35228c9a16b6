"""ClickHouse or Kafka away while a load runs: no loss, bounded memory, catch-up by itself.

`HEADRACE_TEST_OUTAGE_SECONDS` makes all outages as short as one likes.
"""

import json
import os
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from schemas import topics
from schemas.settings import RedactionSettings
from tests.soak.load import Load
from tests.soak.outages import Outage, num_behind, part
from tests.soak.stack import Victims
from tests.soak.trial import SETTINGS, Disturbance, Order, Outcome, run_trial

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(2400)]

ORDER = Order(
    seed=1, num_steps=100, kills_each=0, concurrency=4, pause_seconds=0.3, allowed_backlog=10**9
)
#: More than a batch, a queue and the buffers of the libraries hold.
MAX_GROWTH_BYTES = 150 * 1024**2
#: What else may fill up while calls go on: redaction's cache of what it found.
CACHE_BYTES = {"redaction": RedactionSettings().cache_bytes}
MAX_CATCH_UP_SECONDS = 180.0
#: `stalled_after_seconds`: the parts call themselves unhealthy from then on.
STALLED_SECONDS = 60.0
SHORT_SECONDS = "HEADRACE_TEST_OUTAGE_SECONDS"
SMALL_SPOOL_BYTES = 1024**2


def run_outage(
    child: str, seconds: float, folder: Path, settings: Mapping[str, str] = SETTINGS
) -> tuple[Outcome, Outage]:
    outages: list[Outage] = []

    def disturb(load: Load, _victims: Victims) -> Disturbance:
        outages.append(Outage(load, folder / "stack", child, seconds, at_step=50))
        return outages[0]

    outcome = run_trial(ORDER, folder, print, disturb, settings)
    return outcome, outages[0]


def seconds_of(usual: float) -> float:
    return float(os.environ.get(SHORT_SECONDS, usual))


def test_clickhouse_away_costs_time_and_nothing_else(tmp_path: Path) -> None:
    outcome, outage = run_outage("clickhouse", seconds_of(600.0), tmp_path)
    tell(outcome, outage)
    status = outage.status_within
    assert not status["healthy"]
    assert "does not answer" in part(status, "clickhouse")["why"]
    # what is behind, by how much, since when and until when: it is never over as things stand
    (sink,) = [group for group in status["groups"] if group["group"] == topics.SINK]
    assert sink["behind"] > outage.steps_within
    assert any(f"The sink waits with {sink['behind']:,} records." in say for say in status["waits"])
    lags = [one for one in status["lags"] if one["group"] == topics.SINK and one["behind"]]
    assert sum(lag["behind"] for lag in lags) == sink["behind"]
    assert {(lag["per_second"], lag["until"]) for lag in lags} == {(0.0, None)}
    since = [datetime.fromisoformat(lag["waiting_since"]) for lag in lags if lag["waiting_since"]]
    assert since
    assert min(since).timestamp() > outage.began_at - 10
    # the others went on
    others = [group for group in status["groups"] if group["group"] != topics.SINK]
    assert all(group["behind"] < outage.steps_within / 2 for group in others)
    it_cost_nothing_else(outcome, outage)


def test_kafka_away_costs_time_and_nothing_else(tmp_path: Path) -> None:
    seconds = seconds_of(120.0)
    outcome, outage = run_outage("kafka", seconds, tmp_path)
    tell(outcome, outage)
    status = outage.status_within
    assert not status["healthy"]
    assert "does not answer" in part(status, "kafka")["why"]
    gateway = part(status, "gateway")
    waiting = gateway["answer"]["spool_events_waiting"]
    assert waiting >= outage.steps_within
    assert gateway["answer"]["spool_bytes"] > 0
    assert gateway["answer"]["ready"], "calls are taken"
    assert not gateway["answer"]["kafka_delivers"]
    assert any(f"the gateway keeps {waiting:,} events" in sentence for sentence in status["waits"])
    for name in ("gateway", "redaction", "assembly", "sink"):
        assert part(status, name)["healthy"] is (seconds < STALLED_SECONDS), name
    if seconds >= STALLED_SECONDS:  # long enough to catch up that somebody can look meanwhile
        assert any(lag["until"] for status in outage.catching_up for lag in status["lags"])
    it_cost_nothing_else(outcome, outage)


def it_cost_nothing_else(outcome: Outcome, outage: Outage) -> None:
    assert outcome.verdict.is_right, outcome.plain()
    # agents did not notice: neither of the two is on the path of a call
    assert outcome.attempts_failed == 0
    assert outage.steps_within > outage.seconds
    stays_small(outage)
    assert outage.caught_up_seconds < MAX_CATCH_UP_SECONDS
    assert outage.catching_up[-1]["healthy"], outage.catching_up[-1]["waits"]


def stays_small(outage: Outage) -> None:
    for name, num_bytes in outage.bytes_within.items():
        before = outage.bytes_before.get(name, 0)
        if name != outage.child:  # that one is another process now
            assert num_bytes < before + MAX_GROWTH_BYTES + CACHE_BYTES.get(name, 0), name


@pytest.mark.parametrize("when_full", ["block", "shed"])
def test_a_spool_that_fills_meanwhile_refuses_or_counts_what_it_does_not_keep(
    when_full: str, tmp_path: Path
) -> None:
    settings = {
        **SETTINGS,
        "HEADRACE_GATEWAY__SPOOL_MAX_BYTES": str(SMALL_SPOOL_BYTES),
        "HEADRACE_GATEWAY__WHEN_SPOOL_FULL": when_full,
    }
    outcome, outage = run_outage("kafka", 30.0, tmp_path, settings)
    tell(outcome, outage)
    gateway = part(outage.status_within, "gateway")["answer"]
    assert gateway["ready"] is (when_full == "shed"), "calls go on unrecorded"
    assert "The spool is full" in gateway["why"]
    assert gateway["spool_bytes"] < 2 * SMALL_SPOOL_BYTES
    stays_small(outage)
    verdict = outcome.verdict
    num_shed = outage.metrics["headrace_gateway_shed_total"]
    rejected = [v for k, v in outage.metrics.items() if 'outcome="rejected"' in k and "_total" in k]
    if when_full == "block":
        assert verdict.is_right, outcome.plain()
        assert set(outcome.failures) == {"status 503"}
        assert sum(rejected) == outcome.attempts_failed > 0
        assert num_shed == 0
    else:
        assert outcome.attempts_failed == sum(rejected) == 0
        assert verdict.lost == num_shed > 0
        assert (verdict.duplicated, verdict.doubled_rows, verdict.set_aside) == (0, 0, 0)
        assert verdict.surplus == 0


def tell(outcome: Outcome, outage: Outage) -> None:
    """What goes into docs/reliability.md."""
    found: dict[str, Any] = {
        "calls": outcome.steps, "seconds": outage.seconds, "steps within": outage.steps_within,
        "caught up after": round(outage.caught_up_seconds, 1),
        "mb before": {name: n // 10**6 for name, n in outage.bytes_before.items()},
        "mb within": {name: n // 10**6 for name, n in outage.bytes_within.items()},
        "behind": [num_behind(status) for status in outage.catching_up],
        "until": [[lag["until"] for lag in status["lags"] if lag["until"]]
                  for status in outage.catching_up],
        "waits": outage.status_within["waits"],
        "verdict": {k: v for k, v in outcome.plain()["verdict"].items() if v},
    }  # fmt: skip
    sys.stdout.write(json.dumps(found, indent=1, default=str) + "\n")
