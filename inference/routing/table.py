"""From assignments, acks and heartbeats to the workers that may get a call. Pure.

A worker may get calls for a version only while it has proved it: its latest ack says `applied`
for it, and its heartbeat names the same version and root.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from schemas import codec, ids, topics
from schemas.atdp.weights import (
    AckStatus,
    RingAssignment,
    VersionRef,
    WeightsAck,
    WorkerHeartbeat,
)
from schemas.bus.api import Received
from schemas.errors import PermanentError
from schemas.roster import Reading, Roster

TOPICS = (topics.WEIGHTS_PROMOTIONS, topics.WEIGHTS_ACKS, topics.WORKERS)
#: A worker that is up for longer may have an ack that the topic keeps no more.
_ACKS_KEPT = timedelta(hours=topics.topic(topics.WEIGHTS_ACKS).retention_hours)
_SHARES = 2**64


@dataclass(frozen=True, slots=True)
class Worker:
    """Where a call can go. `version` is None for a model of which nobody published a version."""

    worker_id: str
    address: str
    version: int | None


@dataclass(frozen=True, slots=True)
class Serving:
    """What a worker serves and has proved; `ref` is None for the model that it was started with."""

    ref: VersionRef | None


@dataclass(frozen=True, slots=True)
class Routes:
    """Workers by how well they suit: the versions in order, each with those that proved it."""

    stable: tuple[tuple[Worker, ...], ...] = ()
    canary: tuple[tuple[Worker, ...], ...] = ()
    canary_share: float = 0.0
    canary_root: str = ""

    @property
    def worker_ids(self) -> frozenset[str]:
        """The workers that may get calls."""
        return frozenset(worker.worker_id for tier in self.stable for worker in tier)

    def candidates(self, key: bytes, call: bytes) -> list[Worker]:
        """All workers for a call, the best first. The same `call` gets the same ones.

        `call` is what all calls of a trajectory share; the digest is keyed, so that nobody can
        choose a trajectory that gets the trial.
        """
        tiers = self.stable
        if self.canary_share > 0 and _share(key, self.canary_root, call) < self.canary_share:
            tiers = self.canary
        return [
            worker
            for tier in tiers
            for worker in sorted(tier, key=lambda w: ids.keyed_digest(key, w.worker_id, call))
        ]


def _share(key: bytes, root: str, call: bytes) -> float:
    return int(ids.keyed_digest(key, "canary", root, call)[:16], 16) / _SHARES


@dataclass(slots=True)
class Table:
    """What is known of one ring of one policy."""

    policy: str
    ring: str
    assignment: RingAssignment | None = None
    acks: dict[str, WeightsAck] = field(default_factory=dict)
    roster: Roster = field(default_factory=Roster)
    #: Records that could not be read. They are passed over.
    num_unreadable: int = 0

    def take(self, received: Received, reading: Reading) -> None:
        """Add one record."""
        try:
            event = codec.decode(received.value) if received.value else None
        except PermanentError:
            self.num_unreadable += 1
            return
        if event is None:
            self._forget(received, reading)
        else:
            self._add(event, reading)

    def _add(self, event: Any, reading: Reading) -> None:
        match event:
            case RingAssignment(policy=self.policy, ring=self.ring):
                known = self.assignment
                if known is None or event.sequence > known.sequence:
                    self.assignment = event
            case WeightsAck(policy=self.policy):
                self.acks[event.worker_id] = event
            case WorkerHeartbeat():
                self.roster.take(event.worker_id, event, reading)

    def _forget(self, received: Received, reading: Reading) -> None:
        name = (received.key or b"").decode("utf-8", "replace")
        if received.topic == topics.WORKERS:
            self.roster.take(name, None, reading)
        elif received.topic == topics.WEIGHTS_ACKS:
            self.acks.pop(name, None)

    def routes(self, as_of: float) -> Routes:
        """Who may get calls, as of the moment up to which the topics are known."""
        proved: dict[Serving, list[Worker]] = {}
        live = self.roster.live(self.policy, self.ring, as_of)
        for worker_id, beat in live.items():
            serving = serves(beat, self.acks.get(worker_id))
            if serving is not None:
                version = None if serving.ref is None else serving.ref.version
                worker = Worker(worker_id, beat.address, version)
                proved.setdefault(serving, []).append(worker)
        return _routes(self.assignment, proved)


def serves(beat: WorkerHeartbeat, ack: WeightsAck | None) -> Serving | None:
    """What a worker has proved; None while it contradicts itself or is not to be trusted."""
    told = _told(beat)
    if ack is None or ack.occurred_at < beat.started_at:
        is_old = beat.heartbeat_at - beat.started_at > _ACKS_KEPT
        return Serving(told) if told is None or (ack is None and is_old) else None
    match ack.status:
        case AckStatus.APPLIED:
            acked = None if ack.root is None else VersionRef(version=ack.version, root=ack.root)
            is_later = ack.occurred_at > beat.heartbeat_at
            return Serving(acked) if acked is not None and (acked == told or is_later) else None
        case AckStatus.REFUSED | AckStatus.STAGED:  # it goes on with what it served before
            return Serving(told)
    return None


def _told(beat: WorkerHeartbeat) -> VersionRef | None:
    if beat.version is None or beat.root is None:
        return None
    return VersionRef(version=beat.version, root=beat.root)


def _routes(
    assignment: RingAssignment | None, proved: Mapping[Serving, Iterable[Worker]]
) -> Routes:
    """The assigned version first; while nobody has proved it, those that were served before."""
    if assignment is None:
        return Routes(stable=_tiers([None], proved))
    # The first version of a ring comes after the model that its workers were started with.
    before: list[VersionRef | None] = list(assignment.served) or [None]
    stable: list[VersionRef | None] = [assignment.stable, *before]
    if assignment.canary is None:
        return Routes(stable=_tiers(stable, proved))
    return Routes(
        stable=_tiers([*stable, assignment.canary], proved),
        canary=_tiers([assignment.canary, *stable], proved),
        canary_share=assignment.canary_share,
        canary_root=assignment.canary.root,
    )


def _tiers(
    wanted: Iterable[VersionRef | None], proved: Mapping[Serving, Iterable[Worker]]
) -> tuple[tuple[Worker, ...], ...]:
    found = (tuple(proved.get(Serving(ref), ())) for ref in wanted)
    return tuple(tier for tier in found if tier)
