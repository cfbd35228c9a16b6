"""The bus on a real broker, through librdkafka. Only this package imports confluent_kafka."""

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer as RdConsumer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as RdProducer
from confluent_kafka import TopicPartition as RdPartition

from schemas.bus.access import KafkaAccess
from schemas.bus.api import Delivery, OnDelivery, Position, Received, Record
from schemas.bus.kafka_admin import KafkaAdmin
from schemas.bus.kafka_client import Refusals, make_client
from schemas.bus.kafka_transactions import KafkaTransactions
from schemas.errors import HeadraceError, TransientError
from schemas.settings import KafkaSettings

_CLOSE_SECONDS = 15.0
#: The broker sends a record that is larger all the same, as the first of an answer.
_ONE_BY_ONE = {
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1_024,
    "fetch.message.max.bytes": 1_024,
    "fetch.max.bytes": 1_024**2,
}


class KafkaBus:
    """A cluster. A plain text names the servers of one that asks for nothing."""

    def __init__(
        self,
        access: KafkaAccess | str,
        max_record_bytes: int = 1_048_576,
        *,
        delivery_timeout_seconds: float | None = 120.0,
        request_seconds: float = 15.0,
        transaction_seconds: float = 40.0,
        linger_seconds: float = 0.002,
    ) -> None:
        """A record that no broker took for `delivery_timeout_seconds` is reported as failed while
        younger ones of its key may still be taken: whoever sends it again then changes the order.
        With None nothing is given up and records of a key stay in their order for good, at the
        price of a report that comes as late as the broker.

        A record waits `linger_seconds` for others that go in the same request."""
        self._access = KafkaAccess(access) if isinstance(access, str) else access
        self._max_record_bytes = max_record_bytes
        self._delivery_timeout_seconds = delivery_timeout_seconds
        self._request_seconds = request_seconds
        self._transaction_seconds = transaction_seconds
        self._linger_seconds = linger_seconds

    @classmethod
    def from_settings(cls, kafka: KafkaSettings, **options: Any) -> "KafkaBus":
        """The cluster that settings name; `options` are those of the constructor.

        ConfigError for settings that contradict each other or name files that are not there.
        """
        return cls(KafkaAccess.from_settings(kafka), **options)

    def producer(self, client_id: str, *, compress: bool = True) -> "KafkaProducer":
        limits: dict[str, Any] = {
            "message.max.bytes": self._max_record_bytes,
            # to librdkafka 0 means without end
            "delivery.timeout.ms": int((self._delivery_timeout_seconds or 0) * 1000),
            "linger.ms": self._linger_seconds * 1000,
        }
        if not compress:
            limits["compression.type"] = "none"
        return KafkaProducer(self._access, limits, client_id)

    def transactions(self, transactional_id: str) -> KafkaTransactions:
        return KafkaTransactions(
            self._access, transactional_id, self._max_record_bytes, self._transaction_seconds
        )

    def consumer(self, *, reads_ahead: bool = True) -> "KafkaConsumer":
        return KafkaConsumer(self._access, {} if reads_ahead else _ONE_BY_ONE)

    def admin(self) -> KafkaAdmin:
        return KafkaAdmin(self._access, self._request_seconds)


def _received(position: Position, message: Any) -> Received:
    """The library's message as ours, without headers where the name of one is no text.

    The library cannot read such a name: it returns a list with a hole and leaves its error
    pending, which the next object that is made raises. So the headers are asked for last, and
    nobody looks into that list.
    """
    bare = Received(
        *position, message.offset(), message.key(), message.value(), (), message.timestamp()[1]
    )
    try:
        return replace(bare, headers=tuple(message.headers() or ()))
    except (UnicodeDecodeError, SystemError):
        return bare


class KafkaProducer:
    """Idempotent producer. A fatal error ends librdkafka's object, so a new one is built.

    Records in flight at that moment are reported as TransientError; their owner sends them again.
    Reports come from a thread of its own; a callback that raises ends it, and the next `send`
    says so.
    """

    def __init__(self, access: KafkaAccess, limits: dict[str, Any], client_id: str) -> None:
        self._access = access
        self._refusals = Refusals(access)
        self._config = {
            **self._refusals.config(),
            "client.id": client_id,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "acks": "all",
            "compression.type": "lz4",
            "queue.buffering.max.messages": 100_000,
            "queue.buffering.max.kbytes": 262_144,
            # How long a topic that nobody knows yet may still appear.
            "topic.metadata.propagation.max.ms": 10_000,
            **limits,
        }
        self._is_fatal = threading.Event()
        self._producer: Any = make_client(RdProducer, self._config)
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
            self._producer.flush(_CLOSE_SECONDS)
        self._producer = RdProducer(self._config)
        self._is_fatal.clear()

    def send(self, record: Record, on_delivery: OnDelivery) -> None:
        def report(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                on_delivery(Delivery(record.topic, error=self._refusals.of_delivery(error)))
            else:
                self._refusals.forget()
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
            topic = self._access.physical(record.topic)
            producer.produce(topic, on_delivery=report, **arguments)
        except BufferError as error:
            raise TransientError(
                "The producer's queue is full.", retry_after_seconds=0.1
            ) from error
        except KafkaException as error:
            self._note_fatal(producer, error)
            raise self._refusals.of_delivery(error.args[0]) from error

    def flush(self, timeout_seconds: float) -> int:
        producer = self._producer
        try:
            return int(producer.flush(timeout_seconds))
        except KafkaException as error:
            self._note_fatal(producer, error)
            return len(producer)

    def trouble(self) -> str:
        return self._refusals.trouble()

    def close(self) -> None:
        self.flush(_CLOSE_SECONDS)
        self._closed.set()
        self._poller.join(timeout=5)


class KafkaConsumer:
    """Reads assigned partitions. The group id is required by librdkafka and never committed to."""

    def __init__(self, access: KafkaAccess, limits: Mapping[str, int]) -> None:
        self._access = access
        self._refusals = Refusals(access)
        self._consumer: Any = make_client(
            RdConsumer,
            {
                **self._refusals.config(),
                "group.id": access.physical("headrace.reader"),
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                **limits,
            },
        )
        self._error: HeadraceError | None = None
        #: Partition → whether its end was the last thing heard of it.
        self._ended: dict[Position, bool] = {}

    def assign(self, positions: Mapping[Position, int]) -> None:
        self._ended = dict.fromkeys(positions, False)
        self._consumer.assign(
            [RdPartition(self._access.physical(t), p, o) for (t, p), o in positions.items()]
        )

    def poll(self, max_records: int, timeout_seconds: float) -> list[Received]:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        received: list[Received] = []
        try:
            messages: list[Any] = self._consumer.consume(max_records, timeout_seconds)
        except KafkaException as failure:
            raise self._refusals.translate(failure.args[0]) from failure
        for message in messages:
            error = message.error()
            position = self._access.logical(message.topic() or ""), message.partition()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                self._ended[position] = error is not None
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                continue
            if error is not None:
                # The records beside it are consumed: they are returned, it is raised next time.
                self._error = self._refusals.translate(error)
                continue
            received.append(_received(position, message))
        if self._error is not None and not received:
            return self.poll(max_records, timeout_seconds)
        return received

    def at_end(self) -> bool:
        return all(self._ended.values())

    def close(self) -> None:
        self._consumer.close()
