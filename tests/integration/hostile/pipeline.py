"""Redaction, assembly and sink as processes on the real broker and store, under a prefix of their
own, and a producer that writes whatever it likes into any topic."""

import asyncio
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from confluent_kafka import Producer

from infra.local.processes import start_tethered, stop_process
from schemas import topics
from schemas.bus.kafka import KafkaBus
from schemas.secrets import create_root_secret
from schemas.settings import Settings
from streams.sink.migrate import open_migrated
from streams.sink.store import ClickHouseStore
from tests.services import ClickHouseEndpoint

NUM_PARTITIONS = 2
GROUPS = ("streams.redaction", "streams.assembly", "streams.sink")
_POLL_SECONDS = 0.2

Where = tuple[str, int, int]


class NoText(str):
    """A header name that is written as bytes which are no UTF-8."""

    def encode(self, _encoding: str = "", _errors: str = "") -> bytes:
        return b"\xff\xfe"


@dataclass(frozen=True)
class Raw:
    """A record as a producer without our library may write it."""

    topic: str
    partition: int
    value: bytes | None
    key: bytes = b"k"
    headers: Sequence[tuple[str, bytes]] = ()
    timestamp_ms: int = 0


@dataclass
class Pipeline:
    """What runs, and where it reads and writes."""

    settings: Settings
    bus: KafkaBus
    directory: Path
    store: ClickHouseStore
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def name(self, topic: str) -> str:
        """The topic's name on the broker."""
        return f"{self.settings.kafka.topic_prefix}{topic}"

    def produce(self, records: Sequence[Raw]) -> list[Where]:
        """Write records past every rule of ours; where each lies."""
        found: dict[int, Where] = {}
        producer = Producer({"bootstrap.servers": self.settings.kafka.bootstrap_servers})
        for number, raw in enumerate(records):

            def report(
                error: Any, message: Any, number: int = number, topic: str = raw.topic
            ) -> None:
                assert error is None, error
                found[number] = topic, message.partition(), message.offset()

            producer.produce(
                self.name(raw.topic), raw.value, raw.key, raw.partition, on_delivery=report,
                timestamp=raw.timestamp_ms, headers=list(raw.headers),
            )  # fmt: skip
        assert producer.flush(60) == 0
        return [found[number] for number in range(len(records))]

    def produce_odd_header(self, topic: str, partition: int) -> Where:
        """Write a record with a header whose name is no text."""

        async def send() -> int:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.settings.kafka.bootstrap_servers, enable_idempotence=False
            )
            await producer.start()
            try:
                batch = producer.create_batch()
                batch._builder = _DefaultRecordBatchBuilderPy(2, 0, 0, -1, -1, -1, 1 << 20)
                batch.append(timestamp=None, key=b"k", value=b"{", headers=[(NoText("x"), b"y")])
                batch.close()
                sent = await producer.send_batch(batch, self.name(topic), partition=partition)
                return int((await sent).offset)
            finally:
                await producer.stop()

        return topic, partition, asyncio.run(send())

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        """The result of a query on the tables."""
        return [tuple(row) for row in self.store.rows(sql)]

    def wait_for(
        self,
        condition: Callable[[], bool],
        tell: Callable[[], str] = str,
        timeout_seconds: float = 300,
    ) -> None:
        """Until it holds; fails at once where a process has ended, with what `tell` says."""
        deadline = time.monotonic() + timeout_seconds
        while not condition():
            for group, process in self.processes.items():
                assert process.poll() is None, f"{group} ended:\n{self.log(group)}"
            assert time.monotonic() < deadline, "\n".join([tell(), *map(self.log, GROUPS)])
            _pause(self.processes)

    def log(self, group: str) -> str:
        """The end of what a process said."""
        return (self.directory / f"{group}.log").read_text()[-1500:]


def _pause(processes: Mapping[str, subprocess.Popen[bytes]]) -> None:
    """Wait a moment, less where a process ends."""
    try:
        next(iter(processes.values())).wait(_POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return


@contextmanager
def running(kafka: str, clickhouse: ClickHouseEndpoint, directory: Path) -> Iterator[Pipeline]:
    """The three processes for the length of the block."""
    name = uuid.uuid4().hex[:8]
    create_root_secret(directory / "secrets" / "root")
    password = directory / "clickhouse-password"
    password.write_text(clickhouse.password)
    values = {
        "DATA_DIR": str(directory),
        "KAFKA__BOOTSTRAP_SERVERS": kafka,
        "KAFKA__NUM_PARTITIONS": str(NUM_PARTITIONS),
        "KAFKA__TOPIC_PREFIX": f"hostile-{name}.",
        "CLICKHOUSE__HOST": clickhouse.host,
        "CLICKHOUSE__PORT": str(clickhouse.port),
        "CLICKHOUSE__USER": clickhouse.user,
        "CLICKHOUSE__PASSWORD_FILE": str(password),
        "CLICKHOUSE__DATABASE": f"hostile_{name}",
        "REDACTION__TIER": "regex",
        "ASSEMBLY__TICK_SECONDS": "0.5",
    }
    nested: dict[str, dict[str, str]] = {}
    for path, value in values.items():
        section, _, inner = path.lower().partition("__")
        if inner:
            nested.setdefault(section, {})[inner] = value
    settings = Settings.model_validate({"data_dir": directory, **nested})
    bus = KafkaBus.from_settings(settings.kafka)
    admin = bus.admin()
    admin.create_topics(topics.all_topics(), NUM_PARTITIONS, 1)
    admin.close()
    store, _ = open_migrated(settings, wait_seconds=10, pause=time.sleep)
    pipeline = Pipeline(settings, bus, directory, store)
    environment = {f"HEADRACE_{path}": value for path, value in values.items()}
    with ExitStack() as stack:
        for group in GROUPS:
            output = stack.enter_context((directory / f"{group}.log").open("ab"))
            process = start_tethered(
                [sys.executable, "-m", group], log=output, environment=os.environ | environment
            )
            pipeline.processes[group] = process
            stack.callback(stop_process, process)
        stack.callback(store.close)
        yield pipeline
