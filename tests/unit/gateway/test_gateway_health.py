"""Ready is who takes calls; healthy is whose events get on to Kafka too."""

from dataclasses import replace
from pathlib import Path

import pytest

from inference.access.keys import KeyFollower
from inference.spool import publisher as publisher_module
from inference.spool.disk import Disk
from inference.spool.health import Facts, judge, look
from schemas.settings import GatewaySettings
from tests.unit.gateway.full_disk import Station

LIMIT_SECONDS = 60.0
WELL = Facts(
    alive=True,
    keys_known=True,
    kafka_delivers=True,
    spool_bytes=100,
    spool_max_bytes=1_000,
    spool_is_full=False,
    spool_events_waiting=0,
    spool_age_seconds=0.0,
    still_seconds=0.0,
    waits_for="",
    when_spool_full="block",
)


def test_all_is_well() -> None:
    health = judge(WELL, LIMIT_SECONDS)
    assert (health.ready, health.healthy, health.why) == (True, True, "")


def test_a_short_standstill_is_no_news() -> None:
    facts = replace(WELL, spool_events_waiting=9, still_seconds=59.0, kafka_delivers=False)
    assert judge(facts, LIMIT_SECONDS).healthy


def test_a_spool_that_stands_still_is_not_healthy_but_takes_calls() -> None:
    facts = replace(
        WELL, spool_events_waiting=1_234, still_seconds=75.0, waits_for="Kafka: _MSG_TIMED_OUT"
    )
    health = judge(facts, LIMIT_SECONDS)
    assert (health.ready, health.healthy) == (True, False)
    assert health.why == (
        "1,234 events wait in the spool and Kafka has taken none for 75 s: Kafka: _MSG_TIMED_OUT."
    )


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (replace(WELL, alive=False), "thread"),
        (replace(WELL, keys_known=False, waits_for="refused"), "knows no key yet: refused."),
        (replace(WELL, spool_is_full=True), "new calls, feedback and events are refused"),
    ],
)
def test_who_takes_no_calls_is_neither(facts: Facts, says: str) -> None:
    health = judge(facts, LIMIT_SECONDS)
    assert (health.ready, health.healthy) == (False, False)
    assert says in health.why


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (replace(WELL, when_spool_full="shed"), "relayed without a record"),
        (replace(WELL, captures=False), ": feedback and events are refused"),
    ],
)
def test_a_full_spool_stops_no_calls_where_settings_say_so(facts: Facts, says: str) -> None:
    health = judge(replace(facts, spool_is_full=True), LIMIT_SECONDS)
    assert (health.ready, health.healthy) == (True, False)
    assert says in health.why


def test_a_spool_that_kafka_does_not_take_shows_its_age_until_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "_MAX_IN_FLIGHT", 2)  # what is not read yet waits too
    station = Station(tmp_path, Disk())
    keys = KeyFollower(station.bus, tmp_path / "keys.json")

    def facts() -> Facts:
        return look(station.publisher, station.spool, keys, GatewaySettings())

    station.bus.is_away = True
    station.publisher.start()
    try:
        assert facts().spool_age_seconds == 0.0
        for _ in range(3):
            station.call([b"chunk"])
        station.until(lambda: facts().spool_events_waiting == 3 and facts().still_seconds > 0.05)
        health = judge(replace(facts(), alive=True, keys_known=True), 0.05)
        assert (health.ready, health.healthy, health.kafka_delivers) == (True, False, False)
        assert health.why.endswith(": away.")
        assert facts().spool_age_seconds > 0
        station.bus.is_away = False
        station.until(
            lambda: facts().spool_events_waiting == 0 and facts().spool_age_seconds == 0.0
        )
        assert (facts().still_seconds, facts().waits_for, facts().kafka_delivers) == (0.0, "", True)
    finally:
        station.publisher.stop(0.1)
        station.spool.close()
