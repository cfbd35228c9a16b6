"""From the last byte of an answer to the row that a plain SELECT returns."""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from infra.bench.figures import Figure, Section, milliseconds, quantile, ratio
from infra.bench.gateway import CALLS
from infra.bench.http import Answer, Connection
from infra.bench.load import on_schedule
from infra.bench.stack import Bench
from infra.bench.texts import prose, request_body
from infra.bench.usage import CpuMeter, resident_bytes
from infra.demo.visibility import VisibilityPoller
from infra.store import open_reader

GOAL_SECONDS = 2.0
_POLL_SECONDS = 0.1
_UNSEEN_CHARACTERS = 500
_NUM_CONNECTIONS = 16
_SETTLE_SECONDS = 60.0
_MIB = 1024**2


@dataclass(frozen=True)
class Rate:
    """How fast calls come and for how long, after a few seconds that are not counted."""

    tier: str
    per_second: float
    seconds: float
    warm_up_seconds: float


@dataclass(frozen=True)
class Seen:
    """What became of the calls."""

    num_calls: int
    visible_seconds: Sequence[float]
    cpu_seconds: Mapping[str, float]
    resident: Mapping[str, int]


@dataclass(frozen=True)
class _Finished:
    response_id: str
    finished_at: float


def figures_of(seen: Seen) -> tuple[Figure, ...]:
    """Pure: samples → figures. A call that never showed misses the goal as a whole."""
    num_missing = seen.num_calls - len(seen.visible_seconds)
    shown = [*seen.visible_seconds, *[float("inf")] * num_missing]
    p50, p95, p99 = (quantile(shown, share) for share in (0.5, 0.95, 0.99))
    cpu = sorted(seen.cpu_seconds.items())
    return (
        Figure("visible, p50", milliseconds(p50), "ms"),
        Figure("visible, p95", milliseconds(p95), "ms", GOAL_SECONDS * 1e3),
        Figure("visible, p99", milliseconds(p99), "ms"),
        Figure("calls that never showed", float(num_missing), "", 0.0),
        *(
            Figure(f"CPU of {name} a call", milliseconds(ratio(used, seen.num_calls)), "ms")
            for name, used in cpu
        ),
    )


def memory_figures(tier: str, seen: Seen) -> tuple[Figure, ...]:
    """Pure: resident memory after the load."""
    return tuple(
        Figure(f"{name}, {tier} tier" if name == "redaction" else name, held / _MIB, "MiB")
        for name, held in sorted(seen.resident.items())
    )


def measure(bench: Bench, key: str, rate: Rate) -> tuple[Section, Seen]:
    """An open loop of calls with unseen text while a poller asks the store over HTTP."""
    poller = VisibilityPoller(
        lambda: open_reader(bench.settings.data_dir), poll_seconds=_POLL_SECONDS
    )
    poller.start()
    try:
        asyncio.run(_send(bench, key, rate, rate.warm_up_seconds, poller))
        _settle(poller)
        poller.seconds.clear()
        meter = CpuMeter(bench.pids())
        num_calls = asyncio.run(_send(bench, key, rate, rate.seconds, poller))
        _settle(poller)
    finally:
        poller.stop()
    resident = {name: resident_bytes(pid) for name, pid in bench.pids().items()}
    seen = Seen(num_calls, tuple(poller.seconds), meter.used(), resident)
    section = Section(
        f"visible-{rate.tier}",
        f"Captured → visible in SQL, `{rate.tier}` tier, {rate.per_second:g} calls/s",
        figures_of(seen),
        f"An open loop for {rate.seconds:.0f} s; each call brings "
        f"{_UNSEEN_CHARACTERS} characters that nothing has seen before. A poller asks "
        f"`steps` over HTTP every {_POLL_SECONDS:g} s, and that wait is part of the figures.",
    )
    return section, seen


async def _send(
    bench: Bench, key: str, rate: Rate, seconds: float, poller: VisibilityPoller
) -> int:
    rng = random.Random(time.time_ns())
    gateway = bench.settings.gateway
    headers = {"x-headrace-key": key}
    connections = [Connection(gateway.host, gateway.port, headers) for _ in range(_NUM_CONNECTIONS)]
    number = int(seconds * rate.per_second)
    bodies = [request_body(prose(rng, _UNSEEN_CHARACTERS)) for _ in range(number)]

    def expect(answer: Answer) -> None:
        poller.expect(_Finished(orjson.loads(answer.body)["id"], time.time()))

    await on_schedule(connections, CALLS, bodies, per_second=rate.per_second, on_answer=expect)
    for connection in connections:
        connection.close()
    return number


def _settle(poller: VisibilityPoller) -> None:
    deadline = time.monotonic() + _SETTLE_SECONDS
    while poller.num_waiting and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def memory_section(found: Mapping[str, Seen]) -> Section:
    """What each process holds after the loads of this run, by tier."""
    figures: list[Figure] = []
    for tier, seen in found.items():
        new = memory_figures(tier, seen)
        known = {figure.name for figure in figures}
        figures += [figure for figure in new if figure.name not in known]
    return Section(
        "memory", "Memory of each process", tuple(figures), "Resident, after the loads of this run."
    )
