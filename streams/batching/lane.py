"""Samples → micro-batches, in an order in which nothing is lost and nothing goes out twice.

    1. micro-batches and decisions are produced and their reports awaited,
    2. what trajectories are to remember goes to the changelog, then into the table,
    3. the samples are acknowledged.

A process that dies after 1 and before 2 would send its samples again in other batches. So whoever
takes a partition over reads first what was sent since the mark that the table holds for it: a
sample that is found there and not remembered is not sent again. A partition's mark is written
before anything of it is sent, and moves on with what is remembered. Two processes that own a
partition at once, as after a long pause, may still both send it; the trainer's ledger drops the
second.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import structlog

from schemas import topics
from schemas.atdp.internal import Sample
from schemas.atdp.training import MicroBatch, SampleDecision, TrainingSequence
from schemas.atdp.types import Reward, Step
from schemas.bus import Producer, Received, Record, deliver, partition_for
from schemas.clock import Clock
from schemas.codec import decode, encode
from schemas.errors import PermanentError, Reason, TransientError
from schemas.ids import trajectory_key
from schemas.microbatches import microbatch_record
from schemas.store import BlobStore
from schemas.telemetry import Metrics
from streams.batching.desk import Closed, Desk, Standing, Verdict, remember
from streams.batching.memory import Memory, dump, header, load
from streams.batching.reading import (
    PlaceReader,
    Policies,
    PolicyReader,
    Sent,
    SentReader,
    material_of,
    signal_places,
    step_places,
)
from streams.batching.signals import Material
from streams.runtime import ReplayMark
from streams.runtime.crashes import CrashLedger
from streams.runtime.lane import Table, coordinates, dead_letter

log = structlog.get_logger()

#: How long a full desk waits for room within one call: shorter than a rebalance waits.
MAX_ROOM_SECONDS = 15.0
_ROOM_POLL_SECONDS = 0.1
#: How often rows that nobody needs are looked for.
_SWEEP_SECONDS = 3600.0
#: No trajectory's key begins with this character.
_MARK_KEY = "\x00sent/{}"
_SECOND_US = 1_000_000


@dataclass(slots=True)
class _Unsaved:
    """What is decided and not durable yet."""

    batches: list[MicroBatch] = field(default_factory=list)
    outputs: list[Record] = field(default_factory=list)
    #: Key of the trajectory → partition, and the memory or None to let it go.
    memories: dict[str, tuple[int, Memory | None]] = field(default_factory=dict)
    marks: dict[int, int] = field(default_factory=dict)
    finished: list[tuple[str, int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Readers:
    """What the lane reads beside its records."""

    steps: PlaceReader[Step]
    rewards: PlaceReader[Reward]
    policies: PolicyReader
    sent: SentReader


class BatchingLane:
    """Runs a desk over the samples of this process's partitions."""

    def __init__(
        self,
        *,
        desk: Desk,
        table: Table,
        producer: Producer,
        blobs: BlobStore,
        readers: Readers,
        crashes: CrashLedger,
        clock: Clock,
        metrics: Metrics,
        num_partitions: int,
        retention_hours: float,
        mark: ReplayMark,
    ) -> None:
        """Memories that nothing was added to for `retention_hours` are let go."""
        self._desk = desk
        self._table = table
        self._producer = producer
        self._blobs = blobs
        self._readers = readers
        self._crashes = crashes
        self._clock = clock
        self._metrics = metrics
        self._retention = timedelta(hours=retention_hours)
        self._num_partitions = num_partitions
        self._mark = mark
        self._unsaved = _Unsaved()
        #: Records that were taken in and not named as finished yet.
        self._taken: dict[tuple[str, int, int], Received] = {}
        self._open: set[int] = set()
        #: Samples found in a batch although nothing remembers them, each with its partition. The
        #: key of the trajectory is part of the name: ids are those of a tenant.
        self._sent_before: dict[
            tuple[bytes, str], tuple[int, Sent, tuple[TrainingSequence, ...]]
        ] = {}
        #: Batches that the trainer may not have used yet, by their offsets.
        self._ahead: dict[int, tuple[str, int]] = {}
        self._sent_end = 0
        self._swept_at = clock.monotonic()

    async def process(self, records: Sequence[Received]) -> list[Received]:
        """Take samples in, send what is due; the records whose samples are decided for good."""
        fresh = [r for r in records if coordinates(r) not in self._taken]
        if fresh or len(self._desk) or self._unsaved.finished:
            await self._save()
            policies = await asyncio.to_thread(self._readers.policies.look)
            if fresh:
                await self._room(policies)
                await self._take(fresh)
            self._close(policies)
            self._sweep()
            await self._save()
        return [*self._finished()]

    def forget(self, topic: str, partition: int) -> None:
        """Another process owns the partition and decides its undecided samples again."""
        self._desk.forget(topic, partition)
        self._open.discard(partition)
        for where in [w for w in self._taken if w[:2] == (topic, partition)]:
            del self._taken[where]

    # --- in -----------------------------------------------------------------------------------

    async def _room(self, policies: Policies) -> None:
        """Wait until the desk has room. TransientError, which says for what it waits, if long."""
        deadline = self._clock.monotonic() + MAX_ROOM_SECONDS
        while not self._desk.has_room():
            if self._clock.monotonic() > deadline:
                raise TransientError(
                    f"{len(self._desk)} samples wait for the trainer, which has not used what it "
                    "was sent; its log says why"
                )
            self._close(policies)
            await self._save()
            await asyncio.sleep(_ROOM_POLL_SECONDS)
            policies = await asyncio.to_thread(self._readers.policies.look)

    async def _take(self, records: Sequence[Received]) -> None:
        await self._open_partitions({record.partition for record in records})
        samples = [*self._samples(records)]
        wanted = [*self._wanting(samples)]
        places = [place for sample in wanted for place in step_places(sample)]
        told = [place for sample in wanted for place in signal_places(sample)]
        steps = await asyncio.to_thread(self._readers.steps.read, places) if places else {}
        rewards = await asyncio.to_thread(self._readers.rewards.read, told) if told else {}
        for record, sample in samples:
            self._taken[coordinates(record)] = record
            with self._crashes.counting(coordinates(record)):
                try:
                    self._offer(record, sample, material_of(sample, steps, rewards))
                except PermanentError as error:  # the sample was read: what is wrong now is ours
                    raise RuntimeError("a sample that was read could not be offered") from error

    def _samples(self, records: Sequence[Received]) -> Iterator[tuple[Received, Sample]]:
        """The samples of the records; what is none becomes a dead letter."""
        for record in records:
            where = coordinates(record)
            try:
                yield record, self._sample_of(record)
            except PermanentError as error:
                self._taken[where] = record
                self._unsaved.outputs.append(
                    dead_letter(topics.BATCHING, record, error, self._clock, self._metrics)
                )
                self._unsaved.finished.append(where)
                self._count("dead_lettered")

    def _sample_of(self, record: Received) -> Sample:
        with self._crashes.counting(coordinates(record)):
            event = decode(record.value)
            if not isinstance(event, Sample):
                raise PermanentError(Reason.UNEXPECTED_EVENT)
            return replace(event, replayed=True) if self._mark.is_replayed(record) else event

    def _wanting(self, samples: Iterable[tuple[Received, Sample]]) -> Iterator[Sample]:
        """Those whose records have to be read."""
        for record, sample in samples:
            with self._crashes.counting(coordinates(record)):
                is_needed = self._desk.needs_steps(sample, self._memory(sample))
            if is_needed:
                yield sample

    def _offer(self, record: Received, sample: Sample, found: Material) -> None:
        where = coordinates(record)
        memory = self._memory(sample)
        if memory.knows(sample.sample_id) or self._desk.waits(sample):
            self._unsaved.finished.append(where)  # a copy: what was decided stands
            return
        for verdict in self._desk.supersede(sample):
            self._conclude(verdict)
        memory = self._memory(sample)
        name = trajectory_key(sample.tenant_id, sample.trajectory_id), sample.sample_id
        if name in self._sent_before:
            _, sent, sequences = self._sent_before.pop(name)
            self._conclude(
                self._desk.known_sent(where, sample, sequences, sent.policy, sent.batch_id)
            )
            return
        refused = self._desk.offer(where, sample, found, memory, self._clock.monotonic())
        if refused is not None:
            self._conclude(refused)

    # --- out ----------------------------------------------------------------------------------

    def _close(self, policies: Policies) -> None:
        self._ahead = {
            offset: (policy, num_tokens)
            for offset, (policy, num_tokens) in self._ahead.items()
            if offset >= policies.used_up_to.get(policy, 0)
        }
        ahead: dict[str, int] = {}
        for policy, num_tokens in self._ahead.values():
            ahead[policy] = ahead.get(policy, 0) + num_tokens
        closed: Closed = self._desk.close(
            Standing(policies.newest, ahead), self._clock.monotonic(), self._clock.now()
        )
        self._unsaved.batches += closed.batches
        for verdict in closed.verdicts:
            self._conclude(verdict)
        self._metrics.gauge("headrace_waiting_samples").set(len(self._desk))
        self._metrics.gauge("headrace_tokens_ahead").set(sum(ahead.values()))

    def _conclude(self, verdict: Verdict) -> None:
        """Say what was decided, and remember it where it is final."""
        self._unsaved.outputs.append(self._decision(verdict))
        reason = verdict.why.value if verdict.why else ""
        self._metrics.counter(
            "headrace_sample_decisions", decision=verdict.decision.value, why=reason
        ).inc()
        if not verdict.is_final:
            return
        sample = verdict.sample
        key = trajectory_key(sample.tenant_id, sample.trajectory_id).decode()
        memory = remember(self._memory(sample), verdict)
        self._unsaved.memories[key] = (verdict.where[1], memory)
        self._unsaved.finished.append(verdict.where)
        self._count("handled")
        if verdict.staleness is not None:
            self._metrics.histogram("headrace_sample_staleness").observe(verdict.staleness)

    def _decision(self, verdict: Verdict) -> Record:
        sample, candidate = verdict.sample, verdict.candidate
        event = SampleDecision(
            sample_id=sample.sample_id,
            tenant_id=sample.tenant_id,
            trajectory_id=sample.trajectory_id,
            revision=candidate.revision if candidate else 1,
            policy=verdict.policy,
            decision=verdict.decision,
            decision_reason=verdict.why.value if verdict.why else None,
            outcome=verdict.outcome,
            batch_id=verdict.batch_id,
            num_trained_tokens=candidate.num_trained_tokens if candidate else 0,
            staleness=verdict.staleness,
            decided_at=self._clock.now(),
            replay_epoch=self._mark.epoch,
        )
        key = trajectory_key(sample.tenant_id, sample.trajectory_id)
        return Record(topics.DECISIONS, key, encode(event))

    # --- durability ---------------------------------------------------------------------------

    async def _save(self) -> None:
        """Make all that was decided durable. TransientError: it is tried again at the next call."""
        unsaved = self._unsaved
        if unsaved.batches:
            records = await asyncio.to_thread(self._batch_records, unsaved.batches)
            for batch, delivery in zip(
                unsaved.batches, await deliver(self._producer, records), strict=True
            ):
                self._ahead[delivery.offset] = (batch.policy, batch.num_tokens)
                self._sent_end = max(self._sent_end, delivery.offset + 1)
                self._metrics.counter("headrace_microbatches").inc()
                self._metrics.counter("headrace_microbatch_tokens").inc(batch.num_trained_tokens)
            unsaved.batches = []
        await deliver(self._producer, unsaved.outputs)
        unsaved.outputs = []
        rows = [*self._rows(unsaved)]
        await deliver(
            self._producer,
            [
                Record(self._table.changelog, key.encode(), row, partition=partition)
                for partition, key, row in rows
            ],
        )
        for _, key, row in rows:
            self._table.apply(key, row)
        unsaved.memories, unsaved.marks = {}, {}

    def _batch_records(self, batches: Sequence[MicroBatch]) -> list[Record]:
        return [microbatch_record(batch, self._blobs) for batch in batches]

    def _rows(self, unsaved: _Unsaved) -> Iterator[tuple[int, str, bytes | None]]:
        """Rows of memories, and up to where everything sent is remembered then."""
        now_us = int(self._clock.now().timestamp() * _SECOND_US)
        for key, (partition, memory) in unsaved.memories.items():
            yield partition, key, None if memory is None else dump(memory, partition, now_us)
        waiting = {partition for partition, *_ in self._sent_before.values()}
        touched = {partition for partition, _ in unsaved.memories.values()}
        marks = {
            **dict.fromkeys((touched & self._open) - waiting, self._sent_end),
            **unsaved.marks,
        }
        for partition, end in sorted(marks.items()):
            yield partition, _MARK_KEY.format(partition), str(end).encode()

    def _finished(self) -> Iterator[Received]:
        for where in self._unsaved.finished:
            if where in self._taken:  # else its partition was taken away meanwhile
                yield self._taken.pop(where)
        self._unsaved.finished = []

    # --- partitions and rows ------------------------------------------------------------------

    async def _open_partitions(self, partitions: set[int]) -> None:
        """Learn what was sent of partitions that are new here and is not remembered."""
        fresh = partitions - self._open
        if not fresh:
            return
        rows = {p: self._table.get(_MARK_KEY.format(p)) for p in fresh}
        marks = {p: int(row) for p, row in rows.items() if row is not None}
        end = await asyncio.to_thread(self._readers.sent.end)
        found = (
            await asyncio.to_thread(self._readers.sent.read, min(marks.values())) if marks else []
        )
        for sent in found:
            self._ahead[sent.offset] = (sent.policy, sent.num_tokens)
            for (key, sample_id), sequences in sent.samples.items():
                partition = partition_for(key, self._num_partitions)
                if partition in marks and not load(self._table.get(key.decode())).knows(sample_id):
                    self._sent_before[key, sample_id] = (partition, sent, sequences)
        self._sent_end = max(self._sent_end, end)
        # What was never marked was never sent. Nothing of it is, before this is durable.
        self._unsaved.marks |= dict.fromkeys(fresh - marks.keys(), end)
        await self._save()
        self._open |= fresh

    def _memory(self, sample: Sample) -> Memory:
        key = trajectory_key(sample.tenant_id, sample.trajectory_id).decode()
        _, memory = self._unsaved.memories.get(key, (0, None))
        return memory or load(self._table.get(key))

    def _sweep(self) -> None:
        """Let go of memories that no further sample of their trajectory can come for."""
        now = self._clock.monotonic()
        if now - self._swept_at < _SWEEP_SECONDS:
            return
        self._swept_at = now
        oldest = self._clock.now() - self._retention
        oldest_us = int(oldest.timestamp() * _SECOND_US)
        for key, row in self._table.items():
            if key.startswith("\x00") or key in self._unsaved.memories:
                continue
            partition, at_us = header(row)
            if at_us < oldest_us and partition in self._open:
                self._unsaved.memories[key] = (partition, None)

    def _count(self, result: str) -> None:
        self._metrics.counter("headrace_records", group=topics.BATCHING, result=result).inc()
