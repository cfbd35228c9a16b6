"""Replay on the real parts: broker, processors, store, supervisor, command line.

One stack, one story: each test leaves the tables as they must be and the next one goes on.
"""

import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable

import pytest

from schemas import topics
from tests.integration.replay.stack import TIMEOUT_SECONDS, Stack, run, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


def test_feedback_for_nobody_is_visible_and_the_rest_is_matched(stack: Stack) -> None:
    (row,) = stack.rows(
        "SELECT countIf(trajectory_id = '') AS n, count() AS m FROM unmatched_rewards"
    )
    assert (row["n"], row["m"]) == (20, 20)


def test_calls_that_arrive_during_a_replay_are_neither_lost_nor_doubled(stack: Stack) -> None:
    stop = threading.Event()
    sent: list[int] = []

    def keep_calling() -> None:
        for number in range(100, 140):
            if stop.wait(0.15):
                return
            stack.send([number])
            sent.append(number)

    caller = threading.Thread(target=keep_calling)
    caller.start()
    try:
        stack.replay()
    finally:
        stop.set()
        caller.join(TIMEOUT_SECONDS)
    stack.settle(20 + len(sent))
    assert len(sent) > 5


def test_again_gives_the_same_tables_all_made_anew(stack: Stack) -> None:
    before, first_epoch = stack.checksums(), max(stack.epochs())
    stack.replay()
    stack.settle(before[2].num_rows)
    assert stack.checksums() == before
    (epoch,) = stack.epochs()
    assert epoch > first_epoch
    (row,) = stack.rows("SELECT count() AS n, countIf(replayed) AS r FROM steps")
    assert row["n"] == row["r"]


def test_rows_that_were_deleted_are_named_and_come_back(stack: Stack) -> None:
    before = stack.checksums()
    num_conversations = before[2].num_rows
    assert stack.reconcile()["adds_up"]
    stack.delete_rows(
        steps="step_id = 'step-3-1'", rewards="reward_id LIKE '%-4'", trajectories="1",
        samples="cityHash64(sample_id) % 2 = 0",
    )  # fmt: skip
    report = stack.reconcile()
    assert not report["adds_up"]
    missing: Counter[str] = Counter()
    for line in report["lines"]:
        missing[line["topic"]] += line["missing"]
        assert line["group"] == topics.SINK or not line["missing"]
    assert missing[topics.STEPS] >= 1
    assert missing[topics.REWARDS] >= 3
    assert missing[topics.SUMMARIES] >= num_conversations
    for command in report["repairs"]:
        words = command.split()
        stack.replay(*words[2 : words.index("-d")])
    stack.settle(num_conversations)
    assert stack.checksums() == before
    assert stack.reconcile()["adds_up"]


def test_one_trajectory_is_processed_again_alone(stack: Stack) -> None:
    (row,) = stack.rows("SELECT trajectory_id AS t FROM steps WHERE step_id = 'step-3-1'")
    num_conversations = stack.count("trajectories")
    stack.end(row["t"])
    until(lambda: stack.num_records(topics.ENDS) == 1, lambda: "the end was not redacted")
    stack.settle(num_conversations)
    before = stack.checksums()
    for number in (2, 3):  # three calls, two rewards, one end, however often
        assert '"records": 6' in stack.replay("--trajectory", row["t"], "--tenant", "acme")
        until(lambda: stack.num_records(topics.ENDS) == number, lambda: "no end came again")  # noqa: B023
        stack.settle(num_conversations)
        assert stack.checksums() == before


def test_a_replay_that_is_killed_half_way_is_run_again(stack: Stack) -> None:
    before = stack.checksums()
    first_epoch = max(stack.epochs())
    for stage in ("stopped", "started"):
        process = subprocess.Popen(stack.replay_command(), stderr=subprocess.DEVNULL)
        try:
            until(has_reached(stack, stage, first_epoch), lambda: f"never {stage}")  # noqa: B023
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        if stage == "stopped":
            says_how_to_finish_and_starts_nothing(stack)
    stack.replay()
    stack.settle(before[2].num_rows)
    status = stack.status()
    assert (status["healthy"], status["replay"]) == (True, None)
    assert stack.checksums() == before
    (row,) = stack.rows("SELECT count() AS n, countIf(replayed) AS r FROM steps")
    assert row["n"] == row["r"]


def says_how_to_finish_and_starts_nothing(stack: Stack) -> None:
    status = stack.status()
    assert not status["healthy"]
    assert f"`headrace replay -d {stack.data_dir}`" in status["replay"]
    other = run(stack.replay_command("sink"))
    assert other.returncode == 2
    assert "without options to finish it" in other.stderr

    def is_stopped() -> bool:
        found = {child["name"]: child["status"] for child in stack.status()["children"]}
        return {found[name] for name in ("redaction", "assembly", "sink")} == {"stopped"}

    until(is_stopped, lambda: f"{stack.status()} is not stopped")


def has_reached(stack: Stack, stage: str, epoch: int) -> Callable[[], bool]:
    """No group has a member, or processors that run again have written their first steps."""

    def is_stopped() -> bool:
        admin = stack.bus.admin()
        try:
            return all(admin.num_members(group) == 0 for group in topics.GROUPS)
        finally:
            admin.close()

    def is_started() -> bool:
        return stack.epochs() - {epoch} != set()

    return is_stopped if stage == "stopped" else is_started
