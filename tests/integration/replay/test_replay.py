"""Replay on the real parts: broker, processors, store, supervisor, command line.

One stack, one story: each test leaves the tables as they must be and the next one goes on.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infra.demo.checksums import Checksum, checksums
from infra.demo.settle import num_unread
from infra.local.launch import find_settings, launch, shut_down
from infra.local.ports import free_ports
from infra.local.stack import Ports
from infra.store import open_reader
from schemas import topics
from schemas.atdp.types import Exchange, Feedback, FeedbackTarget, TrajectoryEnd
from schemas.bus import Record, deliver
from schemas.bus.kafka import KafkaBus
from schemas.codec import encode
from schemas.settings import load_settings
from streams.sink.store import open_client
from tests.unit.redaction_processor.captures import START, calls_of, record

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

TIMEOUT_SECONDS = 120.0
PARTS = ("kafka", "topics", "clickhouse", "migrate", "redaction", "assembly", "sink")
SETTINGS = {
    "HEADRACE_REDACTION__TIER": "regex",
    "HEADRACE_REDACTION__HOLD_SECONDS": "1",
    "HEADRACE_ASSEMBLY__TICK_SECONDS": "0.5",
    "HEADRACE_ASSEMBLY__SETTLE_SECONDS": "0.5",
    "HEADRACE_KAFKA__NUM_PARTITIONS": "2",
}


def events_of(number: int) -> Iterator[Exchange | Feedback]:
    """One conversation of three calls; feedback by step, by response and by an id nobody knows."""
    mail = f"jane{number}@example.com"
    messages = [
        {"role": "user", "content": f"call {number} of {mail}"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "again"},
        {"role": "assistant", "content": "well"},
        {"role": "user", "content": f"write to {mail}"},
        {"role": "assistant", "content": "done"},
    ]
    yield from calls_of(messages, str(number))
    for kind, target in (
        ("step", FeedbackTarget(step_id=f"step-{number}-5")),
        ("response", FeedbackTarget(response_id=f"chatcmpl-{number}-3")),
        ("nobody", FeedbackTarget(step_id=f"nobody-{number}")),
    ):
        yield Feedback(
            reward_id=f"{kind}-{number}", tenant_id="acme", target=target, name="resolved",
            value=float(number % 2), final=kind == "step", occurred_at=START, received_at=START,
        )  # fmt: skip


@dataclass(frozen=True)
class Stack:
    """A running stack without a gateway; calls go straight to the raw topic."""

    data_dir: Path

    @property
    def bus(self) -> KafkaBus:
        return KafkaBus(find_settings(self.data_dir).kafka.bootstrap_servers)

    def send(self, numbers: Sequence[int]) -> None:
        """Put whole conversations on the raw topic; returns when the broker has them."""
        received = [record(event, 0) for number in numbers for event in events_of(number)]
        producer = self.bus.producer("test")
        try:
            asyncio.run(deliver(producer, [Record(r.topic, r.key, r.value) for r in received]))
        finally:
            producer.close()

    def end(self, trajectory_id: str) -> None:
        """Say that a trajectory of `acme` is over."""
        end = TrajectoryEnd(
            event_id="end", tenant_id="acme", trajectory_id=trajectory_id, occurred_at=START
        )
        producer = self.bus.producer("test")
        try:
            asyncio.run(deliver(producer, [Record(topics.RAW_EVENTS, b"any", encode(end))]))
        finally:
            producer.close()

    def num_records(self, topic: str) -> int:
        admin = self.bus.admin()
        try:
            return sum(end for _, end in admin.watermarks(topic).values())
        finally:
            admin.close()

    def rows(self, sql: str) -> list[dict[str, Any]]:
        with open_reader(self.data_dir) as reader:
            return reader.rows(sql)

    def checksums(self) -> tuple[Checksum, ...]:
        with open_reader(self.data_dir) as reader:
            return checksums(reader)

    def count(self, table: str) -> int:
        return int(self.rows(f"SELECT count() AS n FROM {table}")[0]["n"])

    def settle(self, num_conversations: int) -> None:
        """Wait until all of it is in the tables and nothing is on its way."""
        expected = (3 * num_conversations, 3 * num_conversations, num_conversations)

        def is_settled() -> bool:
            found = tuple(self.count(t) for t in ("steps", "rewards", "trajectories"))
            return found == expected and num_unread(self.bus) == 0 and self.all_matched()

        until(is_settled, lambda: f"{self.checksums()} is not {expected}")

    def all_matched(self) -> bool:
        sql = "SELECT countIf(trajectory_id != '') AS n, count() AS m FROM rewards"
        (row,) = self.rows(sql)
        return bool(row["n"] * 3 == row["m"] * 2)

    def replay_command(self, *arguments: str) -> list[str]:
        command = [sys.executable, "-m", "infra.cli.main", "replay", *arguments, "--json"]
        return [*command, "--data-dir", str(self.data_dir)]

    def replay(self, *arguments: str) -> str:
        done = run(self.replay_command(*arguments))
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    def status(self) -> Any:
        command = [sys.executable, "-m", "infra.cli.main", "status", "--json"]
        return json.loads(run([*command, "--data-dir", str(self.data_dir)]).stdout)

    def epochs(self) -> set[int]:
        return {row["e"] for row in self.rows("SELECT DISTINCT replay_epoch AS e FROM steps")}


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS
    )


def until(condition: Callable[[], bool], why: Callable[[], str]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, why()
        pause.wait(0.2)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    data_dir = tmp_path_factory.mktemp("replay") / "stack"
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("HEADRACE_")]:
            patch.delenv(name)
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        kafka, controller, clickhouse, gateway = free_ports(4)
        ports = Ports(kafka, controller, clickhouse, gateway)
        launch(load_settings(data_dir=data_dir), ports, lambda _: None, PARTS)
        try:
            made = Stack(data_dir)
            made.send(range(20))
            made.settle(20)
            yield made
        finally:
            shut_down(data_dir)


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


def test_rows_that_were_deleted_come_back(stack: Stack) -> None:
    before = stack.checksums()
    num_conversations = before[2].num_rows
    settings = find_settings(stack.data_dir)
    client = open_client(settings)
    try:
        for table in ("steps", "rewards", "trajectories"):
            log = f"{settings.clickhouse.database}.{table}_log"
            client.command(f"ALTER TABLE {log} DELETE WHERE 1", settings={"mutations_sync": 2})
    finally:
        client.close()
    assert stack.count("steps") == 0
    stack.replay("--from-time", "2020-01-01", "sink")
    stack.settle(num_conversations)
    assert stack.checksums() == before


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
