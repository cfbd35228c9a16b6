"""Three real brokers on this machine, each of them broker and controller."""

import os
import signal
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from infra.local.java import find_java
from infra.local.kafka import (
    KafkaConfig,
    broker_command,
    prepare_files,
    render_properties,
    wait_until_ready,
)
from infra.local.kafka_jars import resolve_jars
from infra.local.processes import start_tethered, stop_process
from tests.ports import free_ports

NUM_BROKERS = 3
_HEAP_MIB = 256
_START_SECONDS = 180.0
_ASK_SECONDS = 10.0
_FORMAT_SECONDS = 120.0


@dataclass
class Cluster:
    """The brokers by number, from 1 on."""

    configs: dict[int, KafkaConfig]
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def bootstrap_servers(self) -> str:
        """All of them."""
        return ",".join(config.bootstrap_servers for config in self.configs.values())

    def start(self, number: int) -> None:
        """Start a broker; does not wait for it."""
        config = self.configs[number]
        command = broker_command(config, find_java(), resolve_jars(_quiet))
        with (config.data_dir / "broker.log").open("ab") as log:
            self.processes[number] = start_tethered(command, log=log)

    def kill(self, number: int) -> None:
        """Without a chance to hand anything over."""
        process = self.processes[number]
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def wait(self, number: int) -> None:
        """Until a broker answers."""
        process = self.processes[number]
        config = self.configs[number]
        wait_until_ready(config, _START_SECONDS, lambda: process.poll() is None)

    def leads(self, topic: str) -> dict[int, int]:
        """Broker → how many partitions of the topic it leads."""
        partitions = self._partitions(topic)
        return {n: sum(p.leader == n for p in partitions) for n in self.configs}

    def num_in_sync(self) -> int:
        """Copies that are whole, of the partition that has the fewest; 0 while nobody answers."""
        found: Any = AdminClient({"bootstrap.servers": self.bootstrap_servers}).list_topics(
            timeout=_ASK_SECONDS
        )
        names = [name for name in found.topics if not name.startswith("__")]
        return min((len(p.isrs) for n in names for p in found.topics[n].partitions.values()),
                   default=0)  # fmt: skip

    def _partitions(self, topic: str) -> list[Any]:
        admin: Any = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        return list(
            admin.list_topics(topic, timeout=_ASK_SECONDS).topics[topic].partitions.values()
        )


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Three brokers for the length of the block."""
    ports = free_ports(2 * NUM_BROKERS)
    numbers = range(1, NUM_BROKERS + 1)
    configs = {
        n: KafkaConfig(folder / f"broker-{n}", ports[n - 1], ports[n + 2], _HEAP_MIB)
        for n in numbers
    }
    voters = ",".join(f"{n}@127.0.0.1:{config.controller_port}" for n, config in configs.items())
    cluster_id = urlsafe_b64encode(uuid.UUID(int=1).bytes).decode().rstrip("=")
    for number, config in configs.items():
        prepare_files(config)
        config.properties_file.write_text(_properties(config, number, voters))
        _format(config, cluster_id)
    cluster = Cluster(configs)
    try:
        for number in numbers:
            cluster.start(number)
        for number in numbers:
            cluster.wait(number)
        yield cluster
    finally:
        for process in cluster.processes.values():
            stop_process(process)


def _quiet(_progress: str) -> None:
    """The jars lie in the cache as a rule."""


def _properties(config: KafkaConfig, number: int, voters: str) -> str:
    """A single broker's, but for what makes it one of three. The least number of copies in sync
    stays the broker's default: topics have to say so themselves."""
    changed = {
        "node.id": str(number),
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "share.coordinator.state.topic.replication.factor": "3",
        "share.coordinator.state.topic.min.isr": "2",
    }
    lines = dict(line.split("=", 1) for line in render_properties(config).splitlines())
    del lines["controller.quorum.bootstrap.servers"]
    lines |= {**changed, "controller.quorum.voters": voters}
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def _format(config: KafkaConfig, cluster_id: str) -> None:
    java, jars = find_java(), resolve_jars(_quiet)
    command = [str(java.path), "-Xmx128m", "-cp", f"{jars.directory}/*", "kafka.tools.StorageTool"]
    command += ["format", f"--cluster-id={cluster_id}", "-c", str(config.properties_file)]
    subprocess.run(command, check=True, capture_output=True, timeout=_FORMAT_SECONDS)
