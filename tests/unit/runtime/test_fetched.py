"""What was fetched is taken in parts: all records, in order, each part bounded."""

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from aiokafka.structs import TopicPartition

from streams.runtime import fetched
from streams.runtime.consumer import Consumer
from streams.runtime.fetched import PartlyTaken
from streams.runtime.records import LenientRecords

IN = TopicPartition("in", 0)
GZIP = 1


class State:
    """Where aiokafka reads on."""

    paused = False

    def __init__(self) -> None:
        self.position = 0

    def consumed_to(self, position: int) -> None:
        self.position = position


def result_of(sizes: list[int]) -> tuple[Any, State]:
    """One fetch of records with so many bytes, two in a batch."""
    data = b""
    for first in range(0, len(sizes), 2):
        builder = _DefaultRecordBatchBuilderPy(2, GZIP, 0, -1, -1, -1, 1 << 30)
        for number, size in enumerate(sizes[first : first + 2]):
            builder.append(number, 1_000, b"key", b"x" * (size - 3), [])
        made = bytearray(builder.build())
        made[:8] = first.to_bytes(8, "big")
        data += made
    records = PartitionRecords(IN, LenientRecords(data), [], 0, None, None, True, 0)
    state = State()
    assignment = SimpleNamespace(active=True, state_value=lambda _tp: state)
    made = fetcher.FetchResult(IN, assignment=assignment, partition_records=records, backoff=0)
    return made, state


def parts_of(result: Any, state: State, max_records: int | None = None) -> list[list[int]]:
    """Offsets of each part until nothing is left; the position is always behind the last one."""
    parts = []
    while result.has_more():
        offsets = [record.offset for record in result.getall(max_records)]
        if offsets:
            assert state.position == offsets[-1] + 1
            parts.append(offsets)
    return parts


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetched, "MAX_TAKEN_BYTES", 1_000)
    monkeypatch.setattr(fetched, "MAX_TAKEN_RECORDS", 4)


def test_small_records_are_bounded_by_their_number() -> None:
    assert parts_of(*result_of([10] * 9)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]


def test_large_records_are_bounded_by_their_bytes() -> None:
    sizes = [400, 400, 400, 5_000, 10, 10, 999]
    assert parts_of(*result_of(sizes)) == [[0, 1, 2], [3], [4, 5, 6]]


def test_a_part_that_ends_with_the_fetch_is_the_last() -> None:
    assert parts_of(*result_of([10] * 8)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_whoever_asks_for_fewer_gets_fewer() -> None:
    assert parts_of(*result_of([10] * 5), max_records=3) == [[0, 1, 2], [3, 4]]


def test_what_is_left_of_a_paused_or_moved_partition_is_fetched_again() -> None:
    for change in ({"paused": True}, {"position": 2}):
        result, state = result_of([10] * 9)
        result.getall()
        vars(state).update(change)
        assert (result.getall(), result.has_more()) == ([], False)


def test_faust_reads_with_it() -> None:
    assert Consumer.__module__ == "streams.runtime.consumer"
    assert fetcher.FetchResult is PartlyTaken
