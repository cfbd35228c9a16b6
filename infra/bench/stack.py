"""A real stack in a temporary folder for the length of a block."""

import asyncio
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.bench.http import Connection
from infra.cli.keys import make_key, publish_key
from infra.local.control import ask
from infra.local.launch import find_settings, launch, running_state, shut_down
from infra.local.ports import is_free
from infra.local.processes import start_tethered, stop_process
from infra.local.stack import Ports
from schemas.bus import Delivery, Record
from schemas.bus.kafka import KafkaBus
from schemas.errors import ConfigError, TransientError
from schemas.settings import Settings, load_settings

TENANT = "bench"
PROCESSORS = ("redaction", "assembly", "sink")
STORE_AND_LOG = ("kafka", "topics", "clickhouse")
_WAIT_SECONDS = 90.0
_POLL_SECONDS = 0.02
_CHUNK_RECORDS = 5_000
_REFUSES_THE_BODY = (400, 422)
_PORT_BLOCKS = range(21_000, 31_000, 10)


@dataclass(frozen=True)
class Bench:
    """A running stack and how to reach its parts."""

    settings: Settings
    bus: KafkaBus
    upstream_port: int
    upstream_pid: int

    def pids(self) -> dict[str, int]:
        """Process ids of what runs now, by name."""
        children = running_state(self.settings.data_dir).children
        return {child.name: child.pid for child in children if child.pid is not None}

    def stop(self, names: Sequence[str]) -> None:
        """End these children; the supervisor leaves them ended."""
        ask(self.settings.data_dir, "stop-child", list(names))

    def start(self, names: Sequence[str]) -> None:
        """Start them again; returns when they are ready."""
        ask(self.settings.data_dir, "start-child", list(names))

    def make_key(self, *scopes: str) -> str:
        """A key that the gateway does not know yet."""
        key, record = make_key(TENANT, scopes)
        publish_key(self.bus, record)
        return key

    def produce(self, records: Iterator[Record]) -> int:
        """Put records onto their topics and wait until all are there; how many."""
        producer = self.bus.producer("headrace.bench")
        reports: list[Delivery] = []
        number = 0
        try:
            for number, record in enumerate(records, 1):
                producer.send(record, reports.append)
                if number % _CHUNK_RECORDS == 0:
                    producer.flush(_WAIT_SECONDS)
            producer.flush(_WAIT_SECONDS)
        finally:
            producer.close()
        failed = [report.error for report in reports if report.error is not None]
        if failed or len(reports) < number:
            raise failed[0] if failed else TransientError("Kafka did not confirm all records.")
        return number


@contextmanager
def running(
    *, tier: str, only: Collection[str] = (), environment: dict[str, str] | None = None
) -> Iterator[Bench]:
    """A stack whose redaction uses `tier`, and a model; all of it ends with the block."""
    data_dir = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    port = free_block() + 9
    config = data_dir / "headrace.toml"
    config.write_text(
        f'[gateway.upstream]\nurl = "http://127.0.0.1:{port}"\n[redaction]\ntier = "{tier}"\n'
    )
    command = [sys.executable, "-m", "infra.bench.upstream", "--port", str(port)]
    try:
        with _environment({"HEADRACE_CONFIG": str(config), **(environment or {})}):
            with (data_dir / "model.log").open("wb") as log:
                model = start_tethered(command, log=log)
            try:
                _wait_until_taken(port)
                yield _launched(data_dir, port, model.pid, only)
            finally:
                shut_down(data_dir)
                stop_process(model)
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)


def _launched(data_dir: Path, port: int, model_pid: int, only: Collection[str]) -> Bench:
    settings = load_settings(data_dir=data_dir)
    first = free_block()
    ports = Ports(kafka=first, clickhouse=first + 2, gateway=first + 3)
    launch(settings, ports, lambda _child: None, only)
    settings = find_settings(data_dir)
    return Bench(settings, KafkaBus(settings.kafka.bootstrap_servers), port, model_pid)


def free_block() -> int:
    """The first of ten free ports, far from the usual ones, since another stack may be starting,
    and below those that the system lends to outgoing connections."""
    starts = random.sample(_PORT_BLOCKS, len(_PORT_BLOCKS))
    for first in starts:
        if all(is_free(port) for port in range(first, first + _PORT_BLOCKS.step)):
            return first
    raise ConfigError("No ten ports in a row are free between 21000 and 31000. Free some.")


def gateway_keys(bench: Bench) -> tuple[str, str]:
    """A key for calls and one for feedback, once the gateway knows both."""
    calls, feedback = bench.make_key("capture"), bench.make_key("feedback:write")
    asyncio.run(_wait_for_key(bench.settings, feedback))
    return calls, feedback


async def _wait_for_key(settings: Settings, feedback_key: str) -> None:
    """The keys come in order, so the last one says that both are known. An empty rating is
    refused without a trace."""
    headers = {"x-headrace-key": feedback_key}
    connection = Connection(settings.gateway.host, settings.gateway.port, headers)
    deadline = time.monotonic() + _WAIT_SECONDS
    while (await connection.post("/v1/feedback", b"{}")).status not in _REFUSES_THE_BODY:
        if time.monotonic() > deadline:
            raise TransientError("The gateway does not accept the benchmark's key.")
        await asyncio.sleep(_POLL_SECONDS)
    connection.close()


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _wait_until_taken(port: int) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while is_free(port):
        if time.monotonic() > deadline:
            raise TransientError("The model of the benchmark did not start.")
        time.sleep(_POLL_SECONDS)
