"""How a call can end, and what each failure of an upstream means."""

from dataclasses import dataclass

import aiohttp

from inference.routing.router import NoWorkerError
from inference.spool import SpoolWriteError
from inference.upstreams.connections import UnreachableError
from inference.upstreams.sending import NoUpstreamError
from schemas.atdp.types import Outcome


@dataclass(frozen=True, slots=True)
class Ending:
    """How a call ended, and what the client is told where no answer has begun."""

    outcome: Outcome
    error_class: str | None = None
    status: int = 502
    message: str = ""
    retry_after_seconds: int | None = None


COMPLETE = Ending(Outcome.COMPLETE)
LEFT = Ending(Outcome.CLIENT_ABORTED, "client_left")
STOPPED = Ending(Outcome.GATEWAY_CRASHED, "gateway_stopped")
_SPOOL = Ending(
    Outcome.UPSTREAM_ERROR, "spool_write_failed", 503,
    "The gateway cannot record this call because its disk refuses writes. Free space under "
    "data_dir, or set gateway.when_spool_full to \"shed\" to relay without capture.",
)  # fmt: skip
_CONNECT = Ending(
    Outcome.UPSTREAM_ERROR, "connect_failed", 502,
    "The upstream cannot be reached. Check gateway.upstream.url, or the url of its table below "
    "gateway.upstreams, and that it is running.",
)  # fmt: skip
_CONNECT_SLOW = Ending(
    Outcome.TIMEOUT, "connect_timeout", 504,
    "The upstream did not accept a connection within gateway.upstream_connect_seconds.",
)  # fmt: skip
_STALL = Ending(
    Outcome.TIMEOUT, "stalled", 504,
    "The upstream sent nothing for gateway.upstream_stall_seconds. Try again, or raise it.",
)  # fmt: skip
_BROKEN = Ending(
    Outcome.UPSTREAM_ERROR, "connection_broken", 502,
    "The upstream's connection broke before it had answered. Try again.",
)  # fmt: skip
_NO_WORKER = Ending(
    Outcome.UPSTREAM_ERROR, "no_worker", 503,
    "No worker of the ring can answer with a version that it has proved. Try again soon; "
    "`headrace workers` shows them and why.", retry_after_seconds=2,
)  # fmt: skip
_SILENT = Ending(
    Outcome.UPSTREAM_ERROR, "upstream_left_alone", 503,
    "Nothing came back from the upstream of late, so it is left alone for "
    "gateway.breaker_seconds. Check that it is running, then try again.", retry_after_seconds=5,
)  # fmt: skip


def ending_of(error: BaseException) -> Ending:
    """The ending that a failure means."""
    if isinstance(error, SpoolWriteError):
        return _SPOOL
    if isinstance(error, NoWorkerError):
        return _NO_WORKER
    if isinstance(error, NoUpstreamError):
        return _SILENT
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return _CONNECT_SLOW
    if isinstance(error, TimeoutError):
        return _STALL
    if isinstance(error, UnreachableError):
        return _CONNECT
    return _BROKEN
