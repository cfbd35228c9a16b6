"""What the gateway adds to a call, and how fast it takes a reward."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from infra.bench.figures import Figure, Section, difference, milliseconds, quantile, ratio
from infra.bench.http import Connection
from infra.bench.load import Samples, Target, in_turn, on_schedule
from infra.bench.stack import Bench
from infra.bench.texts import prose, request_body
from infra.bench.usage import CpuMeter

CALLS = "/v1/chat/completions"
#: Requests a second of the open loops, and the milliseconds that their p99 should keep.
OPEN_LOOPS = ((500.0, 5.0), (1_000.0, 20.0))
_NUM_CONNECTIONS = 64
_REQUEST_CHARACTERS = 2_000
_WARM_UP = 200


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    num_in_turn: int
    open_loop_seconds: float
    num_rewards: int


@dataclass(frozen=True)
class Compared:
    """Samples of the same requests, direct and through the gateway, and the gateway's CPU."""

    direct: Samples
    through: Samples
    cpu_seconds: float

    @property
    def cpu_each(self) -> float | None:
        return ratio(self.cpu_seconds, len(self.through.last))


@dataclass(frozen=True)
class OpenLoop:
    """Seconds from when each request was due to its last byte."""

    per_second: float
    goal_ms: float
    direct: Sequence[float]
    through: Sequence[float]
    cpu_seconds: float


def call_figures(
    whole: Compared, streamed: Compared, loads: Sequence[OpenLoop]
) -> tuple[Figure, ...]:
    """Pure: samples → figures."""
    return (
        *_one_connection("whole answer", whole),
        *_one_connection("24 events", streamed),
        *(figure for load in loads for figure in _at_load(load)),
    )


def _one_connection(what: str, found: Compared) -> tuple[Figure, ...]:
    figures = []
    for name, share, goal in (("p50", 0.5, 0.7), ("p99", 0.99, 2.0)):
        direct, through = (quantile(s.last, share) for s in (found.direct, found.through))
        figures += [
            Figure(f"{what}, direct, {name}", milliseconds(direct), "ms"),
            Figure(f"{what}, through the gateway, {name}", milliseconds(through), "ms"),
            Figure(f"{what}, added, {name}", milliseconds(difference(through, direct)), "ms", goal),
        ]
    first = (quantile(s.first, 0.5) for s in (found.through, found.direct))
    figures += [
        Figure(f"{what}, added to the first byte, p50", milliseconds(difference(*first)), "ms"),
        Figure(f"{what}, CPU of the gateway a call", milliseconds(found.cpu_each), "ms"),
    ]
    return tuple(figures)


def _at_load(load: OpenLoop) -> tuple[Figure, ...]:
    where = f"{load.per_second:,.0f} requests/s"
    cpu = ratio(load.cpu_seconds, len(load.through))
    return (
        Figure(f"{where}, direct, p50", milliseconds(quantile(load.direct, 0.5)), "ms"),
        Figure(f"{where}, direct, p99", milliseconds(quantile(load.direct, 0.99)), "ms"),
        Figure(f"{where}, through, p50", milliseconds(quantile(load.through, 0.5)), "ms"),
        Figure(
            f"{where}, through, p99", milliseconds(quantile(load.through, 0.99)), "ms", load.goal_ms
        ),
        Figure(f"{where}, CPU of the gateway a call", milliseconds(cpu), "ms"),
    )


def reward_figures(samples: Samples, cpu_seconds: float) -> tuple[Figure, ...]:
    """Pure: samples → figures."""
    cpu = ratio(cpu_seconds, len(samples.last))
    return (
        Figure("reward accepted, p50", milliseconds(quantile(samples.last, 0.5)), "ms"),
        Figure("reward accepted, p99", milliseconds(quantile(samples.last, 0.99)), "ms", 5.0),
        Figure("CPU of the gateway a reward", milliseconds(cpu), "ms"),
    )


def measure_calls(bench: Bench, key: str, size: Size) -> Section:
    """Direct and through the gateway in turn, whole and streamed; then the open loop."""
    whole, streamed, loads = asyncio.run(_measure(bench, key, size))
    return Section(
        "gateway",
        "Gateway: what capture adds",
        call_figures(whole, streamed, loads),
        "Requests of 2 kB to the same model process, in turn direct and through the gateway, "
        f"{size.num_in_turn:,} each, one connection each. The open loops send on a schedule "
        f"for {size.open_loop_seconds:.0f} s and count from when a request was due, so a "
        "stall counts for all that waited in it. Client, model, gateway and Kafka share the "
        "cores.",
    )


async def _measure(bench: Bench, key: str, size: Size) -> tuple[Compared, Compared, list[OpenLoop]]:
    rng = random.Random(11)
    targets = _targets(bench, key)
    await in_turn(targets, _bodies(rng, _WARM_UP, stream=False))
    found = []
    for stream in (False, True):
        meter = CpuMeter({"gateway": bench.pids()["gateway"]})
        samples = await in_turn(targets, _bodies(rng, size.num_in_turn, stream=stream))
        cpu = meter.used()["gateway"]
        found.append(Compared(samples["direct"], samples["gateway"], cpu))
    for target in targets:
        target.connection.close()
    loads = [
        await _open_loop(bench, key, rng, size, per_second, goal_ms)
        for per_second, goal_ms in OPEN_LOOPS
    ]
    return found[0], found[1], loads


async def _open_loop(
    bench: Bench, key: str, rng: random.Random, size: Size, per_second: float, goal_ms: float
) -> OpenLoop:
    number = int(size.open_loop_seconds * per_second)
    found = {}
    cpu = 0.0
    for target in ("direct", "gateway"):
        connections = [connection_of(bench, key, target) for _ in range(_NUM_CONNECTIONS)]
        bodies = _bodies(rng, number, stream=False)
        await on_schedule(connections, CALLS, bodies[:_WARM_UP], per_second=per_second)
        meter = CpuMeter({"gateway": bench.pids()["gateway"]})
        found[target] = await on_schedule(connections, CALLS, bodies, per_second=per_second)
        cpu = meter.used()["gateway"]
        for connection in connections:
            connection.close()
    return OpenLoop(per_second, goal_ms, found["direct"], found["gateway"], cpu)


def _bodies(rng: random.Random, number: int, *, stream: bool) -> list[bytes]:
    return [request_body(prose(rng, _REQUEST_CHARACTERS), stream=stream) for _ in range(number)]


def _targets(bench: Bench, key: str) -> list[Target]:
    return [Target(n, connection_of(bench, key, n), CALLS) for n in ("direct", "gateway")]


def connection_of(bench: Bench, key: str, target: str) -> Connection:
    """A client of the model itself, or of the gateway."""
    if target == "direct":
        return Connection("127.0.0.1", bench.upstream_port, {})
    gateway = bench.settings.gateway
    return Connection(gateway.host, gateway.port, {"x-headrace-key": key})


def measure_rewards(bench: Bench, key: str, size: Size) -> Section:
    """Rewards on one connection, one after the other."""
    connection = connection_of(bench, key, "gateway")
    bodies = [
        orjson.dumps(
            {
                "target": {"response_id": f"chatcmpl-{number}"},
                "name": "resolved",
                "value": number % 2,
                "feedback_id": f"bench-{number}",
            }
        )
        for number in range(size.num_rewards + _WARM_UP)
    ]
    target = Target("gateway", connection, "/v1/feedback")

    async def both() -> tuple[Samples, float]:
        await in_turn([target], bodies[:_WARM_UP], status=202)
        meter = CpuMeter({"gateway": bench.pids()["gateway"]})
        samples = (await in_turn([target], bodies[_WARM_UP:], status=202))["gateway"]
        connection.close()
        return samples, meter.used()["gateway"]

    samples, cpu_seconds = asyncio.run(both())
    return Section(
        "rewards",
        "Rewards: accepted",
        reward_figures(samples, cpu_seconds),
        f"{size.num_rewards:,} times `POST /v1/feedback`, one after the other on one connection.",
    )
