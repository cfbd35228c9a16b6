"""Disks that refuse, a bus that is away, and calls whose client keeps a ledger."""

import errno
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from inference.capture.proof import Proof
from inference.capture.recorder import Recorder
from inference.spool import Publisher, Spool, SpoolFullError, SpoolWriteError
from inference.spool.assemble import Assembler
from inference.spool.disk import Disk
from schemas import codec, ids, topics
from schemas.atdp import Exchange
from schemas.atdp.types import Header, Outcome
from schemas.bus.api import OnDelivery, Record
from schemas.bus.memory import MemoryBus, MemoryProducer
from schemas.errors import TransientError
from schemas.store import BlobStore
from schemas.telemetry import Metrics


class SmallDisk(Disk):
    """A disk with so many bytes for everything under `root`; it takes of a write what fits."""

    def __init__(self, root: Path, capacity_bytes: int) -> None:
        super().__init__()
        self.root = root
        self.capacity_bytes = capacity_bytes

    @property
    def room_bytes(self) -> int:
        """What may still be written. Files that go under our eyes are gone."""
        used = 0
        for path in list(self.root.rglob("*.*")):
            try:
                used += path.stat().st_size if path.is_file() else 0
            except FileNotFoundError:
                continue
        return max(0, self.capacity_bytes - used)

    def write(self, descriptor: int, *parts: bytes) -> int:
        """Short where not all of it fits, ENOSPC where nothing does."""
        data = b"".join(parts)[: self.room_bytes]
        if not data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(descriptor, data)


class RefusingDisk(Disk):
    """A disk that refuses the methods named in `refuses`, and notes every sync."""

    def __init__(self, *refuses: str) -> None:
        super().__init__()
        self.refuses = set(refuses)
        self.synced: list[str] = []

    def _ask(self, name: str) -> None:
        if name in self.refuses:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def write(self, descriptor: int, *parts: bytes) -> int:
        """Half of it where `write` is refused."""
        if "write" in self.refuses:
            data = b"".join(parts)
            return os.write(descriptor, data[: len(data) // 2])
        return super().write(descriptor, *parts)

    def cut(self, descriptor: int, num_bytes: int) -> None:
        """Shorten, or refuse."""
        self._ask("cut")
        super().cut(descriptor, num_bytes)

    def sync(self, descriptor: int) -> None:
        """Note the file's name."""
        self._ask("sync")
        self.synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    def sync_folder(self, path: Path) -> None:
        """Note the folder's name and what is in it."""
        self._ask("sync_folder")
        self.synced.append(f"{path.name}/")

    def remove(self, path: Path) -> None:
        """Remove, or refuse."""
        self._ask("remove")
        super().remove(path)


class _Producer(MemoryProducer):
    def __init__(self, bus: "AwayBus") -> None:
        super().__init__(bus)
        self._away = bus

    def send(self, record: Record, on_delivery: OnDelivery) -> None:
        if self._away.is_away:
            raise TransientError("away", retry_after_seconds=0.01)
        super().send(record, on_delivery)


class AwayBus(MemoryBus):
    """A bus that can be away."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.admin().create_topics(topics.all_topics(), 1, 1)

    def producer(self, client_id: str) -> _Producer:  # noqa: ARG002 - the port's signature
        return _Producer(self)

    def exchanges(self) -> list[Exchange]:
        """What has arrived."""
        (log,) = self.partitions(topics.RAW_EVENTS)
        return [codec.decode(received.value) for received in list(log.records)]


@dataclass
class Station:
    """A spool with its recorder and publisher, and the ledger of what clients got."""

    root: Path
    disk: Disk
    when_full: str = "shed"
    bus: AwayBus = field(default_factory=AwayBus)
    max_record_bytes: int = 900_000
    #: step id → the body the client has, and whether it was told that it is whole.
    ledger: dict[str, tuple[bytes, bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.metrics = Metrics()
        self.spool = Spool(self.root / "spool", max_bytes=64 * 1024**2, disk=self.disk)
        self.recorder = Recorder(self.spool, self.when_full, self.metrics)  # type: ignore[arg-type]
        self.blobs = BlobStore((self.root / "blobs").absolute().as_uri())
        self.publisher = Publisher(
            self.spool, self.root / "spool", lambda: self.bus.producer("test"),
            Assembler(self.blobs, self.max_record_bytes), self.metrics,
        )  # fmt: skip

    def call(self, chunks: list[bytes], *, before_chunk: Callable[[int], object] = id) -> str:
        """One call as the relay makes it; its step id. Entered in the ledger if it was begun."""
        step_id = ids.uuid7()
        now = datetime.now(UTC)
        exchange = Exchange(
            event_id=ids.uuid7(), tenant_id="acme", step_id=step_id, method="POST", path="/v1/x",
            outcome=Outcome.GATEWAY_CRASHED, started_at=now, request_body=b"{}",
        )  # fmt: skip
        try:
            capture = self.recorder.begin(exchange, b"key")
        except (SpoolFullError, SpoolWriteError):
            return step_id
        if not capture.is_kept:
            return step_id
        got = b""
        outcome, error_class = Outcome.COMPLETE, None
        self.ledger[step_id] = (got, False)
        try:
            capture.head(200, [Header(name="a", value="b")], Proof())
            for number, chunk in enumerate(chunks):
                before_chunk(number)
                capture.chunk(chunk)
                got += chunk
        except SpoolWriteError:
            outcome, error_class = Outcome.UPSTREAM_ERROR, "spool_write_failed"
        capture.end(outcome, error_class, 1)
        self.ledger[step_id] = (got, outcome is Outcome.COMPLETE)
        return step_id

    def refused(self, what: str) -> float:
        """How often the disk refused such a thing."""
        name, labels = "headrace_spool_refused_total", {"what": what}
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    def housekeeping(self) -> None:
        """What the gateway does every second."""
        self.recorder.settle()
        delivered = self.publisher.caught_up_at
        if delivered is not None:
            self.spool.roll_if_read(delivered)

    def delivered(self) -> bool:
        """True once as many events as calls in the ledger have arrived."""
        self.housekeeping()
        return len(self.bus.exchanges()) >= len(self.ledger)

    def until(self, condition: Callable[[], object], timeout_seconds: float = 20) -> None:
        """Wait; fails when it does not come true or the publisher ends."""
        deadline = time.monotonic() + timeout_seconds
        pause = threading.Event()
        while not condition():
            assert self.publisher.is_alive, "the publisher's thread ended"
            assert time.monotonic() < deadline, "the condition did not come true"
            pause.wait(0.005)

    def close(self) -> None:
        """End in order."""
        self.publisher.stop(5)
        self.spool.close()

    def body(self, exchange: Exchange) -> bytes:
        """The answer as it was recorded."""
        uri = exchange.response_body_uri
        return exchange.response_body if uri is None else self.blobs.get("acme", uri)

    def check_ledger(self) -> dict[Outcome, int]:
        """Every call once, and the record says truly how much of the answer it holds."""
        arrived = self.bus.exchanges()
        assert sorted(e.step_id or "" for e in arrived) == sorted(self.ledger)
        outcomes: dict[Outcome, int] = {}
        for exchange in arrived:
            got, is_whole = self.ledger[exchange.step_id or ""]
            if self.when_full == "block" or exchange.outcome is Outcome.COMPLETE:
                assert self.body(exchange) == got
                assert is_whole is (exchange.outcome is Outcome.COMPLETE)
            else:
                assert exchange.outcome is Outcome.GATEWAY_CRASHED
                assert exchange.error_class == "spool_write_failed"
                assert got.startswith(self.body(exchange))
            outcomes[exchange.outcome] = outcomes.get(exchange.outcome, 0) + 1
        return outcomes


def report(station: Station) -> str:
    """What a test in another process reads."""
    outcomes = {outcome.value: n for outcome, n in station.check_ledger().items()}
    refused = {what: station.refused(what) for what in ("begin", "head", "chunk", "end")}
    return json.dumps({"outcomes": outcomes, "refused": refused})
