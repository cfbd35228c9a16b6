"""Topic by topic: read what the groups have committed, then look for every record below it.

Committed offsets are read first, so what is looked for was handled by then. At most
`ledger.MAX_OFFSETS` offsets are in memory at a time.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from infra.connection import open_bus
from infra.reconcile.joins import join
from infra.reconcile.ledger import Ledger, rounds
from infra.reconcile.proofs import prove
from infra.reconcile.reading import Known, Sources, committed_offsets, read_known
from infra.reconcile.report import MAX_STRETCHES, Joins, Kind, Line, Report, gather
from infra.replay.plan import INPUTS
from infra.store import open_reader
from schemas import topics
from schemas.bus import Position
from schemas.errors import ConfigError
from schemas.log_gaps import LogGap

#: Ticks say that time passes and nothing else.
_LEFT_OUT = (topics.TICKS,)
#: Groups that are asked after only where they have run.
_LEARNING_INPUTS = {topics.BATCHING: (topics.SAMPLES,)}
_ORDER = (*topics.GROUPS, *topics.LEARNING_GROUPS)
_FEED_JOINS = (topics.STEPS, topics.SUMMARIES)
Progress = Callable[[str], None]


def reconcile(
    data_dir: Path | None, only: str | None = None, progress: Progress = lambda _name: None
) -> Report:
    """Account for every record of every topic, or of the one named. ConfigError for a topic that
    no processor reads."""
    readings = [
        (topic, group)
        for group, names in INPUTS.items()
        for topic in names
        if topic not in _LEFT_OUT and only in (None, topic)
    ]
    if not readings:
        names = sorted({name for inputs in INPUTS.values() for name in inputs} - set(_LEFT_OUT))
        raise ConfigError(f"{only} is read by no processor. Name one of {', '.join(names)}.")
    with open_bus(data_dir) as (_, bus, admin), open_reader(data_dir) as store:
        sources = Sources(bus, admin, store)
        learning = committed_offsets(admin, _LEARNING_INPUTS)
        readings += [
            (topic, group)
            for group, names in _LEARNING_INPUTS.items()
            for topic in names
            if learning[group] and only in (None, topic)
        ]
        committed = committed_offsets(admin, INPUTS) | learning
        marks = {topic: admin.watermarks(topic) for topic, _ in readings}
        known = read_known(sources)
        lines: list[Line] = []
        for topic, group in readings:
            progress(topic)
            lines += account(sources, topic, group, marks[topic], committed[group], known)
        lines.sort(key=lambda line: (_ORDER.index(line.group), line.topic))
        return Report(tuple(lines), _joins(sources, lines) if only is None else None)


def account(
    sources: Sources,
    topic: str,
    group: str,
    marks: Mapping[int, tuple[int, int]],
    committed: Mapping[Position, int],
    known: Known,
) -> list[Line]:
    """One line a partition."""
    handled = {
        p: (first, max(first, min(end, committed.get((topic, p), first))))
        for p, (first, end) in marks.items()
    }
    found = {
        p: [_around(topic, group, p, marks[p], committed.get((topic, p)), known.gaps)]
        for p in marks
    }
    for spans in rounds(handled):
        ledger = Ledger(spans)
        prove(sources, ledger, topic, group, known)
        for line in _lines(ledger, topic, group, marks):
            found[line.partition].append(line)
    return [gather(parts) for _, parts in sorted(found.items())]


def _around(
    topic: str,
    group: str,
    partition: int,
    kept: tuple[int, int],
    committed: int | None,
    gaps: Sequence[LogGap],
) -> Line:
    """What lies before the log's first record, and what is still to be read.

    A group that comes back after retention passed it records the gap then; it is one already.
    """
    first, end = kept
    skipped = [
        (gap.first, min(gap.end, first))
        for gap in gaps
        if (gap.group, gap.topic, gap.partition) == (group, topic, partition)
    ]
    if (committed or 0) < first:
        skipped.append((committed or 0, first))
    num_skipped = num_covered(skipped)
    unread = end - max(first, min(end, first if committed is None else committed))
    counts = Counter(
        {Kind.GAPS: num_skipped, Kind.EXPIRED: first - num_skipped, Kind.UNREAD: unread}
    )
    return Line(topic, partition, group, end, counts)


def num_covered(stretches: Iterable[tuple[int, int]]) -> int:
    """Number of offsets in any of the stretches. Overlaps count once."""
    covered, reached = 0, 0
    for first, end in sorted(stretches):
        covered += max(0, end - max(first, reached))
        reached = max(reached, end)
    return covered


def _lines(
    ledger: Ledger, topic: str, group: str, marks: Mapping[int, tuple[int, int]]
) -> Iterator[Line]:
    for partition, counts in ledger.counts.items():
        stretches = tuple(islice(ledger.absent(partition), MAX_STRETCHES))
        missing = sum(end - first for first, end in ledger.absent(partition))
        counts[Kind.MISSING] += missing
        yield Line(topic, partition, group, marks[partition][1], counts, stretches)


def _joins(sources: Sources, lines: Sequence[Line]) -> Joins:
    """Compared only while nothing is on its way, or what is on its way would look missing."""
    is_moving = any(line.counts[Kind.UNREAD] for line in lines if line.topic in _FEED_JOINS)
    return Joins(is_judged=False) if is_moving else join(sources.store)
