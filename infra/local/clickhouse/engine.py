"""Handles on the engine that lives in this process.

Each request gets a handle of its own (about 1 ms): a call made on a handle whose result is still
being read returns an empty result without an error, and `USE` and `SET` stay on the handle.
A session keeps its handle between requests; only one request at a time may use it.

The functions here block; the app calls them on threads.
"""

import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from chdb.state.sqlitelike import Connection

from infra.local.clickhouse.errors import ClickHouseError, from_engine
from infra.local.clickhouse.request import QueryRequest, preamble, quote_name, quote_string
from infra.local.clickhouse.statement import Statement, reading_file
from schemas.errors import ConfigError

_MAX_SESSIONS = 1000


@dataclass(frozen=True)
class Summary:
    """What X-ClickHouse-Summary tells about a finished query."""

    read_rows: int = 0
    read_bytes: int = 0
    written_rows: int = 0
    written_bytes: int = 0
    elapsed_ns: int = 0


@dataclass(frozen=True)
class Completed:
    """A result held as a whole."""

    body: bytes
    summary: Summary


@dataclass
class _Session:
    handle: Connection
    expires_at: float
    lifetime_seconds: int
    busy: bool = False


@dataclass
class Lease:
    """A handle for one request. `close` must be called, on any outcome."""

    handle: Connection
    release: Callable[[], None]

    def close(self) -> None:
        """Give the handle back, or close it when it belongs to no session."""
        self.release()


@dataclass
class Engine:
    """The engine on one data directory. Refuses a directory that another process owns."""

    data_dir: Path
    clock: Callable[[], float] = time.monotonic
    version: str = ""
    timezone: str = ""
    _sessions: dict[str, _Session] = field(default_factory=dict)
    #: Leases are taken on several threads.
    _sessions_lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock_file = _lock(self.data_dir / ".lock")
        # As long as one handle is open the engine keeps running between requests.
        self._keeper = Connection(str(self.data_dir / "engine"))
        row = self._keeper.query("SELECT version(), timezone()", "TabSeparated").bytes().decode()
        self.version, self.timezone = row.strip().split("\t")

    def close(self) -> None:
        """End all sessions and the engine."""
        for session in self._sessions.values():
            session.handle.close()
        self._sessions.clear()
        self._keeper.close()
        os.close(self._lock_file)

    def lease(self, request: QueryRequest, *, user: str, readonly: bool) -> Lease:
        """A handle in the state that the request asks for. ClickHouseError when it cannot be.

        A read-only handle can never become writable again, so it belongs to no session.
        """
        if request.session_id is None or readonly or request.readonly:
            handle = Connection(str(self.data_dir / "engine"))
            lease = Lease(handle, handle.close)
            return _prepared(lease, preamble(request, readonly=readonly))
        with self._sessions_lock:
            lease = self._lease_session(f"{user}\0{request.session_id}", request)
        return _prepared(_restoring(lease, request), preamble(request, readonly=False))

    def _lease_session(self, key: str, request: QueryRequest) -> Lease:
        self._expire_sessions()
        session = self._sessions.get(key)
        if session is None:
            session = self._open_session(key, request)
        if session.busy:
            raise ClickHouseError(
                373, "SESSION_IS_LOCKED", "Session is locked by a concurrent client"
            )
        session.busy = True
        session.lifetime_seconds = request.session_seconds

        def release() -> None:
            session.busy = False
            session.expires_at = self.clock() + session.lifetime_seconds

        return Lease(session.handle, release)

    def _open_session(self, key: str, request: QueryRequest) -> _Session:
        if request.session_must_exist:
            raise ClickHouseError(372, "SESSION_NOT_FOUND", "Session not found")
        if len(self._sessions) >= _MAX_SESSIONS:
            raise ClickHouseError(
                202, "TOO_MANY_SIMULTANEOUS_QUERIES", f"{_MAX_SESSIONS} sessions are open already"
            )
        session = _Session(
            Connection(str(self.data_dir / "engine")),
            self.clock() + request.session_seconds,
            request.session_seconds,
        )
        self._sessions[key] = session
        return session

    def _expire_sessions(self) -> None:
        now = self.clock()
        for key, session in list(self._sessions.items()):
            if not session.busy and session.expires_at < now:
                session.handle.close()
                del self._sessions[key]


def _prepared(lease: Lease, statements: Iterable[str]) -> Lease:
    """The lease, after the statements; closed when one of them fails."""
    try:
        for statement in statements:
            lease.handle.query(statement, "Null")
    except RuntimeError as error:
        lease.close()
        raise from_engine(error) from error
    return lease


def _restoring(lease: Lease, request: QueryRequest) -> Lease:
    """A lease that takes back what the URL asked for: settings and database of a request hold
    for that request, while those that a statement sets hold for the session."""
    undo = []
    if request.database:
        undo.append(f"USE {quote_name(_one(lease.handle, 'SELECT currentDatabase()'))}")
    for name in request.settings:
        undo += _undo_setting(lease.handle, name)

    def release() -> None:
        for statement in undo:
            # Only a database that the request itself dropped cannot be gone back to.
            with suppress(RuntimeError):
                lease.handle.query(statement, "Null")
        lease.release()

    return Lease(lease.handle, release)


def _undo_setting(handle: Connection, name: str) -> list[str]:
    literal = quote_string(name)
    row = _one(handle, f"SELECT changed, value FROM system.settings WHERE name = {literal}")  # noqa: S608  # quoted
    changed, _, value = row.partition("\t")
    if not row:
        return []  # unknown: setting it will be refused
    return [f"SET {name} = {quote_string(value) if changed == '1' else 'DEFAULT'}"]


def _one(handle: Connection, query: str) -> str:
    answer: bytes = handle.query(query, "TabSeparatedRaw").bytes()
    return answer.decode().rstrip("\n")


def run(handle: Connection, statement: Statement, request: QueryRequest) -> Completed:
    """Execute and hold the whole result."""
    started = time.monotonic_ns()
    try:
        result = handle.query(
            statement.text, request.default_format, params=dict(request.parameters)
        )
        body = bytes(result.bytes())
    except RuntimeError as error:
        raise from_engine(error) from error
    return Completed(
        body,
        Summary(
            read_rows=result.storage_rows_read(),
            read_bytes=result.storage_bytes_read(),
            written_rows=result.rows_written(),
            written_bytes=result.bytes_written(),
            elapsed_ns=time.monotonic_ns() - started,
        ),
    )


def stream(
    handle: Connection, statement: Statement, request: QueryRequest
) -> Generator[bytes, None, None]:
    """Execute and yield the result block by block; the engine waits for the reader."""
    try:
        with handle.send_query(
            statement.text, request.default_format, params=dict(request.parameters)
        ) as result:
            for chunk in result:
                yield bytes(chunk.bytes())
    except RuntimeError as error:
        raise from_engine(error) from error


def insert(
    handle: Connection, statement: Statement, chunks: Iterable[bytes], directory: Path
) -> Completed:
    """Insert rows given in the statement's format. A row that cannot be parsed inserts nothing
    of its block; the count of rows written is the engine's own.

    The rows go through a file in `directory`: chDB's own `send_insert` reports success when the
    table refuses a block (a constraint, a failing expression), and the rows are lost.
    """
    started = time.monotonic_ns()
    with tempfile.NamedTemporaryFile(dir=directory, prefix="insert-") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        try:
            result = handle.query(reading_file(statement, file.name))
        except RuntimeError as error:
            raise from_engine(error) from error
    summary = Summary(
        written_rows=result.rows_written(),
        written_bytes=result.bytes_written(),
        elapsed_ns=time.monotonic_ns() - started,
    )
    return Completed(b"", summary)


def _lock(path: Path) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ConfigError(
            f"Another process serves {path.parent} already. One process owns a data directory: "
            "connect to that one over HTTP, or stop it, or choose another --data-dir."
        ) from None
    return handle
