"""Micro-batches off the topic: read in order from an offset, checked, or dead-lettered.

Nothing is committed to the broker: where to go on is in the checkpoint. The topic has one
partition, so what comes next is a function of the offset.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from schemas import codec, topics
from schemas.atdp.internal import DeadLetter
from schemas.atdp.types import Coordinates
from schemas.bus.api import Bus, Received, Record, deliver_now
from schemas.errors import PermanentError, Reason
from schemas.ids import derive_id
from schemas.microbatches import read_microbatch
from schemas.store import BlobStore
from schemas.telemetry import Metrics
from trainer.answers import Encode
from trainer.credit import LeftOut
from trainer.examples import Example, examples_of, no_encoder

_log = structlog.get_logger("trainer")
_DELIVERY_SECONDS = 30.0
_PARTITION = 0


@dataclass(frozen=True, slots=True)
class Taken:
    """A micro-batch, or what is left of a record that was none. `next_offset` follows it."""

    examples: tuple[Example, ...]
    next_offset: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What a sequence may be for the policy that learns from it."""

    policy: str
    vocabulary_size: int
    max_length: int


class Intake:
    """Reads one policy's micro-batches. Blocks; for one thread."""

    def __init__(
        self,
        bus: Bus,
        blobs: BlobStore,
        limits: Limits,
        next_offset: int | None,
        metrics: Metrics,
        rate: Callable[[Example], Example] = lambda example: example,
        encode: Encode = no_encoder,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Start at an offset, or at the first record that is kept. `rate` gives each example the
        reward that it learns from, `encode` makes tokens of answers that came as text.

        What retention deleted before it was read is counted and logged: there is no way back.
        """
        self._blobs, self._limits, self._metrics, self._now = blobs, limits, metrics, now
        self._rate, self._encode = rate, encode
        admin = bus.admin()
        try:
            first, _ = admin.watermarks(topics.MICROBATCHES)[_PARTITION]
        finally:
            admin.close()
        start = first if next_offset is None else max(first, next_offset)
        if next_offset is not None and start > next_offset:
            lost = metrics.counter(
                "headrace_log_gap_records", group=topics.TRAINER, topic=topics.MICROBATCHES
            )
            lost.inc(start - next_offset)
            _log.warning("microbatches_expired", num_records=start - next_offset)
        self._producer = bus.producer("trainer.dead-letters")
        self._consumer = bus.consumer()
        self._consumer.assign({(topics.MICROBATCHES, _PARTITION): start})

    def poll(self, timeout_seconds: float) -> Taken | None:
        """The next record, None when there is none yet.

        A poisoned one has its dead letter before this returns, and comes without examples.
        TransientError when Kafka or the blob store is away.
        """
        for record in self._consumer.poll(1, timeout_seconds):
            return Taken(tuple(self._read(record)), record.offset + 1)
        return None

    def close(self) -> None:
        """Release the connections."""
        self._consumer.close()
        self._producer.close()

    def _read(self, record: Received) -> list[Example]:
        try:
            return self._examples(record)
        except PermanentError as error:
            self._bury(record, error)
            return []

    def _examples(self, record: Received) -> list[Example]:
        batch = read_microbatch(record.value, self._blobs)
        if batch.policy != self._limits.policy:
            if _is_of(record, batch.policy):
                return []  # another trainer's
            raise PermanentError(Reason.WRONG_TYPE, "policy")
        limits = self._limits
        found = examples_of(batch, limits.vocabulary_size, limits.max_length, self._encode)
        sent = {(s.tenant_id, s.sample_id) for s in batch.sequences}
        num_left_out = len(sent) - len({example.sample_id for example in found})
        if num_left_out:
            reason = LeftOut.ANSWER_TOO_LONG
            self._metrics.counter("headrace_trainer_left_out", reason=reason).inc(num_left_out)
        return [self._rate(example) for example in found]

    def _bury(self, record: Received, error: PermanentError) -> None:
        where = (record.topic, record.partition, record.offset)
        letter = DeadLetter(
            dead_letter_id=derive_id("dead-letter", topics.TRAINER, *where),
            group=topics.TRAINER,
            source=Coordinates(topic=where[0], partition=where[1], offset=where[2]),
            reason=error.reason.value,
            field=error.field,
            num_bytes=len(record.value or b""),
            occurred_at=self._now(),
        )
        topic = topics.dead_letter_topic(record.topic)
        value = codec.encode(letter)
        deliver_now(
            self._producer,
            [Record(topic, letter.dead_letter_id.encode(), value)],
            _DELIVERY_SECONDS,
        )
        self._metrics.counter(
            "headrace_dead_letters", group=topics.TRAINER, reason=error.reason.value
        ).inc()
        _log.warning("record_dead_lettered", offset=record.offset, reason=error.reason.value,
                     field=error.field)  # fmt: skip


def _is_of(record: Received, policy: str) -> bool:
    """Whether the record's key names the policy that its content names."""
    return record.key == policy.encode()
