"""Streams that come at the pace of a model: what the gateway adds to the first token and between
tokens, and how many streams it carries."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from infra.bench.figures import Figure, Section, difference, milliseconds, quantile
from infra.bench.gateway import CALLS, connection_of
from infra.bench.http import ANSWER_SECONDS, Connection
from infra.bench.stack import Bench
from infra.bench.texts import prose, request_body
from infra.bench.upstream import STAMP, Pace
from schemas.errors import TransientError

NUM_STREAMS = 64
PACE = Pace(wait_seconds=0.06, pace_seconds=0.02, num_events=25)
PROMPT_CHARACTERS = 15_000
#: Numbers of streams that are tried one after the other, until their events come too late.
LEVELS = (64, 128, 192, 256, 384, 512, 768, 1_024)
LATE_SECONDS = 0.005
_NUM_BODIES = 20


@dataclass(frozen=True)
class Size:
    """How long the streams run, and how long at each level of the ramp."""

    seconds: float
    level_seconds: float


@dataclass
class Frames:
    """Seconds to the first token, between tokens, and from the model's write of a token to the
    client's read of it."""

    first: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Level:
    """How late tokens came with so many streams at a time."""

    num_streams: int
    late_p99: float | None

    @property
    def is_in_time(self) -> bool:
        """Whether the p99 keeps the bound."""
        return self.late_p99 is not None and self.late_p99 <= LATE_SECONDS


def stream_figures(direct: Frames, through: Frames, levels: Sequence[Level]) -> tuple[Figure, ...]:
    """Pure: samples → figures."""
    figures = [
        *added_figures(f"{NUM_STREAMS} streams", direct, through, goals=(2.0, 1.0)),
        Figure(
            f"most streams whose tokens come within {LATE_SECONDS * 1000:.0f} ms at p99",
            max((float(level.num_streams) for level in levels if level.is_in_time), default=0.0),
            "",
        ),
    ]
    figures += [
        Figure(f"{level.num_streams} streams, model to client, p99",
               milliseconds(level.late_p99), "ms")
        for level in levels
    ]  # fmt: skip
    return tuple(figures)


def added_figures(
    what: str, direct: Frames, through: Frames, goals: tuple[float | None, float | None]
) -> Iterator[Figure]:
    """What is added to the first token and between tokens."""
    first_goal, gap_goal = goals
    for name, share, goal in (("p50", 0.5, None), ("p99", 0.99, first_goal)):
        added = difference(quantile(through.first, share), quantile(direct.first, share))
        yield Figure(f"{what}, added to the first token, {name}", milliseconds(added), "ms", goal)
    added = difference(quantile(through.gaps, 0.99), quantile(direct.gaps, 0.99))
    yield Figure(f"{what}, added between tokens, p99", milliseconds(added), "ms", gap_goal)


def bodies(rng: random.Random, pace: Pace = PACE, *, stream: bool = True) -> list[bytes]:
    """Requests for streams at that pace."""
    return [
        request_body(prose(rng, PROMPT_CHARACTERS), stream=stream, pace=pace)
        for _ in range(_NUM_BODIES)
    ]


async def run_streams(
    connect: Callable[[], Connection], asked: Sequence[bytes], num_streams: int, seconds: float
) -> Frames:
    """So many clients, each of which asks for one stream after the other. TransientError ends all.

    They begin spread over the length of a stream, so that not all first tokens come at once.
    """
    found = Frames()
    length = PACE.wait_seconds + PACE.pace_seconds * PACE.num_events
    until = time.perf_counter() + length + seconds

    async def client(number: int) -> None:
        await asyncio.sleep(length * number / num_streams)
        connection = connect()
        turn = number
        try:
            while time.perf_counter() < until:
                await _in_time(_one(connection, asked[turn % len(asked)], found))
                turn += num_streams
        finally:
            connection.close()

    try:
        async with asyncio.TaskGroup() as tasks:
            for number in range(num_streams):
                tasks.create_task(client(number))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None  # the first is the cause, the group ended the rest
    return found


async def _in_time(stream: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await stream
    except TimeoutError:
        raise TransientError(
            f"A stream of the benchmark did not end within {ANSWER_SECONDS:.0f} s."
        ) from None


async def _one(connection: Connection, body: bytes, found: Frames) -> None:
    began_at = time.perf_counter()
    before: float | None = None
    async for piece, at in connection.frames(CALLS, body):
        for stamp in STAMP.findall(piece):
            found.late.append(at - float(stamp))
            if before is None:
                found.first.append(at - began_at)
            else:
                found.gaps.append(at - before)
            before = at


def measure_streams(bench: Bench, key: str, size: Size) -> Section:
    """64 streams direct and through the gateway, then more and more of them."""
    direct, through, levels = asyncio.run(_measure(bench, key, size))
    return Section(
        "streams",
        "Gateway: streams at the pace of a model",
        stream_figures(direct, through, levels),
        f"Prompts of 15 kB; the model begins after {PACE.wait_seconds * 1000:.0f} ms and sends "
        f"{PACE.num_events} tokens, one every {PACE.pace_seconds * 1000:.0f} ms. Each of "
        f"{NUM_STREAMS} clients asks for one stream after the other for {size.seconds:.0f} s, "
        "first direct, then through the gateway. Then as many clients as the table says, for "
        f"{size.level_seconds:.0f} s each, until tokens come more than 5 ms after the model wrote "
        "them; client, model, gateway and Kafka share the cores.",
    )


async def _measure(bench: Bench, key: str, size: Size) -> tuple[Frames, Frames, list[Level]]:
    asked = bodies(random.Random(23))

    def connect(target: str) -> Callable[[], Connection]:
        return lambda: connection_of(bench, key, target)

    await run_streams(connect("gateway"), asked, NUM_STREAMS, 0.5)  # warm
    direct = await run_streams(connect("direct"), asked, NUM_STREAMS, size.seconds)
    through = await run_streams(connect("gateway"), asked, NUM_STREAMS, size.seconds)
    levels = []
    for number in LEVELS:
        frames = await run_streams(connect("gateway"), asked, number, size.level_seconds)
        levels.append(Level(number, quantile(frames.late, 0.99)))
        if not levels[-1].is_in_time:
            break
    return direct, through, levels
