"""Runs a processor's lane in process, over the memory bus and a table that is a dict."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from schemas import topics
from schemas.bus import Received
from schemas.bus.memory import MemoryBus
from schemas.clock import ManualClock
from schemas.codec import decode
from schemas.telemetry import Metrics
from streams.runtime import Processor, RecordLane
from streams.runtime.crashes import CrashLedger
from streams.runtime.holds import BusLogEnds

START = datetime(2026, 1, 1, tzinfo=UTC)


class DictTable:
    """A table with nothing behind it."""

    changelog = "test-changelog"

    def __init__(self) -> None:
        self.rows: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.rows.get(key)

    def items(self) -> Iterator[tuple[str, bytes]]:
        yield from self.rows.items()

    def apply(self, key: str, value: bytes | None) -> None:
        if value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = value


def memory_bus(num_partitions: int = 1) -> MemoryBus:
    """A memory bus with every topic of the registry and the changelog of `DictTable`."""
    bus = MemoryBus()
    changelog = topics.Topic("test-changelog", "state", "key", None, "compact", 0, "test", ())
    bus.admin().create_topics([*topics.all_topics(), changelog], num_partitions, 1)
    return bus


def lane_over(bus: MemoryBus, processor: Processor, folder: Path, **options: Any) -> RecordLane:
    """A lane with a dict table and a clock that stands still unless given."""
    arguments: dict[str, Any] = {
        "group": topics.REDACTION,
        "processor": processor,
        "table": DictTable(),
        "producer": bus.producer("test"),
        "crashes": CrashLedger(folder / "crashes.json"),
        "clock": ManualClock(START),
        "metrics": Metrics(),
        "log_ends": BusLogEnds(bus.admin()),
    }
    return RecordLane(**{**arguments, **options})


def records_of(bus: MemoryBus, topic: str) -> list[Received]:
    """Every record of a topic, partition by partition."""
    return [record for log in bus.partitions(topic) for record in log.records]


def events_of(bus: MemoryBus, topic: str) -> list[Any]:
    """Every event of a topic, decoded."""
    return [decode(record.value) for record in records_of(bus, topic)]
