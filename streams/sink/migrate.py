"""Migrations: `migrations/NNNN_name.sql`, applied in order, recorded with their checksums.

Every statement may run twice (`IF NOT EXISTS`, `OR REPLACE`, `IF EXISTS`), so processes that start
at the same time need no lock, and one that dies half way is finished by the next. A migration that
was applied never changes: a different checksum is a ConfigError.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from schemas.clock import Clock, SystemClock
from schemas.errors import ConfigError, TransientError
from schemas.settings import Settings
from streams.sink.store import ClickHouseStore, Store, open_client

MIGRATIONS_TABLE = "schema_migrations"

_CREATE_MIGRATIONS_TABLE = f"""
CREATE TABLE IF NOT EXISTS {MIGRATIONS_TABLE}
(
    number UInt32 COMMENT 'number in the file name',
    name String COMMENT 'name in the file name',
    checksum String COMMENT 'SHA-256 of the file',
    applied_at DateTime64(6, 'UTC') COMMENT 'when it was applied last'
)
ENGINE = ReplacingMergeTree(applied_at)
ORDER BY (number, checksum)
COMMENT 'Which migrations were applied'
"""
_FILE_NAME = re.compile(r"(?P<number>\d{4})_(?P<name>[a-z0-9_]+)\.sql")
_END_OF_STATEMENT = re.compile(r";[ \t]*(?:\n|\Z)")
_DATABASE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_COMMENT_LINES = re.compile(r"^--[^\n]*\n?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Migration:
    """One file. `sql` is its whole text, comments included."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def statements(self) -> list[str]:
        """A statement ends with a semicolon at the end of a line."""
        parts = _END_OF_STATEMENT.split(_COMMENT_LINES.sub("", self.sql))
        return [part.strip() for part in parts if part.strip()]


def shipped() -> tuple[Migration, ...]:
    """The migrations of this version of headrace, in order."""
    entries = files("streams.sink").joinpath("migrations").iterdir()
    named = [(_FILE_NAME.fullmatch(entry.name), entry) for entry in entries]
    found = [Migration(int(m["number"]), m["name"], e.read_text()) for m, e in named if m]
    return tuple(sorted(found, key=lambda migration: migration.number))


def pending(
    migrations: Sequence[Migration], recorded: Sequence[tuple[int, str]]
) -> list[Migration]:
    """Those that are not recorded. `recorded` holds (number, checksum).

    ConfigError when a recorded one has changed, or when a newer headrace made the store.
    """
    by_number = {migration.number: migration for migration in migrations}
    for number, checksum in recorded:
        if number not in by_number:
            raise ConfigError(
                f"The store was made by a newer headrace: it holds migration {number:04d}, and "
                f"this version ends at {max(by_number, default=0):04d}. Upgrade this process."
            )
        migration = by_number[number]
        if migration.checksum != checksum:
            raise ConfigError(
                f"Migration {number:04d}_{migration.name} was changed after it was applied. "
                "Restore its text and put the change into a new migration."
            )
    applied = {number for number, _ in recorded}
    return [migration for migration in migrations if migration.number not in applied]


def migrate(store: Store, migrations: Sequence[Migration], clock: Clock) -> list[Migration]:
    """Bring the store's current database up to date; the migrations applied by this call."""
    store.command(_CREATE_MIGRATIONS_TABLE)
    missing = pending(migrations, recorded(store))
    for migration in missing:
        for statement in migration.statements:
            store.command(statement)
        _record(store, migration, clock)
    pending(migrations, recorded(store))  # another process may have applied another text meanwhile
    return missing


def recorded(store: Store) -> list[tuple[int, str]]:
    """Number and checksum of every migration that was applied."""
    rows = store.rows(f"SELECT DISTINCT number, checksum FROM {MIGRATIONS_TABLE} ORDER BY ALL")  # noqa: S608 - our own constant
    return [(int(number), str(checksum)) for number, checksum in rows]


def _record(store: Store, migration: Migration, clock: Clock) -> None:
    types = {
        "number": "UInt32",
        "name": "String",
        "checksum": "String",
        "applied_at": "DateTime64(6, 'UTC')",
    }
    row = [migration.number, migration.name, migration.checksum, clock.now()]
    store.insert(MIGRATIONS_TABLE, types, [row], f"{migration.number}-{migration.checksum}")


def open_migrated(
    settings: Settings,
    *,
    wait_seconds: float,
    pause: Callable[[float], None],
) -> tuple[ClickHouseStore, list[Migration]]:
    """A store whose database exists and is up to date, and what had to be applied.

    Waits up to about `wait_seconds` for a server that is not there yet; then ConfigError.
    """
    waited = 0.0
    while True:
        try:
            return _open_migrated(settings)
        except TransientError as error:
            if waited >= wait_seconds:
                where = settings.clickhouse
                raise ConfigError(
                    f"The store at {where.host}:{where.port} did not answer for "
                    f"{wait_seconds:.0f} s ({error}). Start it (`headrace up`) or correct "
                    "clickhouse.host and clickhouse.port."
                ) from None
            step = min(1.0, error.retry_after_seconds)
            pause(step)
            waited += step


def _open_migrated(settings: Settings) -> tuple[ClickHouseStore, list[Migration]]:
    database = settings.clickhouse.database
    if not _DATABASE_NAME.fullmatch(database):
        raise ConfigError(f"clickhouse.database {database!r} is no plain name of letters and _.")
    with_default = ClickHouseStore(open_client(settings))
    try:
        with_default.command(f"CREATE DATABASE IF NOT EXISTS {database}")
    finally:
        with_default.close()
    store = ClickHouseStore(open_client(settings, database=database))
    return store, migrate(store, shipped(), SystemClock())


def script(migrations: Sequence[Migration], database: str) -> str:
    """All DDL as one text that a person may run instead."""
    parts = [f"CREATE DATABASE IF NOT EXISTS {database};\nUSE {database};"]
    parts += [f"{_CREATE_MIGRATIONS_TABLE.strip()};"]
    parts += [f"-- {m.number:04d}_{m.name}\n{m.sql.strip()}" for m in migrations]
    return "\n\n".join(parts) + "\n"
