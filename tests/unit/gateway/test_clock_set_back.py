"""The machine's clock is set back while calls are under way."""

from datetime import timedelta
from pathlib import Path

import pytest

from inference.capture.proof import Proof
from inference.capture.recorder import Recorder
from inference.spool.disk import Disk
from schemas import ids
from schemas.atdp.types import Exchange, Outcome
from schemas.clock import ManualClock
from tests.unit.gateway.full_disk import Station
from tests.unit.redaction_processor.captures import START


def recorded(folder: Path, set_back: timedelta) -> Exchange:
    """A call of three seconds, as it is published, the clock set back twice in it."""
    station, clock = Station(folder, Disk()), ManualClock(START)
    recorder = Recorder(station.spool, "block", station.metrics, clock)
    exchange = Exchange(
        event_id=ids.uuid7(), tenant_id="acme", step_id=ids.uuid7(), method="POST", path="/v1/x",
        outcome=Outcome.GATEWAY_CRASHED, started_at=clock.now(), request_body=b"{}",
    )  # fmt: skip
    clock.set_back(set_back)  # while the body came
    capture = recorder.begin(exchange, b"key")
    clock.advance(timedelta(seconds=1))
    capture.head(200, [], Proof())
    clock.set_back(set_back)
    clock.advance(timedelta(seconds=2))
    capture.end(Outcome.COMPLETE, None, 1)
    station.publisher.start()
    try:
        station.until(lambda: len(station.bus.exchanges()) == 1)
    finally:
        station.publisher.stop(1.0)
        station.spool.close()
    return station.bus.exchanges()[0]


def test_the_times_of_a_call_stay_in_their_order(tmp_path: Path) -> None:
    found = recorded(tmp_path, timedelta(hours=1))
    assert found.first_byte_at is not None
    assert found.ended_at is not None
    assert START == found.started_at <= found.first_byte_at <= found.ended_at


def test_a_call_in_good_times_has_the_times_of_the_clock(tmp_path: Path) -> None:
    found = recorded(tmp_path, timedelta())
    assert found.first_byte_at == START + timedelta(seconds=1)
    assert found.ended_at == START + timedelta(seconds=3)


def test_ids_stay_distinct(monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold the time, and 74 random bits beside it."""
    made = []
    for hour in range(5):
        monkeypatch.setattr(
            "schemas.ids.time.time_ns", lambda hour=hour: (10**6 - 3600 * hour) * 10**9
        )
        made += [ids.uuid7() for _ in range(1_000)]
    assert len(set(made)) == len(made)
