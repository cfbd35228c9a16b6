"""A worker in this process on any bus and any engine, with a publisher and whoever assigns."""

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from inference.worker.adapters import Adapters
from inference.worker.announce import Announcer
from inference.worker.following import Follower
from inference.worker.measures import Measures
from inference.worker.staging import Staging
from inference.worker.supervise import Process, Supervisor
from inference.worker.undo import UndoList
from inference.worker.update import Engine, Updater
from inference.worker.worker import Identity, Worker
from schemas import codec, topics
from schemas.atdp.weights import (
    RingAssignment,
    RingState,
    VersionRef,
    WeightsAck,
    WeightsManifest,
    WorkerHeartbeat,
)
from schemas.bus import Bus, Record, read_to_end, transact
from schemas.rings import ring_key
from schemas.store import BlobStore
from schemas.telemetry import Metrics
from schemas.weights.shadow import Shadow
from schemas.weights.tensors import Tensor

POLICY = "main"
_SECONDS = 30.0


@dataclass
class Running:
    """An engine's process that somebody else looks after; `die` as the test says."""

    code: int | None = None

    def exit_code(self) -> int | None:
        return self.code

    def stop(self) -> None:
        """It goes on: it is shared."""


class NotedAnnouncer(Announcer):
    """Notes what it is given to say, so that nobody has to look on the topic all the time."""

    num_said = 0

    def acknowledge(self, ack: WeightsAck) -> None:
        super().acknowledge(ack)
        self.num_said += 1


@dataclass
class Stage:
    """Everything around one worker. `base` is what a fresh engine holds."""

    bus: Bus
    blobs: BlobStore
    engine: Engine
    base: Mapping[str, Tensor]
    folder: Path
    start: Callable[[], Process] = Running
    clock: Callable[[], float] = time.monotonic
    key: bytes | None = None
    adapters: Adapters | None = None
    metrics: Metrics = field(default_factory=Metrics)
    sequence: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.follower = Follower("w1", POLICY, ("default",), self.key)
        self.announcer = NotedAnnouncer(self.bus.producer("w1"), "w1", 3600.0)
        self.worker = Worker(
            identity=Identity("w1", "http://127.0.0.1:1", POLICY, ("default",)),
            follower=self.follower,
            supervisor=Supervisor(
                self.start, lambda: True, self.folder / "log", 10.0, clock=self.clock
            ),
            bind=lambda: None,
            updater=Updater(self.engine, self.folder / "patch", "wait", 30.0),
            staging=Staging(self.bus, self.blobs),
            announcer=self.announcer,
            base=lambda: Shadow(self.base),
            undo=UndoList(50, 10**9),
            adapters=self.adapters,
            measures=Measures(self.metrics),
            clock=self.clock,
        )
        self.consumer = self.bus.consumer()
        self.consumer.assign({(topics.WEIGHTS_VERSIONS, 0): 0, (topics.WEIGHTS_PROMOTIONS, 0): 0})
        self.promotion = self.bus.transactions("controlplane.promotion")

    def assign(self, version: int, root: str) -> int:
        """Write an assignment of the ring; its sequence."""
        sequence = next(self.sequence)
        assignment = RingAssignment(
            policy=POLICY,
            ring="default",
            stable=VersionRef(version=version, root=root),
            state=RingState.STABLE,
            decision_id=f"d{sequence}",
            sequence=sequence,
            decided_at=datetime.now(UTC),
        )
        key = ring_key(POLICY, "default")
        transact(self.promotion, [Record(topics.WEIGHTS_PROMOTIONS, key, codec.encode(assignment))])
        return sequence

    def turn(self) -> None:
        """One round of the worker."""
        for record in self.consumer.poll(1_000, 0.02):
            self.follower.take(record)
        self.worker.tend()
        self.worker.follow()

    def go_to(self, manifest: WeightsManifest) -> WeightsAck:
        """Assign a version and wait for what the worker says of it."""
        return self.go(manifest.version, manifest.root)

    def go(self, version: int, root: str) -> WeightsAck:
        """The same for a version that may not exist."""
        known = self.announcer.num_said
        sequence = self.assign(version, root)
        deadline = time.monotonic() + _SECONDS
        while True:
            self.turn()
            assignment = self.follower.assignment
            is_read = assignment is not None and assignment.sequence == sequence
            if is_read and self.announcer.num_said > known:
                return self.acks()[-1]
            assert time.monotonic() < deadline, "the worker says nothing"

    def acks(self) -> list[WeightsAck]:
        """All that the worker has said of versions."""
        events = [codec.decode(r.value) for r in read_to_end(self.bus, topics.WEIGHTS_ACKS)]
        return [event for event in events if isinstance(event, WeightsAck)]

    def beats(self) -> list[WorkerHeartbeat | None]:
        """All heartbeats; None for a farewell."""
        records = read_to_end(self.bus, topics.WORKERS)
        return [None if r.value is None else codec.decode(r.value) for r in records]

    def require_equal(self) -> Shadow:
        """Every tensor of the engine is that of the shadow."""
        shadow = self.worker.shadow
        assert shadow is not None
        shadow.prove()
        assert self.engine.digests() == dict(shadow.digests)
        return shadow
