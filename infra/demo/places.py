"""Every place where a leak would count: clean topics, tables, logs, metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

from infra.demo.leaks import LeakScanner
from infra.demo.private_data import Planted
from infra.store import Reader
from schemas import codec, topics
from schemas.bus.api import Bus, Position, Received
from schemas.errors import PermanentError, TransientError

_POLL_SECONDS = 0.5
_MAX_EMPTY_POLLS = 60
_METRICS_SECONDS = 10.0


def read_topic(bus: Bus, name: str) -> Iterator[Received]:
    """All records of a topic up to what is its end now. TransientError when the broker stalls."""
    admin, consumer = bus.admin(), bus.consumer()
    try:
        marks = {p: mark for p, mark in admin.watermarks(name).items() if mark[1] > mark[0]}
        open_ends: dict[Position, int] = {(name, p): end for p, (_, end) in marks.items()}
        consumer.assign({(name, p): first for p, (first, _) in marks.items()})
        num_empty = 0
        while open_ends:
            received = consumer.poll(1000, _POLL_SECONDS)
            num_empty = 0 if received else num_empty + 1
            if num_empty > _MAX_EMPTY_POLLS:
                raise TransientError(f"Kafka gives no more of {name}. `headrace status` shows why.")
            for record in received:
                position = (record.topic, record.partition)
                if record.offset + 1 >= open_ends.get(position, 0):
                    open_ends.pop(position, None)
                yield record
    finally:
        consumer.close()
        admin.close()


class Found:
    """Leaks by value, and in which places each was seen."""

    def __init__(self, planted: tuple[Planted, ...]) -> None:
        self._scanner = LeakScanner(planted)
        self.places: defaultdict[Planted, set[str]] = defaultdict(set)

    def look(self, place: str, text: str, *, binary: bool = False) -> None:
        """Note what of the planted values `text` holds."""
        for item in self._scanner.scan(text, binary=binary):
            self.places[item].add(place)

    @property
    def num_leaked(self) -> int:
        """Different private values found, each counted once per kind."""
        return len({(item.kind, item.value) for item in self.places})

    @property
    def by_kind(self) -> dict[str, int]:
        """The same by kind, kinds without leaks left out."""
        values: defaultdict[str, set[str]] = defaultdict(set)
        for item in self.places:
            values[item.kind].add(item.value)
        return {kind: len(found) for kind, found in sorted(values.items())}


def look_at_topics(bus: Bus, found: Found) -> int:
    """Look at keys, headers and values of all clean topics; the number of records."""
    admin = bus.admin()
    existing = admin.topics()
    admin.close()
    num_records = 0
    for name in topics.clean_topics():
        for record in read_topic(bus, name) if name in existing else ():
            num_records += 1
            _look_at_record(record, found)
    return num_records


def _look_at_record(record: Received, found: Found) -> None:
    place = f"topic {record.topic}"
    for part in (record.key, *(value for _, value in record.headers)):
        found.look(place, (part or b"").decode("utf-8", "replace"), binary=True)
    try:
        text = codec.to_json(codec.decode(record.value)).decode()
    except PermanentError:
        found.look(place, (record.value or b"").decode("utf-8", "replace"), binary=True)
    else:
        found.look(place, text)


def look_at_tables(reader: Reader, found: Found) -> int:
    """Look at every stored row, older versions of it included; the number of rows."""
    names = reader.rows(
        "SELECT name FROM system.tables WHERE database = currentDatabase() AND engine != 'View'"
    )
    num_rows = 0
    for name in (str(row["name"]) for row in names):
        for line in reader.lines(f"SELECT * FROM `{name}`", "JSONEachRow"):  # noqa: S608  # from the store's own list
            num_rows += 1
            found.look(f"table {name}", line.decode("utf-8", "replace"))
    return num_rows


def look_at_logs(data_dir: Path, found: Found) -> int:
    """Look at all logs of the stack; the number of files."""
    files = sorted((data_dir / "logs").glob("*"))
    for file in files:
        found.look(f"log {file.name}", file.read_text(encoding="utf-8", errors="replace"))
    return len(files)


def look_at_metrics(gateway_url: str, found: Found) -> int:
    """Look at what the gateway's metrics page shows; the number of lines."""
    with urlopen(f"{gateway_url}/metrics", timeout=_METRICS_SECONDS) as answer:  # noqa: S310  # our own URL
        text = answer.read().decode("utf-8", "replace")
    found.look("metrics gateway", text)
    return len(text.splitlines())
