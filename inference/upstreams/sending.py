"""One request on its way: to the upstream, or to the first worker of a ring that answers.

The next worker is tried only while none has begun to answer, so a client sees one answer and the
record tells of one call, with the number of tries.
"""

import time

import aiohttp
from yarl import URL

from inference.capture import headers
from inference.routing.router import HOLD_SECONDS, Router
from inference.upstreams.http import StaleConnectionError, Upstream

#: Nothing came back: the connection was refused, or broke before an answer began.
_UNANSWERED = (
    aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ServerDisconnectedError,
    aiohttp.ClientOSError,
)  # fmt: skip
_CANNOT_SERVE = 503


class Sending:
    """Not for several calls. `call` is what all calls of a trajectory share."""

    def __init__(
        self, upstream: Upstream, router: Router | None, path: str, query: str, call: bytes
    ) -> None:
        self.path = path
        self.num_attempts = 0
        self._upstream, self._router = upstream, router
        self._query, self._call = query, call

    async def open(self, method: str, pairs: headers.Pairs, body: bytes) -> aiohttp.ClientResponse:
        """The beginning of the answer. NoWorkerError where calls go to a ring and none answers."""
        if self._router is None:
            target = self._upstream.target(self.path, self._query)
            return await self._send(method, target, pairs, body)
        return await self._from_ring(self._router, method, pairs, body)

    async def _from_ring(
        self, router: Router, method: str, pairs: headers.Pairs, body: bytes
    ) -> aiohttp.ClientResponse:
        """Each worker once, also one that becomes able to answer while others fail."""
        tried: set[str] = set()
        until = time.monotonic() + HOLD_SECONDS
        while True:
            workers = await router.workers(self._call, tried, until)
            for number, worker in enumerate(workers, start=1):
                tried.add(worker.worker_id)
                target = self._upstream.target(self.path, self._query, worker.address)
                try:
                    answer = await self._send(method, target, pairs, body)
                except _UNANSWERED:
                    router.failed(worker)
                    continue
                if answer.status != _CANNOT_SERVE or number == len(workers):
                    return answer
                answer.release()  # its engine may not serve now, and says so; another one's may
                router.failed(worker)

    async def _send(
        self, method: str, target: URL, pairs: headers.Pairs, body: bytes
    ) -> aiohttp.ClientResponse:
        """A kept-alive connection that turns out dead is tried once again."""
        self.num_attempts += 1
        try:
            return await self._upstream.send(method, target, pairs, body)
        except StaleConnectionError:
            self.num_attempts += 1
            return await self._upstream.send_fresh(method, target, pairs, body)
