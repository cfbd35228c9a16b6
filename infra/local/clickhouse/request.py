"""What an HTTP request asks of the engine."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.local.clickhouse.errors import ClickHouseError

#: Parameters of the HTTP interface itself; the engine would refuse them as unknown settings.
_TRANSPORT = """
    query database user password quota_key session_id session_timeout session_check query_id
    compress decompress default_format stacktrace buffer_size wait_end_of_query role readonly
    client_protocol_version enable_http_compression http_zlib_compression_level
    send_progress_in_http_headers add_http_cors_header http_headers_progress_interval_ms
    cancel_http_readonly_queries_on_client_close
    """.split()  # noqa: SIM905  # a list of one name a line is harder to read
_SETTING_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_MAX_SESSION_SECONDS = 3600
_DEFAULT_SESSION_SECONDS = 60


@dataclass(frozen=True)
class QueryRequest:
    """Everything but the statement and its data."""

    database: str | None = None
    default_format: str = "TabSeparated"
    query_id: str = ""
    session_id: str | None = None
    session_seconds: int = _DEFAULT_SESSION_SECONDS
    session_must_exist: bool = False
    readonly: bool = False
    compress_response: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    #: Escaped as in TabSeparated, which is what both the interface and chDB take.
    parameters: Mapping[str, str] = field(default_factory=dict)


def parse_request(
    fields: Mapping[str, str], headers: Mapping[str, str], query_id: str
) -> QueryRequest:
    """Read URL (and form) fields and headers. ClickHouseError for what cannot be served."""
    if fields.get("compress", "0") != "0" or fields.get("decompress", "0") != "0":
        raise ClickHouseError(
            48, "NOT_IMPLEMENTED",
            "ClickHouse's own block compression is not served here; set compress=0 in the client "
            "or use HTTP compression (enable_http_compression=1)",
        )  # fmt: skip
    settings = {
        name: value
        for name, value in fields.items()
        if name not in _TRANSPORT and not name.startswith("param_")
    }
    for name in settings:
        if not _SETTING_NAME.fullmatch(name):
            raise ClickHouseError(115, "UNKNOWN_SETTING", f"Unknown setting '{name[:60]}'")
    return QueryRequest(
        database=fields.get("database") or headers.get("X-ClickHouse-Database") or None,
        default_format=fields.get("default_format")
        or headers.get("X-ClickHouse-Format")
        or "TabSeparated",
        query_id=fields.get("query_id") or query_id,
        session_id=fields.get("session_id") or None,
        session_seconds=_session_seconds(fields.get("session_timeout")),
        session_must_exist=fields.get("session_check", "0") == "1",
        readonly=fields.get("readonly", "0") not in {"0", ""},
        compress_response=fields.get("enable_http_compression", "0") == "1",
        settings=settings,
        parameters={
            name.removeprefix("param_"): value
            for name, value in fields.items()
            if name.startswith("param_")
        },
    )


def _session_seconds(text: str | None) -> int:
    if text is None:
        return _DEFAULT_SESSION_SECONDS
    if not text.isdecimal() or int(text) > _MAX_SESSION_SECONDS:
        raise ClickHouseError(
            374, "INVALID_SESSION_TIMEOUT",
            f"session_timeout must be a number of seconds up to {_MAX_SESSION_SECONDS}",
        )  # fmt: skip
    return int(text)


def quote_string(text: str) -> str:
    """A SQL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def quote_name(text: str) -> str:
    """A SQL identifier."""
    escaped = text.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def preamble(request: QueryRequest, *, readonly: bool) -> list[str]:
    """Statements that put a fresh handle into the state the request asks for.

    Settings come first: after `readonly = 1` nothing can be set any more, `readonly` included.
    """
    statements = []
    if request.database:
        statements.append(f"USE {quote_name(request.database)}")
    if request.settings:
        assignments = ", ".join(f"{k} = {quote_string(v)}" for k, v in request.settings.items())
        statements.append(f"SET {assignments}")
    if readonly or request.readonly:
        statements.append("SET readonly = 1")
    return statements
