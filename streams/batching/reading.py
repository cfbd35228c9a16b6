"""What batching reads beside its own topic: steps by their places, newest versions, sent batches.

All of it blocks, each call for a bounded time; the lane calls it in a thread, one call at a time.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import structlog

from schemas import topics
from schemas.atdp.internal import Sample
from schemas.atdp.training import TrainingSequence
from schemas.atdp.types import Reward, Step
from schemas.atdp.weights import WeightsManifest
from schemas.bus import Bus, Position, Received
from schemas.bus.api import Admin, Consumer
from schemas.bus.following import Following
from schemas.codec import decode
from schemas.errors import PermanentError, TransientError
from schemas.ids import trajectory_key
from schemas.microbatches import read_microbatch
from schemas.store import BlobStore
from streams.batching.signals import Material

log = structlog.get_logger()

#: Records between two steps that are read over rather than sought past.
MAX_READ_OVER = 500
MAX_READ_SECONDS = 30.0
_POLL_SECONDS = 0.1
_MAX_RECORDS = 500
_MICROBATCHES: Position = (topics.MICROBATCHES, 0)

Place = tuple[int, int]
"""Partition and offset on trajectory.steps.v1 or trajectory.rewards.v1."""


E = TypeVar("E", Step, Reward)


class PlaceReader(Generic[E]):
    """Reads events of one type by their places on one topic."""

    def __init__(self, bus: Bus, topic: str, kind: type[E]) -> None:
        self._topic = topic
        self._kind: type[E] = kind
        self._admin = bus.admin()
        self._consumer = bus.consumer()

    def read(self, places: Iterable[Place]) -> dict[Place, E]:
        """The events at these places; what retention deleted, or is none, is absent.

        TransientError when they could not be read in `MAX_READ_SECONDS`.
        """
        wanted = sorted(set(places))
        if not wanted:
            return {}
        kept = self._admin.extents([self._topic])
        runs: dict[int, list[list[int]]] = {}
        for partition, offset in wanted:
            first, end = kept.get((self._topic, partition), (0, 0))
            if first <= offset < end:
                _append(runs.setdefault(partition, []), offset)
        found: dict[Place, E] = {}
        deadline = time.monotonic() + MAX_READ_SECONDS
        while runs:
            found |= self._read_runs({p: rest.pop(0) for p, rest in runs.items()}, deadline)
            runs = {p: rest for p, rest in runs.items() if rest}
        self._consumer.assign({})  # or it would fetch on what nobody asks for
        return found

    def _read_runs(self, runs: Mapping[int, Sequence[int]], deadline: float) -> dict[Place, E]:
        """One run of offsets of each partition."""
        self._consumer.assign({(self._topic, p): offsets[0] for p, offsets in runs.items()})
        wanted = {(p, offset) for p, offsets in runs.items() for offset in offsets}
        open_runs = set(runs)
        found: dict[Place, E] = {}
        while open_runs:
            for record in self._consumer.poll(_MAX_RECORDS, _POLL_SECONDS):
                place = (record.partition, record.offset)
                if place in wanted and (event := self._event(record)) is not None:
                    found[place] = event
                if record.offset >= runs[record.partition][-1]:
                    open_runs.discard(record.partition)
            if self._consumer.at_end():
                break
            if open_runs and time.monotonic() > deadline:
                raise TransientError("Records of samples could not be read in time.")
        return found

    def _event(self, record: Received) -> E | None:
        try:
            event = decode(record.value)
        except PermanentError:
            return None  # assembly has its dead letter
        return event if isinstance(event, self._kind) else None


def step_reader(bus: Bus) -> PlaceReader[Step]:
    """Reads steps by their places."""
    return PlaceReader(bus, topics.STEPS, Step)


def reward_reader(bus: Bus) -> PlaceReader[Reward]:
    """Reads rewards by their places."""
    return PlaceReader(bus, topics.REWARDS, Reward)


def step_places(sample: Sample) -> list[Place]:
    """Where the steps lie that the sample is made of; of a signal's the one that it is about."""
    refs = sample.step_refs if sample.signal is None else sample.step_refs[-1:]
    return [(ref.partition, ref.offset) for ref in refs]


def signal_places(sample: Sample) -> list[Place]:
    """Where the record of its signal lies; nowhere without one."""
    return [(ref.partition, ref.offset) for ref in sample.signal_refs]


def material_of(
    sample: Sample, steps: Mapping[Place, Step], rewards: Mapping[Place, Reward]
) -> Material:
    """What is the sample's among all that was read. Nobody's records are taken for another's."""
    found = {}
    for step_id, ref in zip(sample.step_ids, sample.step_refs, strict=False):
        step = steps.get((ref.partition, ref.offset))
        owner = (sample.tenant_id, sample.trajectory_id, step_id)
        if step is not None and (step.tenant_id, step.trajectory_id, step.step_id) == owner:
            found[step_id] = step
    told = [rewards[place] for place in signal_places(sample) if place in rewards]
    named = [(sample.tenant_id, ref.reward_id, ref.revision) for ref in sample.rewards]
    its_own = [r for r in told if (r.tenant_id, r.reward_id, r.revision) in named]
    return Material(found, its_own[0] if its_own else None)


def _append(runs: list[list[int]], offset: int) -> None:
    if runs and offset - runs[-1][-1] <= MAX_READ_OVER:
        runs[-1].append(offset)
    else:
        runs.append([offset])


@dataclass(frozen=True, slots=True)
class Policies:
    """Newest version of each policy, and the offset up to which its trainer had used batches."""

    newest: Mapping[str, int] = field(default_factory=dict)
    used_up_to: Mapping[str, int] = field(default_factory=dict)


class PolicyReader:
    """Follows weights.versions.v1."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._following: Following | None = None
        self._newest: dict[str, int] = {}
        self._used_up_to: dict[str, int] = {}

    def look(self) -> Policies:
        """What is known now; the first look reads the topic to its end. TransientError while
        Kafka is away."""
        if self._following is None:
            self._following = Following(self._bus, [topics.WEIGHTS_VERSIONS])
        deadline = time.monotonic() + MAX_READ_SECONDS
        while True:
            is_first = not self._following.is_caught_up
            records = self._following.poll(_POLL_SECONDS if is_first else 0.0)
            for record in records:
                self._take(record)
            if not records and self._following.is_caught_up:
                return Policies(dict(self._newest), dict(self._used_up_to))
            if time.monotonic() > deadline:
                raise TransientError("The versions of policies could not be read in time.")

    def _take(self, record: Received) -> None:
        try:
            event = decode(record.value) if record.value else None
        except PermanentError as error:
            log.warning("manifest_unreadable", offset=record.offset, reason=error.reason.value)
            return
        if not isinstance(event, WeightsManifest):
            return
        if event.version >= self._newest.get(event.policy, event.version):
            self._newest[event.policy] = event.version
        for used in event.data_watermark:
            if (used.topic, used.partition) == _MICROBATCHES:
                known = self._used_up_to.get(event.policy, 0)
                self._used_up_to[event.policy] = max(known, used.offset)


@dataclass(frozen=True, slots=True)
class Sent:
    """A micro-batch that lies on the topic. `samples` maps key of the trajectory and id of each
    sample to its sequences."""

    offset: int
    batch_id: str
    policy: str
    num_tokens: int
    samples: Mapping[tuple[bytes, str], tuple[TrainingSequence, ...]]


class SentReader:
    """Reads which micro-batches were sent."""

    def __init__(self, bus: Bus, blobs: BlobStore) -> None:
        self._admin: Admin = bus.admin()
        self._consumer: Consumer = bus.consumer()
        self._blobs = blobs

    def end(self) -> int:
        """The offset after the last batch."""
        return self._extent()[1]

    def read(self, since: int) -> list[Sent]:
        """The batches from that offset on. TransientError when they could not be read in
        `MAX_READ_SECONDS`."""
        first, end = self._extent()
        start = max(first, since)
        if start >= end:
            return []
        self._consumer.assign({_MICROBATCHES: start})
        found: list[Sent] = []
        deadline = time.monotonic() + MAX_READ_SECONDS
        while True:
            records = self._consumer.poll(_MAX_RECORDS, _POLL_SECONDS)
            found += self._sent(records)
            if self._consumer.at_end() or (records and records[-1].offset >= end - 1):
                self._consumer.assign({})
                return found
            if time.monotonic() > deadline:
                raise TransientError(f"{topics.MICROBATCHES} could not be read in time.")

    def _extent(self) -> tuple[int, int]:
        return self._admin.extents([topics.MICROBATCHES]).get(_MICROBATCHES, (0, 0))

    def _sent(self, records: Sequence[Received]) -> Iterator[Sent]:
        for record in records:
            try:
                batch = read_microbatch(record.value, self._blobs)
            except PermanentError as error:
                reason = error.reason.value
                log.warning("microbatch_unreadable", offset=record.offset, reason=reason)
                continue
            samples: dict[tuple[bytes, str], tuple[TrainingSequence, ...]] = {}
            for s in batch.sequences:
                name = trajectory_key(s.tenant_id, s.trajectory_id), s.sample_id
                samples[name] = (*samples.get(name, ()), s)
            yield Sent(record.offset, batch.batch_id, batch.policy, batch.num_tokens, samples)
