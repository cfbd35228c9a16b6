"""One stack without a gateway, and what tests ask of it."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.demo.checksums import Checksum, checksums
from infra.demo.settle import num_unread
from infra.local.launch import find_settings
from infra.reconcile.report import Kind
from infra.store import open_reader
from schemas import topics
from schemas.atdp.types import Exchange, Feedback, FeedbackTarget, TrajectoryEnd
from schemas.bus import Record, deliver
from schemas.bus.kafka import KafkaBus
from schemas.codec import encode
from streams.sink.store import open_client
from tests.unit.redaction_processor.captures import START, calls_of, record

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


def records_of(numbers: Sequence[int]) -> list[Record]:
    """Whole conversations as raw records."""
    received = [record(event, 0) for number in numbers for event in events_of(number)]
    return [Record(r.topic, r.key, r.value) for r in received]


@dataclass(frozen=True)
class Stack:
    """A running stack without a gateway; calls go straight to the raw topic."""

    data_dir: Path

    @property
    def bus(self) -> KafkaBus:
        return KafkaBus(find_settings(self.data_dir).kafka.bootstrap_servers)

    def send(self, numbers: Sequence[int]) -> None:
        """Put whole conversations on the raw topic; returns when the broker has them."""
        self.publish(records_of(numbers))

    def publish(self, records: Sequence[Record]) -> None:
        """Put records on their topics; returns when the broker has them."""
        producer = self.bus.producer("test")
        try:
            asyncio.run(deliver(producer, records))
        finally:
            producer.close()

    def end(self, trajectory_id: str) -> None:
        """Say that a trajectory of `acme` is over."""
        end = TrajectoryEnd(
            event_id="end", tenant_id="acme", trajectory_id=trajectory_id, occurred_at=START
        )
        self.publish([Record(topics.RAW_EVENTS, b"any", encode(end))])

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

    def delete_rows(self, **where: str) -> None:
        """ALTER TABLE … DELETE of rows that meet a condition, table by table."""
        settings = find_settings(self.data_dir)
        client = open_client(settings)
        try:
            for table, condition in where.items():
                log = f"{settings.clickhouse.database}.{table}_log"
                sql = f"ALTER TABLE {log} DELETE WHERE {condition}"
                client.command(sql, settings={"mutations_sync": 2})
        finally:
            client.close()

    def reconcile(self, *arguments: str) -> Any:
        """What the command says, its exit code checked against it."""
        command = [sys.executable, "-m", "infra.cli.main", "reconcile", *arguments, "--json"]
        done = run([*command, "--data-dir", str(self.data_dir)])
        assert done.returncode in (0, 1), done.stderr[-2000:]
        report = json.loads(done.stdout)
        assert done.returncode == (0 if report["adds_up"] else 1)
        for line in report["lines"]:
            assert sum(line[kind.value] for kind in Kind) == line["produced"], line
        return report

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
