"""Poisoned micro-batches become dead letters and training goes on."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from schemas import codec, topics
from schemas.atdp.internal import DeadLetter
from schemas.atdp.training import MicroBatch, SequenceKind, TrainedSpan, TrainingSequence
from schemas.bus.api import read_to_end
from schemas.bus.memory import MemoryBus
from schemas.store import BlobStore
from schemas.telemetry import Metrics
from tests.unit.trainer.batches import POLICY, VOCABULARY, microbatch, new_bus, put, sequence
from trainer.intake import Intake, Limits, Taken

RANDOM = np.random.default_rng(0)
GOOD = sequence(1, RANDOM, token_ids=(4, 5, 6, 7), logprobs=(-1.0, -2.0),
                trained=(TrainedSpan(first=2, end=4, version=3, step_id="s"),))  # fmt: skip


def intake(bus: MemoryBus, start: int | None = None, metrics: Metrics | None = None) -> Intake:
    limits = Limits(POLICY, VOCABULARY, 64)
    return Intake(bus, BlobStore("memory://blobs"), limits, start, metrics or Metrics())


def taken(bus: MemoryBus, start: int | None = None) -> list[Taken]:
    reader, found = intake(bus, start), []
    while (one := reader.poll(0.0)) is not None:
        found.append(one)
    reader.close()
    return found


def letters(bus: MemoryBus) -> list[DeadLetter]:
    records = read_to_end(bus, topics.dead_letter_topic(topics.MICROBATCHES))
    return [codec.decode(record.value) for record in records]


def span(first: int, end: int) -> tuple[TrainedSpan, ...]:
    return (TrainedSpan(first=first, end=end, version=3, step_id="s"),)


@pytest.mark.parametrize(
    ("broken", "reason", "field"),
    [
        (replace(GOOD, logprobs=(-1.0,)), "wrong_type", "logprobs"),
        (replace(GOOD, logprobs=(-1.0, math.nan)), "not_finite", "logprobs"),
        (replace(GOOD, logprobs=(-1.0, math.inf)), "not_finite", "logprobs"),
        (replace(GOOD, logprobs=(-1.0, 0.5)), "not_finite", "logprobs"),
        (replace(GOOD, reward=math.nan), "not_finite", "reward"),
        (replace(GOOD, replaced_reward=math.inf), "not_finite", "replaced_reward"),
        (replace(GOOD, reward=None), "wrong_type", "reward"),
        (replace(GOOD, kind=SequenceKind.UNKNOWN), "wrong_type", "kind"),
        (replace(GOOD, token_ids=(4, 5, 6, VOCABULARY)), "wrong_type", "token_ids"),
        (replace(GOOD, token_ids=(4, 5, 6, -1)), "wrong_type", "token_ids"),
        (replace(GOOD, token_ids=(4,)), "wrong_type", "token_ids"),
        (replace(GOOD, token_ids=(4,) * 65), "oversized", "token_ids"),
        (replace(GOOD, trained=span(2, 5)), "wrong_type", "trained"),
        (replace(GOOD, trained=span(0, 2)), "wrong_type", "trained"),
        (replace(GOOD, trained=span(3, 3)), "wrong_type", "trained"),
        (replace(GOOD, trained=span(2, 4) + span(3, 4)), "wrong_type", "trained"),
    ],
)
def test_a_poisoned_batch_is_buried_and_the_next_one_comes(
    broken: TrainingSequence, reason: str, field: str
) -> None:
    bus = new_bus()
    put(bus, microbatch([GOOD, broken]), microbatch([GOOD]))
    found = taken(bus)
    assert [(len(one.examples), one.next_offset) for one in found] == [(0, 1), (1, 2)]
    [letter] = letters(bus)
    assert (letter.reason, letter.field, letter.source.offset) == (reason, field, 0)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (lambda: b"\0\0", "undecodable"),
        (lambda: codec.encode(letters_of_another_kind()), "unexpected_event"),
        (
            lambda: codec.encode(replace(microbatch([]), sequences_uri="sha256:x/00")),
            "blob_missing",
        ),
        (lambda: codec.encode(microbatch([GOOD], policy="other")), "wrong_type"),
    ],
)
def test_what_is_no_batch_of_ours_is_buried(value: Callable[[], bytes], reason: str) -> None:
    bus = new_bus()
    put(bus, value(), microbatch([GOOD]))
    assert [len(one.examples) for one in taken(bus)] == [0, 1]
    assert [letter.reason for letter in letters(bus)] == [reason]


def letters_of_another_kind() -> DeadLetter:
    bus = new_bus()
    put(bus, b"\0")
    taken(bus)
    return letters(bus)[0]


def test_batches_of_other_policies_are_passed_over() -> None:
    bus = new_bus()
    put(bus, microbatch([GOOD], policy="other"), policy="other")
    put(bus, microbatch([GOOD]))
    assert [(len(one.examples), one.next_offset) for one in taken(bus)] == [(0, 1), (1, 2)]
    assert letters(bus) == []


def test_reading_goes_on_at_an_offset_and_buries_the_same_record_under_the_same_id() -> None:
    bus = new_bus()
    put(bus, microbatch([GOOD]), b"\0", microbatch([GOOD]))
    assert [one.next_offset for one in taken(bus, start=1)] == [2, 3]
    taken(bus, start=1)
    first, second = letters(bus)
    assert first.dead_letter_id == second.dead_letter_id


def test_what_retention_deleted_is_counted() -> None:
    bus, metrics = new_bus(), Metrics()
    put(bus, *[microbatch([GOOD])] * 4)
    log = bus.partitions(topics.MICROBATCHES)[0]
    log.first, log.records = 3, log.records[3:]
    reader = intake(bus, 1, metrics)
    one = reader.poll(0.0)
    reader.close()
    assert one is not None
    assert one.next_offset == 4
    lost = metrics.counter(
        "headrace_log_gap_records", group=topics.TRAINER, topic=topics.MICROBATCHES
    )
    assert lost._value.get() == 2


def test_missing_log_probabilities_stay_missing() -> None:
    bus = new_bus()
    put(bus, microbatch([replace(GOOD, logprobs=())]))
    [one] = taken(bus)
    assert np.isnan(one.examples[0].behaviour).all()
    assert one.examples[0].versions.tolist() == [3, 3]


def test_a_claim_check_is_fetched(tmp_path: Path) -> None:
    bus, blobs = new_bus(), BlobStore(tmp_path.as_uri())
    whole: MicroBatch = microbatch([GOOD] * 3)
    uri = blobs.put("_microbatches", codec.encode(whole))
    put(bus, replace(whole, sequences=(), sequences_uri=uri))
    reader = Intake(bus, blobs, Limits(POLICY, VOCABULARY, 64), None, Metrics())
    one = reader.poll(0.0)
    reader.close()
    assert one is not None
    assert len(one.examples) == 3
