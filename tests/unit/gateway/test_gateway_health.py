"""Ready is who takes calls; healthy is whose events get on to Kafka too."""

from dataclasses import replace

import pytest

from inference.spool.health import Facts, judge

LIMIT_SECONDS = 60.0
WELL = Facts(
    alive=True,
    keys_known=True,
    kafka_delivers=True,
    spool_bytes=100,
    spool_max_bytes=1_000,
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
        (replace(WELL, spool_bytes=1_000), "new calls are refused"),
        (replace(WELL, spool_bytes=1_000, when_spool_full="shed"), "without a record"),
    ],
)
def test_who_takes_no_calls_is_neither(facts: Facts, says: str) -> None:
    health = judge(facts, LIMIT_SECONDS)
    assert (health.ready, health.healthy) == (False, False)
    assert says in health.why
