"""Records about rings, and a bus in which they can be written and read back without a broker."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from schemas import codec, topics
from schemas.atdp.weights import (
    AckStatus,
    ManifestKind,
    Proposal,
    VersionRef,
    WeightsAck,
    WeightsManifest,
    WorkerHeartbeat,
)
from schemas.bus import Bus, Record, deliver_now
from schemas.rings import DEFAULT_RING, proposal_key

POLICY = "main"
RING = DEFAULT_RING
START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """A time of the test's own calendar."""
    return START + timedelta(seconds=seconds)


def root(version: int) -> str:
    """The root that a version has in these tests."""
    return f"{version:064x}"


def ref(version: int) -> VersionRef:
    return VersionRef(version=version, root=root(version))


def manifest(version: int, *, policy: str = POLICY, epoch: int = 1) -> WeightsManifest:
    """A snapshot, so that it stands for itself."""
    return WeightsManifest(
        policy=policy, version=version, kind=ManifestKind.SNAPSHOT, epoch=epoch,
        root=root(version), codec="safetensors", dtype="BF16", sha256="0" * 64, created_at=START,
    )  # fmt: skip


def proposal(version: int, **changes: Any) -> Proposal:
    fields: dict[str, Any] = {
        "policy": POLICY, "target": ref(version), "proposed_by": "cli:test", "epoch": 1,
        "ring": RING, "proposed_at": START,
    }  # fmt: skip
    return Proposal(**fields | changes)


def ack(
    worker_id: str, version: int, status: AckStatus = AckStatus.APPLIED, **changes: Any
) -> WeightsAck:
    is_error = status in (AckStatus.REFUSED, AckStatus.QUARANTINED)
    fields: dict[str, Any] = {
        "worker_id": worker_id, "policy": POLICY, "version": version, "root": root(version),
        "status": status, "error": "wrong_digest" if is_error else None, "occurred_at": at(1),
    }  # fmt: skip
    return WeightsAck(**fields | changes)


def beat(worker_id: str, version: int | None, **changes: Any) -> WorkerHeartbeat:
    fields: dict[str, Any] = {
        "worker_id": worker_id, "address": f"http://{worker_id}.test", "policy": POLICY,
        "rings": (RING,), "version": version, "root": None if version is None else root(version),
        "started_at": START, "heartbeat_at": at(2),
    }  # fmt: skip
    return WorkerHeartbeat(**fields | changes)


def record(event: Any) -> Record:
    """The event on its topic, under its key."""
    match event:
        case WeightsManifest():
            key = f"{event.policy}:{event.version}".encode()
            return Record(topics.WEIGHTS_VERSIONS, key, codec.encode(event))
        case Proposal():
            key = proposal_key(event.policy, event.target.version, event.ring)
            return Record(topics.WEIGHTS_PROMOTIONS, key, codec.encode(event))
        case WeightsAck():
            return Record(topics.WEIGHTS_ACKS, event.worker_id.encode(), codec.encode(event))
        case WorkerHeartbeat():
            return Record(topics.WORKERS, event.worker_id.encode(), codec.encode(event))
    raise TypeError(type(event).__name__)


def write(bus: Bus, events: Sequence[Any]) -> None:
    """Produce them in order and wait."""
    producer = bus.producer("test")
    try:
        deliver_now(producer, [record(event) for event in events], 30.0)
    finally:
        producer.close()
