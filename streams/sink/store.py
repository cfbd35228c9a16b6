"""The ClickHouse client, with its errors translated into the outcomes of headrace.

TransientError                   the store is away, overloaded, or says nothing we know
PermanentError(STORE_REFUSED)    a row in the insert cannot be stored as it is
ConfigError                      wrong password, missing right, missing database or table
"""

import logging
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import clickhouse_connect
from clickhouse_connect.driver import options
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import (
    ClickHouseError,
    DataError,
    Error,
    StreamFailureError,
)

from schemas.errors import ConfigError, HeadraceError, PermanentError, Reason, TransientError
from schemas.settings import ClickHouseSettings, Settings

#: ClickHouse's numeric codes that concern the rows of an insert and nothing else.
_REFUSES_ROWS = frozenset(
    {
        6, 26, 27, 38, 41, 72,  # CANNOT_PARSE_TEXT, QUOTED_STRING, INPUT, DATE, DATETIME, NUMBER
        53, 69, 70, 117,  # TYPE_MISMATCH, OUT_OF_BOUND, CANNOT_CONVERT_TYPE, INCORRECT_DATA
        131, 190,  # TOO_LARGE_STRING_SIZE, SIZES_OF_ARRAYS_DONT_MATCH
        321, 349, 469,  # VALUE_IS_OUT_OF_RANGE, CANNOT_INSERT_NULL, VIOLATED_CONSTRAINT
    }
)  # fmt: skip
#: Codes that only a change of configuration, rights or schema can heal.
_NEEDS_A_PERSON = {
    8: "a column is missing; run `headrace migrate`",
    16: "a column is missing; run `headrace migrate`",
    60: "a table is missing; run `headrace migrate`",
    81: "the database is missing; run `headrace migrate`",
    164: "the user may only read; set clickhouse.user to one that may write",
    192: "there is no such user; correct clickhouse.user",
    193: "the password is wrong; correct clickhouse.password_file",
    194: "a password is needed; set clickhouse.password_file",
    497: "the user lacks a right; grant it, or set clickhouse.user to another one",
    516: "user or password are wrong; correct clickhouse.user and clickhouse.password_file",
}
# The library logs values that it cannot write; whose record it was is told without them.
logging.getLogger("clickhouse_connect").setLevel(logging.CRITICAL)

_CONNECT_SECONDS = 5
_REQUEST_SECONDS = 120
_OVERLOADED_SECONDS = 5.0
_TOO_MANY_PARTS = 252


class Store(Protocol):
    """What the sink needs of a store."""

    def command(self, sql: str, parameters: Mapping[str, Any] | None = None) -> None:
        """Run a statement that returns nothing."""

    def rows(
        self, sql: str, parameters: Mapping[str, Any] | None = None
    ) -> Sequence[Sequence[Any]]:
        """All rows of a small result."""

    def insert(
        self, table: str, types: Mapping[str, str], rows: Sequence[Sequence[Any]], token: str
    ) -> None:
        """Insert rows whose values are in the order of `types` (column → type).

        The same token with the same rows leaves one copy. PermanentError: some row is refused and
        none is stored.
        """

    def close(self) -> None: ...


def translate(error: Exception) -> HeadraceError:
    """The outcome that an error of the client library means for us. Holds no text of a row."""
    code = error.code if isinstance(error, Error) else None
    if isinstance(error, DataError) and code is None:
        return PermanentError(Reason.STORE_REFUSED)  # the client itself could not write the value
    if code in _REFUSES_ROWS:
        return PermanentError(Reason.STORE_REFUSED)
    if code in _NEEDS_A_PERSON:
        return ConfigError(f"ClickHouse (code {code}): {_NEEDS_A_PERSON[code]}.")
    if code == _TOO_MANY_PARTS:
        return TransientError(
            "ClickHouse has too many parts to merge.", retry_after_seconds=_OVERLOADED_SECONDS
        )
    name = error.name if isinstance(error, Error) and error.name else type(error).__name__
    return TransientError(f"ClickHouse: {name}{f' (code {code})' if code else ''}.")


def open_client(settings: Settings, *, database: str | None = None) -> Client:
    """A connection; `database` None is the server's default one. Raises as `translate` says, and
    ConfigError for a certificate that is not trusted or a port that speaks no TLS."""
    where = settings.clickhouse
    if where.ca_file is not None and not where.ca_file.is_file():
        raise ConfigError(f"clickhouse.ca_file names {where.ca_file}, which is no file.")
    with _tls_explained(where), _translated():
        client: Client = clickhouse_connect.get_client(
            host=where.host,
            port=where.port,
            username=where.user,
            password=settings.clickhouse_password,
            database=database or "__default__",
            interface="https" if where.secure else "http",
            ca_cert=None if where.ca_file is None else str(where.ca_file),
            client_name="headrace",
            connect_timeout=_CONNECT_SECONDS,
            send_receive_timeout=_REQUEST_SECONDS,
            query_retries=0,
            # Requests of one session may not overlap; ours do and need nothing of a session.
            autogenerate_session_id=False,
        )
    return client


def leave_data_frames_out() -> None:
    """The client library loads pandas and numpy at its first insert, where they are installed, to
    see whether rows are a data frame or an array. Ours never are, and they take 70 and 20 MB."""
    options.pd = options.np = None
    options.pd_time_test = None


class ClickHouseStore:
    """A store on a ClickHouse server, by its HTTP interface."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def command(self, sql: str, parameters: Mapping[str, Any] | None = None) -> None:
        with _translated():
            self._client.command(sql, parameters=dict(parameters or {}))

    def rows(
        self, sql: str, parameters: Mapping[str, Any] | None = None
    ) -> Sequence[Sequence[Any]]:
        with _translated():
            result: Sequence[Sequence[Any]] = self._client.query(
                sql, parameters=dict(parameters or {})
            ).result_rows
        return result

    def insert(
        self, table: str, types: Mapping[str, str], rows: Sequence[Sequence[Any]], token: str
    ) -> None:
        with _translated():
            summary = self._client.insert(
                table,
                rows,
                column_names=list(types),
                column_type_names=list(types.values()),
                settings={"insert_deduplication_token": token},
            )
        written = int(summary.written_rows)  # counts rows of a known token as well
        if written != len(rows):
            raise TransientError(f"ClickHouse wrote {written} of {len(rows)} rows.")

    def close(self) -> None:
        self._client.close()


@contextmanager
def _tls_explained(where: ClickHouseSettings) -> Iterator[None]:
    """At a start nobody but a person can mend the trust between the two."""
    try:
        yield
    except TransientError as error:
        cause = next((e for e in _causes(error) if isinstance(e, ssl.SSLError)), None)
        server = f"{where.host}:{where.port}"
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise ConfigError(
                f"The certificate of the store at {server} is not trusted: no known authority "
                "signed it, or it names another host. Set clickhouse.ca_file to the authority's "
                "certificate (PEM), or correct clickhouse.host."
            ) from None
        if cause is not None and cause.reason == "WRONG_VERSION_NUMBER":
            raise ConfigError(
                f"The store at {server} speaks no TLS. Set clickhouse.secure to false, or "
                "clickhouse.port to its TLS port (often 8443)."
            ) from None
        raise


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (ClickHouseError, StreamFailureError) as error:
        raise translate(error) from None
    except (UnicodeEncodeError, OverflowError):
        # A value that the client cannot write: a lone surrogate, a number that does not fit.
        raise PermanentError(Reason.STORE_REFUSED) from None
