"""The bus on a real broker, through librdkafka. The only importer of confluent_kafka."""

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from confluent_kafka import OFFSET_END, ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import Consumer as RdConsumer
from confluent_kafka import Producer as RdProducer
from confluent_kafka import TopicPartition as RdPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from schemas.bus.api import Delivery, OnDelivery, Position, Received, Record
from schemas.errors import ConfigError, HeadraceError, PermanentError, Reason, TransientError
from schemas.topics import Topic

_REQUEST_SECONDS = 15.0
_HOUR_MS = 3_600_000
#: The broker makes it when the first group appears.
_OFFSETS_TOPIC = "__consumer_offsets"

# librdkafka writes a line to stderr for each failed connect; a logger of our own keeps them quiet
# below warning level and in the log's format.
_log = logging.getLogger("headrace.bus")
_log.setLevel(logging.CRITICAL)


def translate(error: Any) -> HeadraceError:
    """The outcome that a librdkafka error means for us."""
    code = error.code()
    if code in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
        return PermanentError(Reason.OVERSIZED)
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return ConfigError("A topic does not exist. `headrace up` creates all topics.")
    return TransientError(f"Kafka: {error.name()}")


class KafkaBus:
    """A cluster by its bootstrap servers."""

    def __init__(
        self,
        bootstrap_servers: str,
        max_record_bytes: int = 1_048_576,
        *,
        delivery_timeout_seconds: float = 120.0,
        request_seconds: float = 15.0,
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._max_record_bytes = max_record_bytes
        self._delivery_timeout_seconds = delivery_timeout_seconds
        self._request_seconds = request_seconds

    def _common(self) -> dict[str, Any]:
        return {"bootstrap.servers": self._bootstrap_servers, "logger": _log}

    def producer(self, client_id: str) -> "KafkaProducer":
        limits: dict[str, Any] = {
            "message.max.bytes": self._max_record_bytes,
            "delivery.timeout.ms": int(self._delivery_timeout_seconds * 1000),
        }
        return KafkaProducer({**self._common(), **limits}, client_id)

    def consumer(self) -> "KafkaConsumer":
        return KafkaConsumer(self._common())

    def admin(self) -> "KafkaAdmin":
        return KafkaAdmin(self._common(), self._request_seconds)


class KafkaProducer:
    """Idempotent producer. A fatal error ends librdkafka's object, so a new one is built.

    Records in flight at that moment are reported as TransientError; their owner sends them again.
    Reports come from a thread of its own; a callback that raises ends it, and the next `send`
    says so.
    """

    def __init__(self, common: dict[str, Any], client_id: str) -> None:
        self._config = {
            **common,
            "client.id": client_id,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 100_000,
            "queue.buffering.max.kbytes": 262_144,
            # How long a topic that nobody knows yet may still appear.
            "topic.metadata.propagation.max.ms": 10_000,
        }
        self._is_fatal = threading.Event()
        self._producer = RdProducer(self._config)
        self._closed = threading.Event()
        self._poller = threading.Thread(target=self._poll, name=f"bus-{client_id}", daemon=True)
        self._poller.start()

    def _poll(self) -> None:
        while not self._closed.is_set():
            producer = self._producer
            try:
                producer.poll(0.1)
            except KafkaException as error:
                self._note_fatal(producer, error)
            if self._is_fatal.is_set():
                self._rebuild()

    def _note_fatal(self, producer: Any, error: KafkaException) -> None:
        """A fatal error is raised once, to whoever serves events first, and refuses every record
        from then on. Errors that are not fatal are reported record by record."""
        ended = error.args[0].fatal() or error.args[0].code() == KafkaError._FATAL
        if ended and producer is self._producer:
            self._is_fatal.set()

    def _rebuild(self) -> None:
        """Runs on the poller alone. Meanwhile the old object refuses every record."""
        # Nobody polls the old object again: its reports must come now, or its records' owners
        # would wait for them for ever.
        self._producer.purge()
        with suppress(KafkaException):  # the fatal error itself, told once more
            self._producer.flush(_REQUEST_SECONDS)
        self._producer = RdProducer(self._config)
        self._is_fatal.clear()

    def send(self, record: Record, on_delivery: OnDelivery) -> None:
        def report(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                on_delivery(Delivery(record.topic, error=translate(error)))
            else:
                on_delivery(Delivery(record.topic, message.partition(), message.offset()))

        if not self._poller.is_alive():
            raise RuntimeError("the producer is closed, or a delivery callback raised")
        arguments: dict[str, Any] = {"key": record.key, "value": record.value}
        if record.headers:
            arguments["headers"] = list(record.headers)
        if record.partition is not None:
            arguments["partition"] = record.partition
        producer = self._producer
        try:
            producer.produce(record.topic, on_delivery=report, **arguments)
        except BufferError as error:
            raise TransientError(
                "The producer's queue is full.", retry_after_seconds=0.1
            ) from error
        except KafkaException as error:
            self._note_fatal(producer, error)
            raise translate(error.args[0]) from error

    def flush(self, timeout_seconds: float) -> int:
        producer = self._producer
        try:
            return int(producer.flush(timeout_seconds))
        except KafkaException as error:
            self._note_fatal(producer, error)
            return len(producer)

    def close(self) -> None:
        self.flush(_REQUEST_SECONDS)
        self._closed.set()
        self._poller.join(timeout=5)


class KafkaConsumer:
    """Reads assigned partitions. The group id is required by librdkafka and never committed to."""

    def __init__(self, common: dict[str, Any]) -> None:
        self._consumer = RdConsumer(
            {
                **common,
                "group.id": "headrace.reader",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
            }
        )
        self._error: HeadraceError | None = None

    def assign(self, positions: Mapping[Position, int]) -> None:
        self._consumer.assign([RdPartition(t, p, o) for (t, p), o in positions.items()])

    def poll(self, max_records: int, timeout_seconds: float) -> list[Received]:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        received: list[Received] = []
        try:
            messages: list[Any] = self._consumer.consume(max_records, timeout_seconds)
        except KafkaException as failure:
            raise translate(failure.args[0]) from failure
        for message in messages:
            if message.error() is not None:
                # The records beside it are consumed: they are returned, it is raised next time.
                self._error = translate(message.error())
                continue
            received.append(
                Received(
                    message.topic(), message.partition(), message.offset(), message.key(),
                    message.value(), tuple(message.headers() or ()), message.timestamp()[1],
                )
            )  # fmt: skip
        if self._error is not None and not received:
            return self.poll(max_records, timeout_seconds)
        return received

    def close(self) -> None:
        self._consumer.close()


class KafkaAdmin:
    """Administration of the cluster; every call is bounded in time."""

    def __init__(self, common: dict[str, Any], request_seconds: float) -> None:
        self._common = common
        self._seconds = request_seconds
        self._admin = AdminClient(common)

    def create_topics(
        self, topics: Iterable[Topic], num_partitions: int, replication_factor: int
    ) -> list[str]:
        existing = self.topics()
        missing = [t for t in topics if t.name not in existing]
        if not missing:
            return []
        new = [
            NewTopic(t.name, t.partitions or num_partitions, replication_factor, config=_config(t))
            for t in missing
        ]
        futures = self._admin.create_topics(new, request_timeout=self._seconds)
        for future in futures.values():
            self._result(future, ignore=KafkaError.TOPIC_ALREADY_EXISTS)
        names = [t.name for t in missing]
        self._wait(lambda: set(names) <= set(self.topics()))
        for name in names:
            self._wait(functools.partial(self._is_led, name))
        return names

    def _is_led(self, name: str) -> bool:
        """A new topic shows in the metadata before its partitions have leaders that answer."""
        try:
            self.watermarks(name)
        except TransientError:
            return False
        return True

    def delete_topics(self, names: Sequence[str]) -> None:
        existing = [name for name in names if name in self.topics()]
        if not existing:
            return
        for future in self._admin.delete_topics(existing, request_timeout=self._seconds).values():
            self._result(future, ignore=KafkaError.UNKNOWN_TOPIC_OR_PART)
        self._wait(lambda: not set(existing) & set(self.topics()))

    def _wait(self, condition: Callable[[], bool]) -> None:
        """Metadata follows an acknowledged change within moments; bounded all the same."""
        deadline = time.monotonic() + self._seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TransientError("The broker's metadata did not follow the change.")
            time.sleep(0.05)

    def topics(self) -> dict[str, int]:
        try:
            metadata = self._admin.list_topics(timeout=self._seconds)
        except KafkaException as error:
            raise translate(error.args[0]) from error
        return {name: len(t.partitions) for name, t in metadata.topics.items()}

    def watermarks(self, topic: str) -> dict[int, tuple[int, int]]:
        count = self.topics().get(topic)
        if count is None:
            raise ConfigError(f"Topic {topic} does not exist. `headrace up` creates all topics.")
        with _reader(self._common) as consumer:
            return {
                p: consumer.get_watermark_offsets(RdPartition(topic, p), timeout=self._seconds)
                for p in range(count)
            }

    def offsets_at(self, topic: str, at: datetime) -> dict[int, int]:
        ends = self.watermarks(topic)
        milliseconds = int(at.timestamp() * 1000)
        wanted = [RdPartition(topic, p, milliseconds) for p in ends]
        with _reader(self._common) as consumer:
            found = consumer.offsets_for_times(wanted, timeout=self._seconds)
        return {
            f.partition: ends[f.partition][1] if f.offset in (-1, OFFSET_END) else f.offset
            for f in found
        }

    def committed(self, group: str, topics: Sequence[str]) -> dict[Position, int]:
        # On a broker where no group ever was, this request ends the process inside the library.
        if _OFFSETS_TOPIC not in self.topics():
            return {}
        futures = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=self._seconds
        )
        found = self._result(futures[group]).topic_partitions or []
        return {
            (f.topic, f.partition): f.offset for f in found if f.topic in topics and f.offset >= 0
        }

    def commit(self, group: str, offsets: Mapping[Position, int]) -> None:
        partitions = [RdPartition(t, p, o) for (t, p), o in offsets.items()]
        request = [ConsumerGroupTopicPartitions(group, partitions)]
        futures = self._admin.alter_consumer_group_offsets(request, request_timeout=self._seconds)
        for partition in self._result(futures[group]).topic_partitions:
            if partition.error is not None:
                raise translate(partition.error)

    def num_members(self, group: str) -> int:
        futures = self._admin.describe_consumer_groups([group], request_timeout=self._seconds)
        try:
            return len(self._result(futures[group]).members)
        except TransientError as error:
            if "GROUP_ID_NOT_FOUND" in str(error):
                return 0
            raise

    def _result(self, future: "Future[Any]", ignore: int | None = None) -> Any:
        try:
            return future.result(timeout=self._seconds + 1)  # the request itself ends sooner
        except FutureTimeoutError as error:
            raise TransientError("Kafka: no answer to an admin request") from error
        except KafkaException as error:
            if error.args[0].code() == ignore:
                return None
            raise translate(error.args[0]) from error

    def close(self) -> None:
        """librdkafka's admin client has nothing to release."""


@contextmanager
def _reader(common: dict[str, Any]) -> Iterator[Any]:
    """A consumer to ask for offsets with, its errors translated."""
    consumer = RdConsumer({**common, "group.id": "headrace.reader"})
    try:
        yield consumer
    except KafkaException as error:
        raise translate(error.args[0]) from error
    finally:
        consumer.close()


def _config(topic: Topic) -> dict[str, str]:
    config = {"cleanup.policy": topic.cleanup, "max.message.bytes": str(topic.max_bytes)}
    if topic.cleanup != "compact":
        config["retention.ms"] = str(int(topic.retention_hours * _HOUR_MS))
    return config
