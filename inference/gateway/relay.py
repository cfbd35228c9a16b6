"""Relays one HTTP call, byte for byte, and records it on the way.

    client ──request──▶ BEGIN in the spool ──▶ upstream
    client ◀──chunk──── CHUNK in the spool ◀── upstream

Every byte is in the spool before it is released. A call ends in exactly one outcome, whoever
ends it: the client leaves, the upstream fails or stalls, or the gateway is told to stop.
"""

import asyncio
import time
from collections.abc import Callable

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from inference.capture import headers
from inference.capture.identity import Identity
from inference.capture.proof import VERSION, Proof, proof_of
from inference.capture.recorder import Capture
from inference.dialects.errors import error_body
from inference.dialects.tokens import View, view_of, view_of_error
from inference.spool import SpoolWriteError
from inference.upstreams.connections import Answer
from inference.upstreams.endings import COMPLETE, LEFT, STOPPED, Ending, ending_of
from inference.upstreams.http import Upstream
from inference.upstreams.sending import Sending
from schemas.atdp.types import TrajectorySource

_STEP = f"{headers.OURS}step-id"
_TRAJECTORY = f"{headers.OURS}trajectory-id"
_OVERHEAD = f"{headers.OURS}overhead-us"
#: When the request came, on `time.perf_counter`.
ARRIVED_AT = web.RequestKey("arrived_at", float)


class _WholeAnswer(web.StreamResponse):
    """An answer of known length: its head leaves together with its first bytes, in one write."""

    _send_headers_immediately = False


class _ClientLeftError(Exception):
    """The client's connection is gone and the setting says to stop with it."""


class Relay:
    """One call on its way. `run` is a task of its own, so that it outlives its client."""

    def __init__(
        self,
        request: web.Request,
        sending: Sending,
        identity: Identity,
        capture: Capture,
        upstream: Upstream,
        on_end: Callable[[Ending, float | None], None],
    ) -> None:
        self._request = request
        self._view: View | None = None
        self._sending = sending
        self._identity = identity
        self._capture = capture
        self._upstream = upstream
        self._on_end = on_end
        self._arrived_at = request[ARRIVED_AT]
        self._upstream_seconds = 0.0
        self._response: web.StreamResponse | None = None
        self._overhead_seconds: float | None = None
        self._drain_until: float | None = None
        #: Since when a write has waited for the client to read; None while none does.
        self._writing_since: float | None = None
        self.is_stopping = False

    def client_left(self, task: asyncio.Task[web.StreamResponse]) -> None:
        """Stop with the client, or go on reading for the record, as the setting says."""
        settings = self._upstream.settings
        if settings.when_client_leaves == "abort" or self.is_stopping:
            task.cancel()
        else:
            self._drain_until = time.monotonic() + settings.upstream_stall_seconds

    def end_if_stalled(self) -> None:
        """End the connection of a client that reads nothing, which then counts as one that left."""
        since, transport = self._writing_since, self._request.transport
        limit = self._upstream.settings.client_idle_seconds
        if since is not None and transport is not None and time.monotonic() - since > limit:
            transport.abort()

    async def run(self) -> web.StreamResponse:
        """Relay until the end; the response, already sent, or the error the client gets."""
        ending = STOPPED
        try:
            await self._relay()
            ending = COMPLETE if self._drain_until is None else LEFT
        except asyncio.CancelledError:
            ending = STOPPED if self.is_stopping else LEFT
            raise
        except _ClientLeftError:
            ending = LEFT
        except (aiohttp.ClientError, TimeoutError, OSError, SpoolWriteError) as error:
            ending = ending_of(error)
        finally:
            answered = self._response is not None
            failed = ending not in (COMPLETE, LEFT)
            status = ending.status if failed and not answered else None
            attempts = self._sending.num_attempts
            self._capture.extras_shown = self._view is not None and self._view.has_shown
            self._capture.asked_at(self._sending.way.name, self._sending.way.asked)
            self._capture.end(ending.outcome, ending.error_class, attempts, status)
            self._on_end(ending, self._overhead_seconds)
        return self._finish(ending)

    async def _relay(self) -> None:
        sent_at = time.perf_counter()
        async with await self._open() as answer:
            self._upstream_seconds = time.perf_counter() - sent_at
            pairs = list(answer.headers.items())
            proof, way = proof_of(answer.headers), self._sending.way
            self._capture.asked_at(way.name, way.asked)
            self._capture.head(answer.status, headers.for_record(pairs), proof)
            view = view_of(way.asked, answer.status, answer.headers)
            if view is None and way.place.asks_tokens:  # an engine of our own
                view = view_of_error(self._sending.path, answer.status, answer.headers)
            self._view = view
            if view is None or view.is_stream:
                await self._begin_answer(answer, headers.for_client(pairs), proof)
            async for data in answer.content.iter_any():
                self._capture.chunk(data)
                await self._release(data if view is None else view.feed(data))
                if self._drain_until is not None and time.monotonic() > self._drain_until:
                    raise _ClientLeftError
            rest = b"" if view is None else view.finish()
            if self._response is None:  # its length was not known before
                self._upstream_seconds = time.perf_counter() - sent_at
                await self._begin_answer(answer, headers.for_client(pairs, len(rest)), proof)
            await self._release(rest)
            if self._drain_until is None:
                await self._release(b"", is_last=True)

    async def _open(self) -> Answer:
        """Send the request."""
        return await self._sending.open(self._request.method, list(self._request.headers.items()))

    async def _begin_answer(self, answer: Answer, pairs: headers.Pairs, proof: Proof) -> None:
        added = [(_STEP, self._identity.step_id)]
        if self._identity.trajectory_source is not TrajectorySource.NONE:
            added.append((_TRAJECTORY, self._identity.trajectory_id or ""))
        if proof.policy_version is not None:
            added.append((VERSION, str(proof.policy_version)))
        elapsed = time.perf_counter() - self._arrived_at
        self._overhead_seconds = max(0.0, elapsed - self._upstream_seconds)
        added.append((_OVERHEAD, str(int(self._overhead_seconds * 1e6))))
        # A stream's head leaves at once: the first token may be a long time coming.
        kind = web.StreamResponse if answer.content_length is None else _WholeAnswer
        response = kind(
            status=answer.status, reason=answer.reason, headers=CIMultiDict(pairs + added)
        )
        self._response = response
        if self._drain_until is None:
            await self._guarded(response.prepare(self._request))

    async def _release(self, data: bytes, *, is_last: bool = False) -> None:
        if self._drain_until is not None or not (data or is_last):
            return
        assert self._response is not None
        await self._guarded(self._response.write_eof() if is_last else self._response.write(data))

    async def _guarded(self, writing: "asyncio.Future[None] | object") -> None:
        """Tell a client that left from an upstream that broke: both raise the same error."""
        self._writing_since = time.monotonic()
        try:
            await writing  # type: ignore[misc]
            self._writing_since = None
        except (ConnectionResetError, BrokenPipeError):
            if self._upstream.settings.when_client_leaves == "abort":
                raise _ClientLeftError from None
            self._drain_until = time.monotonic() + self._upstream.settings.upstream_stall_seconds

    def _finish(self, ending: Ending) -> web.StreamResponse:
        if self._response is None:
            added = {_STEP: self._identity.step_id}
            if ending.retry_after_seconds is not None:
                added["Retry-After"] = str(ending.retry_after_seconds)
            body = error_body(
                self._sending.path, ending.status, ending.error_class or "", ending.message
            )
            return web.Response(
                status=ending.status, body=body, content_type="application/json", headers=added
            )
        transport = self._request.transport
        if ending is not COMPLETE and transport is not None:
            # The answer must not look finished: no last chunk, no missing rest. Closing waits for
            # what the client has not read yet, but not for ever.
            transport.close()
            seconds = self._upstream.settings.client_idle_seconds
            asyncio.get_running_loop().call_later(seconds, transport.abort)
        return self._response
