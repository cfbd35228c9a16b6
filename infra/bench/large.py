"""A body of 20 MB through the gateway: how long it takes, and that its memory comes back."""

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.request import urlopen

from infra.bench.figures import Figure, Section, difference, milliseconds, quantile
from infra.bench.gateway import CALLS, connection_of
from infra.bench.load import Samples, Target, in_turn
from infra.bench.stack import Bench
from infra.bench.texts import prose, request_body
from infra.bench.usage import peak_bytes, resident_bytes
from schemas.errors import TransientError

NUM_BYTES = 20 * 1000**2
_MIB = 1024**2
#: What a heap may keep by its own fragmentation: less than two of the bodies.
_MAX_KEPT_MIB = 32.0
_SETTLE_SECONDS = 60.0
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Memory:
    """Bytes that the gateway held before the bodies, ever, and when all was on Kafka."""

    before: int
    most: int
    after: int


def large_figures(
    direct: Sequence[float], through: Sequence[float], memory: Memory
) -> tuple[Figure, ...]:
    """Pure: samples → figures."""
    own, ours = quantile(direct, 0.5), quantile(through, 0.5)
    kept = (memory.after - memory.before) / _MIB
    return (
        Figure("20 MB, direct, p50", milliseconds(own), "ms"),
        Figure("20 MB, through the gateway, p50", milliseconds(ours), "ms", 250.0),
        Figure("20 MB, added, p50", milliseconds(difference(ours, own)), "ms"),
        Figure("memory of the gateway before", memory.before / _MIB, "MiB"),
        Figure("memory of the gateway, most", memory.most / _MIB, "MiB"),
        Figure("memory that did not come back", kept, "MiB", _MAX_KEPT_MIB),
    )


def measure_large(bench: Bench, key: str, number: int) -> Section:
    """One body after the other, direct and through the gateway."""
    samples, memory = asyncio.run(_measure(bench, key, number))
    return Section(
        "large",
        "Gateway: a body of 20 MB",
        large_figures(samples["direct"].last, samples["gateway"].last, memory),
        f"{number} requests of 20 MB in turn, with capture; the answer is short. Memory is that of "
        "the process: before (after one such body), at most, and once all of it has gone on to the "
        "blob store and Kafka.",
    )


async def _measure(bench: Bench, key: str, number: int) -> tuple[dict[str, Samples], Memory]:
    pid = bench.pids()["gateway"]
    targets = [
        Target(name, connection_of(bench, key, name), CALLS) for name in ("direct", "gateway")
    ]
    body = request_body(prose(random.Random(31), 100_000) * (NUM_BYTES // 100_000))
    await in_turn(targets, [body])  # warm
    await asyncio.to_thread(_until_delivered, bench)
    before = resident_bytes(pid)
    samples = await in_turn(targets, [body] * number)
    await asyncio.to_thread(_until_delivered, bench)
    for target in targets:
        target.connection.close()
    return samples, Memory(before, peak_bytes(pid), resident_bytes(pid))


def _until_delivered(bench: Bench) -> None:
    """Until nothing waits in the spool any more. TransientError where that does not come."""
    gateway = bench.settings.gateway
    deadline = time.monotonic() + _SETTLE_SECONDS
    while _num_waiting(f"http://{gateway.host}:{gateway.port}/health"):
        if time.monotonic() > deadline:
            raise TransientError("The spool of the gateway does not empty. Its log says why.")
        time.sleep(_POLL_SECONDS)


def _num_waiting(url: str) -> int:
    try:
        with urlopen(url, timeout=5) as answer:  # noqa: S310 - our own gateway
            return int(json.load(answer)["spool_events_waiting"])
    except OSError as error:
        raise TransientError(f"The gateway says nothing of its health: {error}") from error
