"""One request on its way: to the first upstream, or the first worker of a ring, that answers.

The next one is tried only while none has begun to answer, so a client sees one answer and the
record tells of one call, with the number of tries.
"""

import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import aiohttp

from inference.capture import headers
from inference.dialects.refusal import RefusedError
from inference.dialects.tokens import Asked, ask
from inference.routing.router import HOLD_SECONDS, Router
from inference.routing.table import Worker
from inference.upstreams.connections import Answer, StaleConnectionError, UnreachableError
from inference.upstreams.http import Upstream
from inference.upstreams.places import Place, base_of

#: Nothing came back: the connection was refused, or broke before an answer began.
_UNANSWERED = (
    UnreachableError, aiohttp.ConnectionTimeoutError, aiohttp.ServerDisconnectedError,
    aiohttp.ClientOSError,
)  # fmt: skip
_CANNOT_SERVE = 503
#: What an API says to a field that it does not know.
_REFUSES_FIELDS = frozenset({400, 422})
_TOO_MANY = 429
#: What an upstream says that does not answer now; another one may. 529 is Anthropic's.
_ELSEWHERE = frozenset({_TOO_MANY, 502, _CANNOT_SERVE, 504, 529})


class NoUpstreamError(ConnectionError):
    """Every upstream of the call was silent a moment ago and is left alone for a while."""


class Way:
    """An upstream that the call may go to, and the call's body with that upstream's fields, made
    when first asked for: most calls need that of one way only."""

    def __init__(
        self, place: Place, path: str, given: bytes, *, asks_usage: bool | None = None
    ) -> None:  # fmt: skip
        self.place = place
        #: Who is asked, in the record.
        self.name = place.name
        self._path, self._given = path, given
        self._asks_usage = place.asks_usage if asks_usage is None else asks_usage
        self._body: bytes | None = None

    def at(self, worker: Worker) -> "Way":
        """The same body to a worker of a ring."""
        there = copy.copy(self)
        there.place, there.name = (
            replace(self.place, base=base_of(worker.address)),
            worker.worker_id,
        )
        return there

    def without_usage(self) -> "Way":
        """The same without the field that its upstream refuses."""
        there = Way(self.place, self._path, self._given, asks_usage=False)
        there.name = self.name
        return there

    @cached_property
    def asked(self) -> Asked | None:
        """What the upstream is asked beside what the client asked."""
        tokens = self.place.asks_tokens
        return ask(self._path, self._given, tokens=tokens, usage=self._asks_usage)

    def body(self) -> bytes:
        """What it gets. RefusedError where the model's name cannot be replaced."""
        if self._body is None:
            given = self._given if self.asked is None else self.asked.body
            self._body = self.place.renamed(given)
        return self._body


class Sending:
    """Not for several calls. `call` is what all calls of a trajectory share. With a router the
    call goes to a worker of the ring, in the form of the only way."""

    def __init__(
        self, upstream: Upstream, router: Router | None, path: str, query: str, call: bytes,
        ways: Sequence[Way],
    ) -> None:  # fmt: skip
        self.path = path
        self.num_attempts = 0
        self._upstream, self._router = upstream, router
        self._target, self._call = f"{path}?{query}" if query else path, call
        self._ways = ways
        #: The one that answered, or that was tried last.
        self.way = ways[0]

    async def open(self, method: str, pairs: headers.Pairs) -> Answer:
        """The beginning of the answer. NoWorkerError where calls go to a ring and none answers,
        NoUpstreamError where all upstreams were silent of late."""
        if self._router is None:
            return await self._from_upstreams(method, pairs)
        return await self._from_ring(self._router, method, pairs)

    async def _from_upstreams(self, method: str, pairs: headers.Pairs) -> Answer:
        """Each upstream once, as long as the budget lasts."""
        breakers = self._upstream.breakers
        self._upstream.budget.call()
        ways = self._open_ways()
        way = next(ways, None)
        while way is not None:
            breakers.takes(way.place.base)
            try:
                answer = await self._send(way, method, pairs)
            except (*_UNANSWERED, TimeoutError):
                breakers.failed(way.place.base, answered=False)
                self._upstream.count(way.place, "unanswered")
                way = self._another(ways)
                if way is None:
                    raise
                continue
            is_refusal = self._is_refusal(way.place, answer.status)
            way = self._another(ways) if is_refusal else None
            if way is None:
                return answer
            answer.release()
        raise NoUpstreamError

    def _another(self, ways: Iterator[Way]) -> Way | None:
        """The next one that the call may be tried at."""
        way = next(ways, None)
        return way if way is not None and self._upstream.budget.take() else None

    def _is_refusal(self, place: Place, status: int) -> bool:
        """Whether another upstream may answer; and what the answer says of this one."""
        breakers, is_refusal = self._upstream.breakers, status in _ELSEWHERE
        self._upstream.count(place, "refused" if is_refusal else "answered")
        if not is_refusal:
            breakers.succeeded(place.base)
        elif status == _TOO_MANY:  # a limit of one key says nothing of the others
            breakers.spoke(place.base)
        else:
            breakers.failed(place.base, answered=True)
        return is_refusal

    def _open_ways(self) -> Iterator[Way]:
        """Those that answered of late, then those that at least say why they do not; without those
        whose name of the model the body cannot get."""
        breakers = self._upstream.breakers
        found = [way for way in self._ways if not breakers.is_open(way.place.base)]
        rest = [way for way in self._ways if way not in found]
        for way in (*found, *(way for way in rest if not breakers.is_silent(way.place.base))):
            try:
                way.body()
            except RefusedError:
                continue
            yield way

    async def _from_ring(self, router: Router, method: str, pairs: headers.Pairs) -> Answer:
        """Each worker once, also one that becomes able to answer while others fail."""
        [way] = self._ways
        tried: set[str] = set()
        until = time.monotonic() + HOLD_SECONDS
        while True:
            workers = await router.workers(self._call, tried, until)
            for number, worker in enumerate(workers, start=1):
                tried.add(worker.worker_id)
                try:
                    answer = await self._send(way.at(worker), method, pairs)
                except _UNANSWERED:
                    router.failed(worker)
                    continue
                if answer.status != _CANNOT_SERVE or number == len(workers):
                    return answer
                answer.release()  # its engine may not serve now, and says so; another one's may
                router.failed(worker)

    async def _send(self, way: Way, method: str, pairs: headers.Pairs) -> Answer:
        """What it answers. A field that it refuses is left out, once for all calls."""
        refuses = self._upstream.refuse_usage
        if way.asked is not None and way.asked.hides_usage and way.place.base in refuses:
            way = way.without_usage()
        answer = await self._try(way, method, pairs)
        if answer.status not in _REFUSES_FIELDS or way.asked is None or not way.asked.hides_usage:
            return answer
        if not self._upstream.budget.take():
            return answer
        answer.release()
        answer = await self._try(way.without_usage(), method, pairs)
        if answer.status not in _REFUSES_FIELDS:
            refuses.add(way.place.base)
        return answer

    async def _try(self, way: Way, method: str, pairs: headers.Pairs) -> Answer:
        """A kept-alive connection that turns out dead is tried once again."""
        self.way = way
        sent = way.place.headers(pairs if way.asked is None else headers.unencoded(pairs))
        call = (method, way.place.base, self._target, sent, way.body())
        self.num_attempts += 1
        try:
            return await self._upstream.send(*call)
        except StaleConnectionError:
            self.num_attempts += 1
            return await self._upstream.send(*call, fresh=True)
