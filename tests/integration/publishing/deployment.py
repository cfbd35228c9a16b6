"""Topics on the real broker, a running redaction processor, and what it said."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from schemas import codec, topics
from schemas.atdp.internal import DeadLetter
from schemas.bus import Received, Record, deliver
from schemas.errors import TransientError
from schemas.secrets import create_root_secret
from tests.integration.gateway.harness import make_bus
from tests.services import running

TIMEOUT_SECONDS = 120.0
NUM_PARTITIONS = 4


class Deployment:
    """One data directory on a shared broker; tenants are named uniquely by each test."""

    def __init__(self, bootstrap_servers: str, directory: Path) -> None:
        self.directory = directory
        self.bootstrap_servers = bootstrap_servers
        self.bus = make_bus(bootstrap_servers)
        self.admin = self.bus.admin()
        self.log = directory / "redaction.log"
        create_root_secret(directory / "secrets" / "root")
        self.environment = {
            "HEADRACE_DATA_DIR": str(directory),
            "HEADRACE_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers,
            "HEADRACE_KAFKA__NUM_PARTITIONS": str(NUM_PARTITIONS),
            "HEADRACE_REDACTION__TIER": "regex",
        }

    def skip_backlog(self) -> None:
        """Redaction starts at the end: what other tests left on the shared broker is not ours."""
        inputs = (topics.RAW_EVENTS, topics.RAW_ALIASES, topics.RAW_UNRESOLVED)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            try:
                return self.admin.commit(topics.REDACTION, self.ends(*inputs))
            except TransientError:  # the member of an earlier test is still being missed
                assert time.monotonic() < deadline, "the group still has members"

    @contextmanager
    def redaction(self) -> Iterator[None]:
        """`python -m streams.redaction` for the length of the block."""
        self.skip_backlog()
        with running([sys.executable, "-m", "streams.redaction"], self.log):
            yield

    def headrace(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command line as a user does."""
        return subprocess.run(
            [sys.executable, "-m", "infra.cli.main", *arguments],
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )

    def produce(self, *values: bytes | None, key: bytes = b"acme/t") -> list[tuple[int, int]]:
        """Put raw values on the raw topic; their partitions and offsets."""
        return self._produce([Record(topics.RAW_EVENTS, key, value) for value in values])

    def produce_to(self, topic: str, key: bytes, value: bytes) -> None:
        """Put one record on another topic."""
        self._produce([Record(topic, key, value)])

    def _produce(self, records: Sequence[Record]) -> list[tuple[int, int]]:
        producer = self.bus.producer("test")
        try:
            reports = asyncio.run(deliver(producer, records))
        finally:
            producer.close()
        return [(report.partition, report.offset) for report in reports]

    def ends(self, *names: str) -> dict[tuple[str, int], int]:
        """Where these topics end now."""
        return {
            (name, p): end for name in names for p, (_, end) in self.admin.watermarks(name).items()
        }

    def letter_of(self, starts: dict[tuple[str, int], int], where: tuple[int, int]) -> DeadLetter:
        """The dead letter of the raw record at that partition and offset."""

        def is_it(event: Any) -> bool:
            return (event.source.partition, event.source.offset) == where

        letters = self.read_until(starts, lambda seen: any(map(is_it, seen)))
        found: DeadLetter = next(filter(is_it, letters))
        return found

    def read_until(
        self,
        starts: dict[tuple[str, int], int],
        enough: Callable[[Sequence[Any]], bool],
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> list[Any]:
        """The events from there on, once there are enough of them."""
        consumer = self.bus.consumer()
        consumer.assign(starts)
        events: list[Any] = []
        deadline = time.monotonic() + timeout_seconds
        while not enough(events):
            assert time.monotonic() < deadline, f"{len(events)}: {_end_of(self.log)}"
            events += [codec.decode(record.value) for record in _readable(consumer.poll(500, 0.2))]
        consumer.close()
        return events


def _readable(records: Sequence[Received]) -> list[Received]:
    return [record for record in records if record.value]


def _end_of(log: Path) -> str:
    return log.read_text()[-3000:] if log.exists() else "no log"
