"""Every way of replaying, on the real parts, leaves the tables as they were."""

import random
import threading
from typing import Any

import pytest

from schemas import topics
from schemas.bus import Record
from tests.integration.replay.stack import Stack, records_of, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


@pytest.mark.parametrize(
    "arguments",
    [
        ["assembly", "sink"],
        pytest.param(["--from-time", "2020-01-01"], marks=pytest.mark.soak),
        ["redaction", "--from-offset", f"{topics.RAW_EVENTS}:0:3"],
    ],
    ids=" ".join,
)
def test_a_replay_of_a_part_gives_the_same_tables(stack: Stack, arguments: list[str]) -> None:
    before = stack.checksums()
    stack.replay(*arguments)
    stack.settle(before[2].num_rows)
    assert stack.checksums() == before
    report = stack.reconcile()
    assert report["adds_up"], report["repairs"]
    assert report["trajectories"]["unjoined"] == 0


def test_the_same_events_again_in_another_order_make_the_same_rows(stack: Stack) -> None:
    before = stack.checksums()
    again = records_of(range(20))
    random.Random(7).shuffle(again)
    stack.publish(again)
    stack.settle(before[2].num_rows)
    assert stack.checksums() == before
    report = stack.reconcile()
    assert report["adds_up"], report["repairs"]


def test_the_account_is_right_while_traffic_flows(stack: Stack) -> None:
    num_before = stack.count("trajectories")
    stop = threading.Event()
    sent: list[int] = []

    def keep_calling() -> None:
        for number in range(300, 340):
            if stop.wait(0.15):
                return
            stack.send([number])
            sent.append(number)

    caller = threading.Thread(target=keep_calling)
    caller.start()
    try:
        reports = [stack.reconcile() for _ in range(2)]
    finally:
        stop.set()
        caller.join(60.0)
    assert [report["repairs"] for report in reports] == [[], []]
    stack.settle(num_before + len(sent))
    assert len(sent) > 5


def test_what_cannot_be_processed_is_in_the_account(stack: Stack) -> None:
    before = numbers(stack, topics.RAW_EVENTS)
    stack.publish([Record(topics.RAW_EVENTS, b"k", value) for value in (b"\0broken", b"{}", b"x")])
    until(lambda: stack.count("dead_letters") == 3, lambda: "no dead letters")
    after = numbers(stack, topics.RAW_EVENTS)
    assert after["dead_lettered"] - before["dead_lettered"] == 3
    assert after["stored"] == before["stored"]
    assert after["missing"] == 0


def numbers(stack: Stack, topic: str) -> Any:
    """Sums over the partitions of one topic."""
    lines = stack.reconcile("--topic", topic)["lines"]
    names = [name for name, value in lines[0].items() if isinstance(value, int)]
    return {name: sum(line[name] for line in lines) for name in names}
