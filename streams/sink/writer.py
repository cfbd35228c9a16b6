"""Rows → store: one insert for each table of a batch; refused rows are found by halving it.

An insert carries a token made from the replay epoch of the sink and from the ids, versions and
coordinates of its rows. A batch that is written again after a crash repeats it. A replay does not,
even of rows that were deleted meanwhile: the engine would take them for a repetition and drop them.
"""

import hashlib
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from schemas import tables
from schemas.errors import ConfigError, PermanentError
from schemas.telemetry import Metrics
from streams.sink.rows import Row
from streams.sink.store import Store

#: More refused rows in one batch than this are no matter of rows: the schema must differ.
MAX_REFUSED = 64
_COORDINATES = ("topic", "partition", "offset")


@dataclass(slots=True)
class _Progress:
    refused: list[Row] = field(default_factory=list)


class Writer:
    """Writes batches into the stored tables of one database."""

    def __init__(self, store: Store, metrics: Metrics, replay_epoch: int = 0) -> None:
        """`replay_epoch` is the sink's own: that of a row tells of who made its event."""
        self._replay_epoch = replay_epoch
        self._store = store
        self._metrics = metrics
        self._types: dict[str, dict[str, str]] = {}

    def write(self, rows: Sequence[Row]) -> list[Row]:
        """Store the rows; those that the store refuses come back, the others are durable.

        TransientError: some may be stored, all may be written again. ConfigError: the tables are
        not as the migrations make them.
        """
        progress = _Progress()
        for table, group in _by_table(rows).items():
            before = len(progress.refused)
            self._insert(table, group, progress)
            num_written = len(group) - (len(progress.refused) - before)
            self._metrics.counter("headrace_sink_rows", table=table.name).inc(num_written)
        return progress.refused

    def _insert(self, table: tables.Table, rows: Sequence[Row], progress: _Progress) -> None:
        types = self._column_types(table, rows[0])
        values = list(map(operator.itemgetter(*types), [row.cells for row in rows]))
        try:
            with self._metrics.histogram("headrace_sink_insert_seconds", table=table.name).time():
                self._store.insert(table.log, types, values, token(rows, self._replay_epoch))
            self._metrics.histogram("headrace_sink_insert_rows", table=table.name).observe(
                len(rows)
            )
        except PermanentError:
            if len(rows) > 1:
                middle = len(rows) // 2
                self._insert(table, rows[:middle], progress)
                self._insert(table, rows[middle:], progress)
                return
            progress.refused.extend(rows)
            if len(progress.refused) > MAX_REFUSED:
                raise ConfigError(
                    f"The store refuses row after row of {table.log}. Compare its columns with "
                    "`headrace migrate --print`."
                ) from None

    def _column_types(self, table: tables.Table, row: Row) -> Mapping[str, str]:
        """Types of the columns that rows of this version have, as the store declares them."""
        if table.log not in self._types:
            declared = {
                str(name): str(type_)
                for name, type_ in self._store.rows(
                    "SELECT name, type FROM system.columns "
                    "WHERE database = currentDatabase() AND table = {table:String}",
                    {"table": table.log},
                )
            }
            missing = sorted(row.cells.keys() - declared.keys())
            if missing:
                raise ConfigError(
                    f"{table.log} lacks {', '.join(missing)}. Run `headrace migrate`."
                )
            self._types[table.log] = {name: declared[name] for name in row.cells}
        return self._types[table.log]


def _by_table(rows: Sequence[Row]) -> dict[tables.Table, list[Row]]:
    grouped: dict[tables.Table, list[Row]] = {}
    for row in rows:
        grouped.setdefault(row.table, []).append(row)
    return grouped


def token(rows: Sequence[Row], replay_epoch: int) -> str:
    """A deduplication token: equal for equal rows from the same records in the same processing."""
    digest = hashlib.sha256(f"{replay_epoch};".encode())
    for row in rows:
        where = ":".join(str(row.cells[f"kafka_{part}"]) for part in _COORDINATES)
        digest.update(f"{row.cells.get('tenant_id')}/{row.id}/{row.version:x}@{where};".encode())
    return digest.hexdigest()
