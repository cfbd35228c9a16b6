"""Ways to send requests: in turn over one connection each, or on a schedule that does not wait."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from infra.bench.http import Answer, Connection
from schemas.errors import TransientError


@dataclass(frozen=True)
class Target:
    """Where requests go, on one connection."""

    name: str
    connection: Connection
    path: str


@dataclass
class Samples:
    """Seconds to the first and to the last byte."""

    first: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)


async def in_turn(
    targets: Sequence[Target], bodies: Sequence[bytes], *, status: int = 200
) -> dict[str, Samples]:
    """Each body to every target, one after the other, so that all meet the same machine."""
    samples = {target.name: Samples() for target in targets}
    for number, body in enumerate(bodies):
        turn = number % len(targets)
        for target in [*targets[turn:], *targets[:turn]]:
            began_at = time.perf_counter()
            answer = await target.connection.post(target.path, body)
            _require(answer, status)
            samples[target.name].first.append(answer.first_byte_at - began_at)
            samples[target.name].last.append(answer.last_byte_at - began_at)
    return samples


OnAnswer = Callable[[Answer], None]


async def on_schedule(
    connections: Sequence[Connection],
    path: str,
    bodies: Sequence[bytes],
    *,
    per_second: float,
    on_answer: OnAnswer = lambda _answer: None,
) -> list[float]:
    """An open loop: request i is due at i / per_second, whatever became of those before it.

    Seconds from when each was due to its last byte, so a stall counts for all that waited in it.
    A request waits for a connection where all are in use. TransientError ends it all.
    """
    idle: asyncio.Queue[Connection] = asyncio.Queue()
    for connection in connections:
        idle.put_nowait(connection)
    seconds: list[float] = []
    began_at = time.perf_counter() + 0.1

    async def send(number: int, body: bytes) -> None:
        due_at = began_at + number / per_second
        connection = await idle.get()
        try:
            answer = await connection.post(path, body)
        finally:
            idle.put_nowait(connection)
        _require(answer, 200)
        seconds.append(answer.last_byte_at - due_at)
        on_answer(answer)

    try:
        async with asyncio.TaskGroup() as tasks:
            for number, body in enumerate(bodies):
                await asyncio.sleep(max(0.0, began_at + number / per_second - time.perf_counter()))
                tasks.create_task(send(number, body))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None  # the first is the cause, the group ended the rest
    return seconds


async def closed_loop(
    connections: Sequence[Connection], path: str, bodies: Sequence[bytes], *, seconds: float
) -> list[float]:
    """Each connection sends one request after the other for so long; seconds of each request.

    TransientError ends it all.
    """
    taken: list[float] = []
    until = time.perf_counter() + seconds

    async def send(first: int, connection: Connection) -> None:
        number = first
        while (began_at := time.perf_counter()) < until:
            answer = await connection.post(path, bodies[number % len(bodies)])
            _require(answer, 200)
            taken.append(answer.last_byte_at - began_at)
            number += len(connections)

    try:
        async with asyncio.TaskGroup() as tasks:
            for first, connection in enumerate(connections):
                tasks.create_task(send(first, connection))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None  # the first is the cause, the group ended the rest
    return taken


def _require(answer: Answer, status: int) -> None:
    if answer.status != status:
        raise TransientError(
            f"A request of the benchmark was answered {answer.status}, not {status}. The log of "
            "the gateway says why."
        )
