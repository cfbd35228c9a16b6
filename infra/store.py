"""A reader's connection to the store, with sentences instead of stack traces.

Reading commands use the local stack's read-only user where it exists, and ask any other server
to treat the request as read-only.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from urllib3.exceptions import HTTPError

from infra.local.launch import find_settings
from schemas.errors import ConfigError, TransientError
from schemas.settings import Settings
from schemas.tables import TABLES

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

_READ_ONLY_USER = "headrace_ro"
_SENTENCE = re.compile(r"DB::Exception:\s*(?P<text>.*)", re.DOTALL)
_TRAILER = re.compile(r"\s*\(version [^()]*(?:\([^()]*\)[^()]*)*\).*", re.DOTALL)
#: Codes of a store that is busy or broken rather than of a wrong question.
_NOT_THE_QUESTION = frozenset({159, 202, 209, 210, 241, 243, 252, 999})
_UNKNOWN_TABLE = 60
_CHUNK_BYTES = 256 * 1024


class Reader:
    """Runs SELECTs. Raises ConfigError with ClickHouse's own sentence for a query it refuses."""

    def __init__(self, client: "Client", address: str) -> None:
        self._client = client
        self._address = address
        self._settings = _read_only_settings(client)

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """All rows of a small result, as column → value. Times are aware UTC."""
        with self._sentences():
            result = self._client.query(
                sql, parameters=dict(parameters or {}), settings=self._settings, tz_mode="aware"
            )
            return [dict(zip(result.column_names, row, strict=True)) for row in result.result_rows]

    def blocks(self, sql: str) -> Iterator[tuple[list[str], list[tuple[Any, ...]]]]:
        """Column names and rows, block by block, so that a reader may stop early."""
        with (
            self._sentences(),
            self._client.query_row_block_stream(
                sql, settings=self._settings, tz_mode="aware"
            ) as stream,
        ):
            names = list(stream.source.column_names)
            yield names, []
            for block in stream:
                yield names, [tuple(row) for row in block]

    def lines(
        self, sql: str, format_name: str, parameters: Mapping[str, Any] | None = None
    ) -> Iterator[bytes]:
        """The result in a ClickHouse text format, line by line, as it arrives."""
        with self._sentences():
            stream: Any = self._client.raw_stream(
                sql,
                parameters=dict(parameters or {}),
                settings=self._settings,
                fmt=format_name,
            )
            rest = b""
            while chunk := stream.read(_CHUNK_BYTES):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield _checked(line)
            if rest:
                yield _checked(rest)

    def tables(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Iterator[Any]:
        """The result as pyarrow tables; an empty result as one table without rows."""
        import pyarrow

        arguments: Any = {"parameters": dict(parameters or {}), "settings": self._settings}
        with self._sentences():
            num_tables = 0
            with self._client.query_arrow_stream(sql, **arguments) as stream:
                for batch in stream:
                    num_tables += 1
                    yield pyarrow.Table.from_batches([batch])
            if not num_tables:
                yield self._client.query_arrow(sql, **arguments)

    def close(self) -> None:
        """Give the connection back."""
        self._client.close()

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        from clickhouse_connect.driver.exceptions import ClickHouseError

        try:
            yield
        except ClickHouseError as error:
            raise explain(error, self._address) from None
        except (HTTPError, OSError) as error:
            raise TransientError(
                f"The answer of the store at {self._address} broke off "
                f"({type(error).__name__}); what was printed is not complete. Run it again."
            ) from None


@contextmanager
def open_reader(data_dir: Path | None = None) -> Iterator[Reader]:
    """A reader of the configured store, or of the local stack in `data_dir`."""
    settings = find_settings(data_dir)
    address = f"{settings.clickhouse.host}:{settings.clickhouse.port}"
    reader = Reader(_connect(_as_reader(settings), address), address)
    try:
        yield reader
    finally:
        reader.close()


def explain(error: Exception, address: str) -> ConfigError | TransientError:
    """What to do about an error of the client library."""
    code = getattr(error, "code", None)
    sentence = _SENTENCE.search(str(error))
    if code is None and sentence is None:
        return TransientError(
            f"The store at {address} cannot be reached. Run `headrace up`, or correct "
            "clickhouse.host and clickhouse.port."
        )
    text = _TRAILER.sub("", sentence["text"] if sentence else str(error)).strip()
    if code == _UNKNOWN_TABLE and any(f"'{table.name}'" in text for table in TABLES):
        text += " `headrace migrate` makes the tables."
    if code in _NOT_THE_QUESTION:
        return TransientError(f"ClickHouse: {text}")
    return ConfigError(f"ClickHouse: {text}")


def _connect(settings: Settings, address: str) -> "Client":
    from streams.sink.store import open_client

    try:
        return open_client(settings, database=settings.clickhouse.database)
    except TransientError:
        raise TransientError(
            f"The store at {address} cannot be reached. Run `headrace up`, or correct "
            "clickhouse.host and clickhouse.port."
        ) from None


def _as_reader(settings: Settings) -> Settings:
    """The local stack's read-only user, unless settings name a user or a password."""
    password = settings.data_dir / "secrets" / "clickhouse-ro"
    if settings.clickhouse.model_fields_set & {"user", "password_file"} or not password.exists():
        return settings
    update = {"user": _READ_ONLY_USER, "password_file": password}
    return settings.model_copy(update={"clickhouse": settings.clickhouse.model_copy(update=update)})


def _read_only_settings(client: "Client") -> dict[str, Any]:
    """`readonly = 2` allows settings and refuses writes; a user who is bound already needs none."""
    bound = client.query("SELECT value FROM system.settings WHERE name = 'readonly'").result_rows
    return {} if bound and bound[0][0] != "0" else {"readonly": "2"}


def _checked(line: bytes) -> bytes:
    """Refuse the note by which a server ends a result that it cannot complete."""
    if line.startswith((b"__exception__", b"Code: ")) and b"DB::Exception" in line:
        raise ConfigError(f"ClickHouse: {line.decode(errors='replace').strip()}")
    if line.startswith(b"__exception__"):
        raise TransientError("ClickHouse could not complete the result. Run it again.")
    return line
