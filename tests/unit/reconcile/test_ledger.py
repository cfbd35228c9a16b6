"""A ledger marks each offset once, whatever order and overlap the evidence comes in."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from infra.reconcile.ledger import Ledger, rounds
from infra.reconcile.report import Kind

SPANS = {0: (3, 20), 1: (0, 7)}
PARTITION = st.sampled_from([0, 1, 2])
OFFSET = st.integers(0, 25)
MARKS = st.tuples(st.just("mark"), st.sampled_from(list(Kind)), PARTITION, OFFSET, OFFSET)
RANGES = st.tuples(st.just("range"), st.sampled_from(list(Kind)), PARTITION, OFFSET, OFFSET)
UNSEEN = st.tuples(st.just("unseen"), st.sampled_from(list(Kind)), PARTITION, OFFSET, OFFSET)
SEEN = st.tuples(st.just("see"), st.none(), PARTITION, OFFSET, OFFSET)


@given(st.lists(st.one_of(MARKS, RANGES, UNSEEN, SEEN), max_size=30))
def test_a_ledger_counts_as_a_dictionary_would(acts: list[Any]) -> None:
    ledger = Ledger(SPANS)
    expected: dict[tuple[int, int], Any] = {
        (p, offset): None for p, span in SPANS.items() for offset in range(*span)
    }
    for act, kind, partition, first, end in acts:
        if act == "mark":
            ledger.mark(kind, partition, first)
            _set(expected, kind, partition, range(first, first + 1), {None, "seen"})
        elif act == "range":
            ledger.mark_range(kind, partition, first, end)
            _set(expected, kind, partition, range(first, end), {None, "seen"})
        elif act == "unseen":
            ledger.mark_unseen(kind, partition, first, end)
            _set(expected, kind, partition, range(first, end), {None})
        else:
            ledger.see(partition, first)
            _set(expected, "seen", partition, range(first, first + 1), {None})
    absent = {place for place, found in expected.items() if found in {None, "seen"}}
    assert ledger.num_absent == len(absent)
    for partition in SPANS:
        stretches = list(ledger.absent(partition))
        offsets = [offset for first, end in stretches for offset in range(first, end)]
        assert offsets == sorted(offset for p, offset in absent if p == partition)
        counted = Counter(v for (p, _), v in expected.items() if p == partition)
        assert +ledger.counts[partition] == Counter(
            {kind: n for kind, n in counted.items() if isinstance(kind, Kind)}
        )
        bounds = (offsets[0], offsets[-1] + 1) if offsets else None
        assert ledger.bounds().get(partition) == bounds


def _set(expected: dict[Any, Any], value: Any, partition: int, offsets: range, over: Any) -> None:
    for offset in offsets:
        if expected.get((partition, offset), value) in over:
            expected[partition, offset] = value


def test_what_is_left_is_marked_at_once() -> None:
    ledger = Ledger(SPANS)
    ledger.mark(Kind.STORED, 0, 5)
    ledger.mark_rest(Kind.IN_STATE)
    assert ledger.num_absent == 0
    assert ledger.counts[0] == {Kind.STORED: 1, Kind.IN_STATE: 16}


@given(
    st.dictionaries(st.integers(0, 3), st.tuples(st.integers(0, 50), st.integers(0, 50))),
    st.integers(1, 40),
)
def test_rounds_cover_every_span_in_order_and_keep_the_bound(
    spans: dict[int, tuple[int, int]], max_offsets: int
) -> None:
    seen: dict[int, list[int]] = {partition: [] for partition in spans}
    for part in rounds(spans, max_offsets):
        assert sum(end - first for first, end in part.values()) <= max(max_offsets, len(part))
        for partition, span in part.items():
            seen[partition] += range(*span)
    assert seen == {partition: list(range(*span)) for partition, span in spans.items()}
