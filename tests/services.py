"""The real broker and the real store that tests run against.

Configured endpoints come first, then a container where a Docker engine answers and already holds
the image, else the local stack in a temporary directory. What we start ends with the session,
and dies with this process whatever happens to it.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

from infra.local import kafka as local_kafka
from infra.local.processes import start_tethered, stop_process
from tests.ports import free_ports

KAFKA_ENDPOINT = "HEADRACE_TEST_KAFKA"
CLICKHOUSE_ENDPOINT = "HEADRACE_TEST_CLICKHOUSE"
START_TIMEOUT_SECONDS = 120.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class ClickHouseEndpoint:
    """A ClickHouse HTTP interface and who may use it."""

    host: str
    port: int
    user: str
    password: str

    @property
    def url(self) -> str:
        """Without credentials."""
        return f"http://{self.host}:{self.port}"


def configured_kafka() -> str | None:
    """Bootstrap servers named in the environment."""
    return os.environ.get(KAFKA_ENDPOINT)


def configured_clickhouse() -> ClickHouseEndpoint | None:
    """The server named in the environment as http://user:password@host:port."""
    text = os.environ.get(CLICKHOUSE_ENDPOINT)
    if text is None:
        return None
    url = urlsplit(text)
    return ClickHouseEndpoint(
        url.hostname or "127.0.0.1",
        url.port or 8123,
        unquote(url.username or "default"),
        unquote(url.password or ""),
    )


@contextmanager
def running_kafka(directory: Path, ports: tuple[int, int] | None = None) -> Iterator[str]:
    """A local broker for the length of the block; yields its bootstrap servers."""
    port, controller_port = ports or free_ports(2)
    config = local_kafka.KafkaConfig(directory / "kafka", port, controller_port)
    command = [sys.executable, "-m", "infra.local.kafka", "--data-dir", str(config.data_dir)]
    command += ["--port", str(port), "--controller-port", str(controller_port)]
    with running(command, directory / "kafka.log") as process:
        local_kafka.wait_until_ready(config, START_TIMEOUT_SECONDS, lambda: process.poll() is None)
        yield config.bootstrap_servers


@contextmanager
def running_clickhouse(directory: Path, port: int | None = None) -> Iterator[ClickHouseEndpoint]:
    """The ClickHouse front on chDB for the length of the block."""
    port = port or free_ports(1)[0]
    data_dir = directory / "clickhouse"
    command = [sys.executable, "-m", "infra.local.clickhouse"]
    command += ["--data-dir", str(data_dir), "--port", str(port)]
    log = directory / "clickhouse.log"
    with running(command, log) as process:
        wait_for(lambda: answers(f"http://127.0.0.1:{port}/ping"), process, log)
        password = (data_dir / "password").read_text().strip()
        yield ClickHouseEndpoint("127.0.0.1", port, "headrace", password)


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A child process for the length of the block; its group is ended afterwards."""
    with log.open("ab") as output:
        process = start_tethered(command, log=output)
        try:
            yield process
        finally:
            stop_process(process)


def wait_for(
    condition: Callable[[], bool],
    process: subprocess.Popen[bytes],
    log: Path,
    timeout_seconds: float = START_TIMEOUT_SECONDS,
) -> None:
    """Poll until the condition holds; fails with the end of the log when the process ends first."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"{process.args!r} is not ready:\n{log.read_text()[-2000:]}")
        with suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_SECONDS)


def answers(url: str) -> bool:
    """True when the URL answers with success."""
    try:
        with urlopen(url, timeout=1.0) as response:  # noqa: S310  # our own URLs
            return bool(response.status == 200)
    except (URLError, OSError):
        return False
