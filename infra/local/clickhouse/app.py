"""ClickHouse's HTTP interface: routes, and results sent while the engine still computes them."""

import asyncio
import json
import secrets
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import structlog
from aiohttp import web

from infra.local.clickhouse.body import Body, receive, receive_form
from infra.local.clickhouse.encoding import Encoder, choose_encoding, make_encoder
from infra.local.clickhouse.engine import Completed, Engine, Lease, Summary, insert, run, stream
from infra.local.clickhouse.errors import ClickHouseError
from infra.local.clickhouse.request import QueryRequest, parse_request
from infra.local.clickhouse.statement import Statement, parse
from infra.local.clickhouse.users import User, Users

log = structlog.get_logger("clickhouse")
T = TypeVar("T")

#: Queries beyond this many are refused, as a real server does.
MAX_CONCURRENT_QUERIES = 64
_NUM_THREADS = 16
_CONTENT_TYPES = {
    "JSON": "application/json; charset=UTF-8",
    "JSONEachRow": "application/x-ndjson; charset=UTF-8",
    "CSV": "text/csv; charset=UTF-8; header=absent",
    "CSVWithNames": "text/csv; charset=UTF-8; header=present",
    "Native": "application/octet-stream",
    "RowBinary": "application/octet-stream",
    "Parquet": "application/octet-stream",
    "ArrowStream": "application/octet-stream",
    "Arrow": "application/octet-stream",
}


@dataclass(frozen=True)
class Located:
    """A statement, the data that follows it in the URL, and where data begins in the body."""

    statement: Statement
    leading: bytes
    body_start: int


@dataclass(frozen=True)
class Work:
    """One request, ready for the engine."""

    user: User
    request: QueryRequest
    located: Located
    body: Body | None
    accept_encoding: str

    @property
    def result_format(self) -> str:
        """The format the answer is in."""
        return self.located.statement.output_format or self.request.default_format


class ClickHouseFront:
    """The handlers. `directory` holds bodies that are too large for memory."""

    def __init__(self, engine: Engine, users: Users, directory: Path, max_body_bytes: int) -> None:
        self._engine = engine
        self._users = users
        self._directory = directory
        self._max_body_bytes = max_body_bytes
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="engine")
        self._num_running = 0

    def make_app(self) -> web.Application:
        """The application with its routes."""
        app = web.Application()
        for path in ("/ping", "/replicas_status"):
            app.router.add_get(path, self.ok)
        app.router.add_get("/", self.query)
        app.router.add_post("/", self.query)
        return app

    async def ok(self, _: web.Request) -> web.Response:
        """Liveness: the engine is open before the server listens."""
        return web.Response(text="Ok.\n")

    async def query(self, http: web.Request) -> web.StreamResponse:
        """Any query or insert."""
        if http.method in {"GET", "HEAD"} and not http.query_string:
            return await self.ok(http)
        query_id = str(uuid.uuid4())
        if self._num_running >= MAX_CONCURRENT_QUERIES:
            return self._refuse(_too_many(), query_id)
        self._num_running += 1
        work: Work | None = None
        try:
            work = await self._read(http, query_id)
            return await self._answer(http, work)
        except ClickHouseError as error:
            # The sentence may quote the query, which may hold private text: log the name only.
            log.info("query refused", query_id=query_id, code=error.code, name=error.name)
            return self._refuse(error, query_id)
        finally:
            self._num_running -= 1
            if work is not None and work.body is not None:
                work.body.close()

    async def _read(self, http: web.Request, query_id: str) -> Work:
        fields = dict(http.query)
        user = self._users.authenticate(http.headers, fields)
        body: Body | None = None
        if http.content_type == "multipart/form-data":
            fields |= await receive_form(http, self._max_body_bytes)
        elif http.method == "POST":
            body = await receive(http, self._max_body_bytes, self._directory)
        try:
            request = parse_request(fields, http.headers, query_id)
            located = _locate(fields.get("query", ""), body)
            _permit(http.method, located.statement)
        except BaseException:
            if body is not None:
                body.close()
            raise
        accept = http.headers.get("Accept-Encoding", "") if request.compress_response else ""
        return Work(user, request, located, body, accept)

    async def _answer(self, http: web.Request, work: Work) -> web.StreamResponse:
        lease = await self._on_thread(
            lambda: self._engine.lease(
                work.request, user=work.user.name, readonly=work.user.readonly
            )
        )
        try:
            return await self._execute(http, work, lease)
        finally:
            await asyncio.shield(self._on_thread(lease.close))

    async def _execute(self, http: web.Request, work: Work, lease: Lease) -> web.StreamResponse:
        statement = _whole_statement(work) or work.located.statement
        if statement.insert_format is not None:
            chunks = _data_chunks(work)
            done = await self._on_thread(
                lambda: insert(lease.handle, statement, chunks, self._directory)
            )
        elif statement.streams_as(work.request.default_format):
            return await self._stream(http, work, lease)
        else:
            done = await self._on_thread(lambda: run(lease.handle, statement, work.request))
        return self._whole(work, done)

    def _whole(self, work: Work, done: Completed) -> web.Response:
        encoding = choose_encoding(work.accept_encoding) if done.body else None
        encoder = make_encoder(encoding)
        body = encoder.feed(done.body) + encoder.finish()
        return web.Response(body=body, headers=self._headers(work, done.summary, encoding))

    async def _stream(self, http: web.Request, work: Work, lease: Lease) -> web.StreamResponse:
        blocks = stream(lease.handle, work.located.statement, work.request)
        try:
            # Errors of planning and of the first block still become a proper status.
            first = await self._on_thread(lambda: next(blocks, None))
            encoding = choose_encoding(work.accept_encoding)
            tag = secrets.token_hex(8)
            headers = self._headers(work, Summary(), encoding)
            response = web.StreamResponse(headers={**headers, "X-ClickHouse-Exception-Tag": tag})
            await response.prepare(http)
            encoder = make_encoder(encoding)
            try:
                await self._send_blocks(response, encoder, first, blocks)
            except ClickHouseError as error:
                await response.write(encoder.feed(self._late_error(error, tag)) + encoder.finish())
                # No final chunk: also a client that knows nothing of tags sees a failure.
                if http.transport is not None:
                    http.transport.close()
            return response
        finally:
            await asyncio.shield(self._on_thread(blocks.close))

    async def _send_blocks(
        self,
        response: web.StreamResponse,
        encoder: Encoder,
        block: bytes | None,
        blocks: Iterator[bytes],
    ) -> None:
        while block is not None:
            if encoded := encoder.feed(block):
                await response.write(encoded)
            block = await self._on_thread(lambda: next(blocks, None))
        if last := encoder.finish():
            await response.write(last)
        await response.write_eof()

    def _late_error(self, error: ClickHouseError, tag: str) -> bytes:
        """The block by which ClickHouse 25.11 and newer tell an error inside a result."""
        message = error.text(self._engine.version)
        length = len(message.encode())
        return (
            f"\r\n__exception__\r\n{tag}\r\n{message}{length} {tag}\r\n__exception__\r\n".encode()
        )

    def _headers(self, work: Work, summary: Summary, encoding: str | None) -> dict[str, str]:
        headers = {
            "Content-Type": _CONTENT_TYPES.get(work.result_format, "text/plain; charset=UTF-8"),
            "X-ClickHouse-Server-Display-Name": "headrace",
            "X-ClickHouse-Query-Id": work.request.query_id,
            "X-ClickHouse-Timezone": self._engine.timezone,
            "X-ClickHouse-Summary": _summary_json(summary),
        }
        if work.located.statement.is_read:
            headers["X-ClickHouse-Format"] = work.result_format
        if encoding is not None:
            headers["Content-Encoding"] = encoding
        return headers

    def _refuse(self, error: ClickHouseError, query_id: str) -> web.Response:
        headers = {
            "X-ClickHouse-Exception-Code": str(error.code),
            "X-ClickHouse-Query-Id": query_id,
        }
        if error.status == 401:
            headers["WWW-Authenticate"] = 'Basic realm="ClickHouse server HTTP API"'
        text = error.text(self._engine.version)
        return web.Response(status=error.status, text=text, headers=headers)

    async def _on_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def _locate(in_url: str, body: Body | None) -> Located:
    """Find the statement in the URL or at the head of the body, and where its data lies."""
    head = body.head() if body is not None else b""
    try:
        if not in_url:
            statement = parse(head)
            return Located(statement, b"", statement.inline_data_at or 0)
        url = in_url.encode()
        statement = parse(url)
        if statement.insert_format is not None:
            return Located(statement, url[statement.inline_data_at :], 0)
        # As the server does: what the URL began, the body continues.
        return Located(parse(url + b"\n" + head) if head else statement, b"", 0)
    except UnicodeDecodeError:
        raise ClickHouseError(62, "SYNTAX_ERROR", "The statement is not valid UTF-8") from None


def _whole_statement(work: Work) -> Statement | None:
    """`INSERT … VALUES ({x:String})` has parameters among its data: only the parser can do that."""
    if not work.request.parameters or work.located.statement.insert_format != "Values":
        return None
    data = b"".join(_data_chunks(work)).decode(errors="strict")
    return replace(
        work.located.statement,
        text=f"{work.located.statement.text} VALUES {data}",
        insert_format=None,
    )


def _data_chunks(work: Work) -> Iterator[bytes]:
    """Rows to insert: first what follows the statement in the URL, then the body."""
    if work.located.leading:
        yield work.located.leading
    if work.body is not None:
        yield from work.body.chunks(work.located.body_start)


def _permit(method: str, statement: Statement) -> None:
    if statement.forbidden is not None:
        raise ClickHouseError(36, "BAD_ARGUMENTS", statement.forbidden)
    if method != "POST" and not statement.is_read:
        raise ClickHouseError(
            164, "READONLY",
            "Cannot execute query in readonly mode. For queries over HTTP, method GET implies "
            "readonly. You should use method POST for modifying queries.",
        )  # fmt: skip


def _too_many() -> ClickHouseError:
    return ClickHouseError(
        202, "TOO_MANY_SIMULTANEOUS_QUERIES",
        f"Too many simultaneous queries. Maximum: {MAX_CONCURRENT_QUERIES}",
    )  # fmt: skip


def _summary_json(summary: Summary) -> str:
    """All numbers are strings, as the server sends them."""
    return json.dumps(
        {
            "read_rows": str(summary.read_rows),
            "read_bytes": str(summary.read_bytes),
            "written_rows": str(summary.written_rows),
            "written_bytes": str(summary.written_bytes),
            "total_rows_to_read": "0",
            "result_rows": str(summary.written_rows),
            "result_bytes": str(summary.written_bytes),
            "elapsed_ns": str(summary.elapsed_ns),
        }
    )
