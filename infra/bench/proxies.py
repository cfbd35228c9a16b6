"""Proxies beside each other, in one run: the same model, the same client, the same machine.

direct                 the client at the model itself
headrace, relay        capture off
headrace, capture      into the spool, with a broker that is not there
headrace, into Kafka   into the spool and on to a real broker
LiteLLM, Portkey       see rivals.py
"""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from infra.bench import rivals, streams
from infra.bench.figures import Figure, Section, difference, milliseconds, quantile, ratio
from infra.bench.http import Connection
from infra.bench.load import Samples, Target, closed_loop, in_turn
from infra.bench.stack import Bench, free_block, gateway_keys, running
from infra.bench.streams import Frames
from infra.bench.texts import prose, request_body
from infra.local.processes import start_tethered, stop_process
from schemas.errors import HeadraceError, TransientError
from schemas.secrets import create_root_secret

CALLS = "/v1/chat/completions"
DIRECT, RELAY, CAPTURE, INTO_KAFKA = (
    "direct", "headrace, relay", "headrace, capture", "headrace, capture into Kafka",
)  # fmt: skip
_OURS = (DIRECT, RELAY, CAPTURE, INTO_KAFKA)
_NOWHERE = "127.0.0.1:1"
_REQUEST_CHARACTERS = 2_000
_WARM_UP = 30
_NUM_CONNECTIONS = 16
_START_SECONDS = 300.0
_POLL_SECONDS = 0.2
#: Of the goals of the project, those that compare.
_GOAL_TIMES_LITELLM = 15.0


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    num_in_turn: int
    load_seconds: float
    stream_seconds: float


@dataclass(frozen=True)
class Loaded:
    """Seconds of each request under load, and how long the load lasted."""

    seconds: Sequence[float]
    lasted_seconds: float


@dataclass(frozen=True)
class Found:
    """What one proxy did."""

    name: str
    alone: Samples
    loaded: Loaded
    #: A model that takes 60 ms, 15 kB prompts; and streams of a token every 20 ms.
    slow: Sequence[float] = ()
    streams: Frames = field(default_factory=Frames)


def figures_of(found: Sequence[Found]) -> tuple[Figure, ...]:
    """Pure: samples → figures. `found` begins with the model itself."""
    direct, *proxies = found
    figures = [*_alone(direct, direct), *_load(direct)]
    for one in proxies:
        figures += [*_alone(one, direct), *_load(one), *_paced(one, direct)]
    return (*figures, *_times(proxies, direct))


def _alone(one: Found, direct: Found) -> Iterator[Figure]:
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        value = quantile(one.alone.last, share)
        if one is direct:
            yield Figure(f"{one.name}, {name}", milliseconds(value), "ms")
        else:
            added = difference(value, quantile(direct.alone.last, share))
            yield Figure(f"{one.name}, added, {name}", milliseconds(added), "ms")


def _load(one: Found) -> Iterator[Figure]:
    rate = ratio(len(one.loaded.seconds), one.loaded.lasted_seconds)
    p99 = milliseconds(quantile(one.loaded.seconds, 0.99))
    yield Figure(f"{one.name}, {_NUM_CONNECTIONS} connections", rate, "requests/s", is_rate=True)
    yield Figure(f"{one.name}, {_NUM_CONNECTIONS} connections, p99", p99, "ms")


def _paced(one: Found, direct: Found) -> Iterator[Figure]:
    """With a model as slow as models are."""
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        added = difference(quantile(one.slow, share), quantile(direct.slow, share))
        yield Figure(f"{one.name}, model of 60 ms, added, {name}", milliseconds(added), "ms")
    what = f"{one.name}, {streams.NUM_STREAMS} streams"
    yield from streams.added_figures(what, direct.streams, one.streams, (None, None))


def _times(proxies: Sequence[Found], direct: Found) -> Iterator[Figure]:
    """How many times what we add others add, on one connection in the middle."""
    base = quantile(direct.alone.last, 0.5)
    added = {one.name: difference(quantile(one.alone.last, 0.5), base) for one in proxies}
    ours = added.get(INTO_KAFKA)
    for name in (one for one in added if not one.startswith("headrace")):
        theirs = added[name]
        times = None if theirs is None or not ours else theirs / ours
        goal = _GOAL_TIMES_LITELLM if name == "LiteLLM" else None
        yield Figure(f"{name} adds, of what headrace adds", times, "times", goal, is_rate=True)


def measure(size: Size) -> Section:
    """Start all, measure all, end all. What cannot be installed is left out, and said."""
    missing: list[str] = []
    with running(tier="regex", only=("kafka", "topics", "gateway")) as bench, ExitStack() as stack:
        targets = _targets(bench, stack, missing)
        found = asyncio.run(_measure(targets, size, missing))
    configuration = (
        "LiteLLM runs with one process for each core, `LITELLM_MODE=PRODUCTION`, "
        "`LITELLM_LOG=ERROR`, without a database; Portkey as its package starts it; headrace with "
        "one process."
    )
    note = (
        f"{rivals.LITELLM}, {rivals.PORTKEY}. Requests of 2 kB to the same model process; "
        f"{size.num_in_turn:,} in turn over one connection each, then {_NUM_CONNECTIONS} "
        f"connections that send one after the other for {size.load_seconds:.0f} s, one proxy at a "
        "time; then the same with prompts of 15 kB to a model that takes 60 ms, and "
        f"{streams.NUM_STREAMS} clients of streams with a token every 20 ms, for "
        f"{size.stream_seconds:.0f} s each. Client, model, all proxies and Kafka share the cores. "
        f"{configuration}"
    )
    if missing:
        note += f" Not measured: {'; '.join(missing)}"
    return Section("proxies", "Beside other proxies", figures_of(found), note)


@dataclass(frozen=True)
class _Where:
    """A proxy that runs."""

    name: str
    connect: Callable[[], Connection]


def _targets(bench: Bench, stack: ExitStack, missing: list[str]) -> list[_Where]:
    upstream = f"http://127.0.0.1:{bench.upstream_port}"
    key, _ = gateway_keys(bench)
    ports = iter(range(free_block(), 65_535))
    found = [_Where(DIRECT, lambda: Connection("127.0.0.1", bench.upstream_port, {}))]
    for name, captures in ((RELAY, False), (CAPTURE, True)):
        port = next(ports)
        environment = _own(bench, upstream, port, captures=captures)
        _start(stack, bench, name, [sys.executable, "-m", "inference.gateway"], environment)
        found.append(_where(name, port, {"x-headrace-key": key}))
    gateway = bench.settings.gateway
    found.append(_where(INTO_KAFKA, gateway.port, {"x-headrace-key": key}))
    for make in (rivals.litellm, rivals.portkey):
        port = next(ports)
        try:
            rival = make(bench.settings.data_dir, upstream, port)
        except HeadraceError as error:
            missing.append(str(error))
            continue
        _start(stack, bench, rival.name, rival.command, {**os.environ, **rival.environment})
        found.append(_where(rival.name, port, rival.headers))
    return found


def _where(name: str, port: int, headers: Mapping[str, str]) -> _Where:
    return _Where(name, lambda: Connection("127.0.0.1", port, headers))


def _own(bench: Bench, upstream: str, port: int, *, captures: bool) -> dict[str, str]:
    """A gateway of its own, which knows the keys of the stack's from a copy of its copy."""
    folder = bench.settings.data_dir / f"beside-{port}"
    copy = bench.settings.data_dir / "run" / "gateway-keys.json"
    (folder / "run").mkdir(parents=True)
    (folder / "run" / copy.name).write_bytes(copy.read_bytes())
    create_root_secret(folder / "secrets" / "root")
    plain = {n: v for n, v in os.environ.items() if not n.startswith("HEADRACE_")}
    return plain | {
        "HEADRACE_DATA_DIR": str(folder),
        "HEADRACE_KAFKA__BOOTSTRAP_SERVERS": _NOWHERE,
        "HEADRACE_GATEWAY__PORT": str(port),
        "HEADRACE_GATEWAY__CAPTURE": str(captures).lower(),
        "HEADRACE_GATEWAY__UPSTREAM__URL": upstream,
    }


def _start(
    stack: ExitStack, bench: Bench, name: str, command: Sequence[str],
    environment: Mapping[str, str],
) -> None:  # fmt: skip
    log: Path = bench.settings.data_dir / f"{name}.log"
    stack.enter_context(_running(command, log, environment))


@contextmanager
def _running(
    command: Sequence[str], log: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = start_tethered(command, log=output, environment=environment)
    try:
        yield process
    finally:
        stop_process(process)


async def _measure(wanted: Sequence[_Where], size: Size, missing: list[str]) -> list[Found]:
    rng = random.Random(17)
    bodies = [request_body(prose(rng, _REQUEST_CHARACTERS), stream=False) for _ in range(200)]
    paced, slowly = streams.bodies(rng), streams.bodies(rng, stream=False)
    targets, lines = [], []
    for one in wanted:
        line = Target(one.name, one.connect(), CALLS)
        try:
            await _until_it_answers(line, bodies[0])
        except TransientError as error:
            missing.append(str(error))
            continue
        targets.append(one)
        lines.append(line)
    if tuple(one.name for one in targets[: len(_OURS)]) != _OURS:
        raise TransientError(" ".join(missing))
    await in_turn(lines, bodies[:_WARM_UP])
    alone = await in_turn(lines, [bodies[n % len(bodies)] for n in range(size.num_in_turn)])
    for line in lines:
        line.connection.close()
    found = []
    for one in targets:
        connections = [one.connect() for _ in range(_NUM_CONNECTIONS)]
        await closed_loop(connections, CALLS, bodies, seconds=1.0)
        began_at = time.perf_counter()
        seconds = await closed_loop(connections, CALLS, bodies, seconds=size.load_seconds)
        lasted = time.perf_counter() - began_at
        slow = await closed_loop(connections, CALLS, slowly, seconds=size.stream_seconds)
        for connection in connections:
            connection.close()
        frames = await _streamed(one, paced, size, missing)
        loaded = Loaded(seconds, lasted)
        found.append(Found(one.name, alone[one.name], loaded, slow, frames))
    return found


async def _streamed(one: _Where, paced: Sequence[bytes], size: Size, missing: list[str]) -> Frames:
    """Its streams. Where another proxy's break off it has none, which is said."""
    try:
        return await streams.run_streams(
            one.connect, paced, streams.NUM_STREAMS, size.stream_seconds
        )
    except TransientError as error:
        if one.name in _OURS:
            raise
        missing.append(f"the streams of {one.name}, at {streams.NUM_STREAMS} at a time: {error}")
        return Frames()


async def _until_it_answers(line: Target, body: bytes) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            answer = await line.connection.post(line.path, body)
        except TransientError:
            answer = None
        if answer is not None and answer.status == 200:
            return
        if time.monotonic() > deadline:
            said = "nothing" if answer is None else f"{answer.status}"
            raise TransientError(f"{line.name} answers {said} instead of 200. Its log says why.")
        await asyncio.sleep(_POLL_SECONDS)
