"""The report as lines for a person."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from infra.status.report import Group, Lag, Report


def lines(report: Report, now: datetime, *, every_partition: bool = False) -> Iterator[str]:
    """The groups, and below each the partitions that are behind, or all of them."""
    if not report.groups:
        return
    width = max(len(f"{lag.topic} {lag.partition}") for lag in report.lags) if report.lags else 20
    head = f"{'behind':>10} {'committed':>12} {'end':>12} {'per s':>8}  {'waiting since':28} until"
    yield f"{'group, topic, partition':{width + 2}} {head}"
    for group in report.groups:
        yield _group(group, width)
        for lag in report.lags:
            if lag.group == group.group and (lag.behind or every_partition):
                yield _partition(lag, width, now)


def _group(group: Group, width: int) -> str:
    workers = f"{group.num_workers} worker{'' if group.num_workers == 1 else 's'}"
    state = "" if group.behind else "  nothing waits"
    return f"{group.group:{width + 2}} {group.behind:>10,}  {workers}{state}"


def _partition(lag: Lag, width: int, now: datetime) -> str:
    name = f"{lag.topic} {lag.partition}"
    rate = "" if lag.per_second is None else f"{lag.per_second:,.1f}"
    since = "" if lag.waiting_since is None else _since(lag.waiting_since, now)
    line = (
        f"  {name:{width}} {lag.behind:>10,} {lag.committed:>12,} {lag.end:>12,} {rate:>8}  "
        f"{since:28} {_until(lag, now)}"
    )
    return line.rstrip()


def _since(at: datetime, now: datetime) -> str:
    return f"{_clock(at, now)} ({duration((now - at).total_seconds())})"


def _until(lag: Lag, now: datetime) -> str:
    if not lag.behind or lag.per_second is None:
        return ""
    if lag.until is None:
        return "not at this rate" if lag.per_second else "it stands still"
    return f"{_clock(lag.until, now)} (in {duration((lag.until - now).total_seconds())})"


def _clock(at: datetime, now: datetime) -> str:
    form = "%H:%M:%S" if at.date() == now.date() else "%Y-%m-%d %H:%M"
    return f"{at.astimezone(UTC):{form}}"


def duration(seconds: float) -> str:
    """Two units at most: 8 s, 3 min, 2 h 5 min, 4 d 2 h."""
    total = max(0, round(seconds))
    units: Sequence[tuple[int, str]] = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    parts = []
    for size, name in units:
        number, total = divmod(total, size)
        if number:
            parts.append(f"{number} {name}")
    return " ".join(parts[:2]) or "0 s"
