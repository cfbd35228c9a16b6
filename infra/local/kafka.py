"""One real Apache Kafka broker in KRaft mode, on loopback unless told otherwise.

    python -m infra.local.kafka --data-dir D --port 9092 --controller-port 9093

`--host` and `--advertised-host` are for a container, whose network nobody else is on. The broker
asks nobody who he is. The controller stays on loopback.

The process formats its storage on the first start and then becomes java (exec), so the pid that
was started is the broker. Data survives stops and kills; the ports may change between starts.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NoReturn

from infra.local.java import Java, find_java
from infra.local.kafka_jars import KafkaJars, resolve_jars
from infra.local.kafka_wire import request_metadata
from schemas.errors import ConfigError

_FORMAT_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.1
_LOOPBACK = "127.0.0.1"
#: Room for a record of 1 MiB with its headers and batch framing.
MAX_MESSAGE_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True)
class KafkaConfig:
    """Where one broker keeps its data and listens. `heap_mib` bounds the Java heap.

    Clients find the broker under `advertised_host`.
    """

    data_dir: Path
    port: int
    controller_port: int
    heap_mib: int = 512
    host: str = _LOOPBACK
    advertised_host: str = _LOOPBACK

    @property
    def bootstrap_servers(self) -> str:
        """What a client is configured with."""
        return f"{self.advertised_host}:{self.port}"

    @property
    def properties_file(self) -> Path:
        """The generated server.properties."""
        return self.data_dir / "server.properties"

    @property
    def log_dir(self) -> Path:
        """Kafka's own name for the directory of its data."""
        return self.data_dir / "log"


def render_properties(config: KafkaConfig) -> str:
    """The broker's server.properties: one node that is broker and controller."""
    controller = f"CONTROLLER://{_LOOPBACK}:{config.controller_port}"
    properties = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "listeners": f"PLAINTEXT://{config.host}:{config.port},{controller}",
        "advertised.listeners": f"PLAINTEXT://{config.bootstrap_servers},{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{config.controller_port}",
        "log.dirs": config.log_dir,
        # Topics come from the registry with their settings; a misspelt name is an error.
        "auto.create.topics.enable": "false",
        "message.max.bytes": MAX_MESSAGE_BYTES,
        "replica.fetch.max.bytes": MAX_MESSAGE_BYTES,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        # Fifty partitions for one machine's offsets cost only start-up time and files.
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.num.partitions": 4,
        # A group of one or two local members gains nothing by waiting for more.
        "group.initial.rebalance.delay.ms": 0,
        "log.segment.bytes": 128 * 1024 * 1024,
        # The default of 128 MiB is a quarter of this heap.
        "log.cleaner.dedupe.buffer.size": 32 * 1024 * 1024,
        "num.network.threads": 2,
        "num.io.threads": 4,
    }
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def prepare(
    config: KafkaConfig, java: Java, jars: KafkaJars, cluster: uuid.UUID | None = None
) -> None:
    """Write server.properties and format the storage if that was never done. Idempotent.

    A cluster that is formatted gets the id `cluster`, or a new one."""
    prepare_files(config)
    if (config.log_dir / "meta.properties").exists():
        return
    # A format that was cut short leaves files that a second one refuses.
    shutil.rmtree(config.log_dir, ignore_errors=True)
    cluster_id = _encoded(cluster or uuid.uuid4())
    command = [str(java.path), "-Xmx128m", f"-Dlog4j2.configurationFile={_logging_file(config)}"]
    command += ["-cp", f"{jars.directory}/*", "kafka.tools.StorageTool", "format"]
    # One id in 64 begins with a hyphen, which only this spelling does not take for an option.
    command += ["--standalone", f"--cluster-id={cluster_id}", "-c", str(config.properties_file)]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=_FORMAT_TIMEOUT_SECONDS, check=False
    )
    if result.returncode != 0:
        why = (result.stderr or result.stdout).strip()[-500:]
        raise ConfigError(f"Kafka could not format {config.log_dir}: {why}")


def prepare_files(config: KafkaConfig) -> None:
    """The folder, server.properties and how the broker logs."""
    config.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    config.properties_file.write_text(render_properties(config))
    _logging_file(config).write_text(files("infra.local").joinpath("kafka_log4j2.xml").read_text())


def _encoded(cluster: uuid.UUID) -> str:
    """A cluster's id in Kafka's spelling."""
    return urlsafe_b64encode(cluster.bytes).decode().rstrip("=")


def broker_command(config: KafkaConfig, java: Java, jars: KafkaJars) -> list[str]:
    """The command line that becomes the broker."""
    return [
        str(java.path),
        f"-Xmx{config.heap_mib}m",
        "-Xms128m",
        # Two contended cores: the serial collector starts faster and holds less memory.
        "-XX:+UseSerialGC",
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={_logging_file(config)}",
        "-cp",
        f"{jars.directory}/*",
        "kafka.Kafka",
        str(config.properties_file),
    ]


def is_ready(
    host: str, port: int, log_dir: Path | None = None, timeout_seconds: float = 1.0
) -> bool:
    """True when the broker answers a metadata request and knows an active controller.

    With `log_dir`, only for the broker whose data lies there: of two that start at once on one
    port the first answers for both.
    """
    metadata = request_metadata(host, port, timeout_seconds)
    if metadata is None or metadata.num_brokers == 0 or metadata.controller_id < 0:
        return False
    return log_dir is None or metadata.cluster_id == _cluster_id_in(log_dir)


def _cluster_id_in(log_dir: Path) -> str:
    """As Kafka wrote it there when the storage was formatted; empty before."""
    try:
        lines = (log_dir / "meta.properties").read_text().splitlines()
    except FileNotFoundError:
        return ""
    return next((line.split("=", 1)[1] for line in lines if line.startswith("cluster.id=")), "")


def wait_until_ready(
    config: KafkaConfig, timeout_seconds: float, is_running: Callable[[], bool]
) -> None:
    """Return once the broker is ready. ConfigError when it ends or the time is over."""
    deadline = time.monotonic() + timeout_seconds
    while not is_ready(_LOOPBACK, config.port, config.log_dir):
        if not is_running():
            raise ConfigError("The Kafka broker ended while it started. Its log says why.")
        if time.monotonic() > deadline:
            raise ConfigError(f"The Kafka broker was not ready after {timeout_seconds:.0f} s.")
        time.sleep(_POLL_SECONDS)


def _logging_file(config: KafkaConfig) -> Path:
    return config.data_dir / "log4j2.xml"


def main(arguments: list[str]) -> int:
    """Prepare, then become the broker. Returns only when it cannot be prepared: 2."""
    parser = argparse.ArgumentParser(prog="python -m infra.local.kafka")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--controller-port", type=int, required=True)
    parser.add_argument("--heap-mib", type=int, default=512)
    parser.add_argument("--host", default=_LOOPBACK)
    parser.add_argument("--advertised-host", default=_LOOPBACK)
    options = parser.parse_args(arguments)
    config = KafkaConfig(
        options.data_dir.absolute(),
        options.port,
        options.controller_port,
        options.heap_mib,
        options.host,
        options.advertised_host,
    )
    try:
        java = find_java()
        jars = resolve_jars(lambda text: print(text, file=sys.stderr, flush=True))  # noqa: T201  # its log
        prepare(config, java, jars)
    except ConfigError as error:
        print(error, file=sys.stderr)  # noqa: T201  # the process is a program of its own
        return 2
    return _become(broker_command(config, java, jars))


def _become(command: list[str]) -> NoReturn:
    os.execv(command[0], command)  # noqa: S606  # no shell, our own argument list


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
