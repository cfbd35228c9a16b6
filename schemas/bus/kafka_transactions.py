"""Transactions on a real broker, through librdkafka."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as RdProducer

from schemas.bus.access import KafkaAccess
from schemas.bus.api import Delivery, FencedError, OnDelivery, Record
from schemas.bus.kafka_client import Refusals, make_client
from schemas.errors import TransientError

#: A process that dies inside a transaction holds readers up for this long, unless a new one with
#: the same id comes first.
_TRANSACTION_SECONDS = 60.0
_CLOSE_SECONDS = 5.0
_FENCED = {
    KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH,
}  # fmt: skip


class KafkaTransactions:
    """One transactional producer. After a fatal error make a new one."""

    def __init__(
        self,
        access: KafkaAccess,
        transactional_id: str,
        max_record_bytes: int,
        request_seconds: float,
    ) -> None:
        self._access = access
        self._id = transactional_id
        self._seconds = request_seconds
        self._refusals = Refusals(access)
        config = {
            **self._refusals.config(),
            "client.id": transactional_id,
            "transactional.id": access.physical(transactional_id),
            "transaction.timeout.ms": int(_TRANSACTION_SECONDS * 1000),
            "delivery.timeout.ms": int(_TRANSACTION_SECONDS * 1000),
            "message.max.bytes": max_record_bytes,
            "partitioner": "murmur2_random",
            "acks": "all",
            "linger.ms": 0,
            "topic.metadata.propagation.max.ms": 5_000,
        }
        self._producer: Any = make_client(RdProducer, config)
        self._call(self._producer.init_transactions)

    def _call(self, request: Callable[[float], Any]) -> None:
        """Ask until it is done, for as long as the answer is to ask again."""
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                request(max(deadline - time.monotonic(), 0.1))
            except KafkaException as failure:
                error: Any = failure.args[0]
                if error.code() in _FENCED:
                    raise FencedError(self._id) from failure
                if not error.retriable() or time.monotonic() > deadline:
                    raise self._refusals.translate(error) from failure
            else:
                return

    def begin(self) -> None:
        self._call(lambda _: self._producer.begin_transaction())

    def send(self, record: Record, on_delivery: OnDelivery) -> None:
        def report(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                on_delivery(Delivery(record.topic, error=self._refusals.of_delivery(error)))
            else:
                on_delivery(Delivery(record.topic, message.partition(), message.offset()))

        arguments: dict[str, Any] = {"key": record.key, "value": record.value}
        if record.headers:
            arguments["headers"] = list(record.headers)
        if record.partition is not None:
            arguments["partition"] = record.partition
        topic = self._access.physical(record.topic)
        try:
            self._producer.produce(topic, on_delivery=report, **arguments)
        except BufferError as error:
            raise TransientError(
                "The producer's queue is full.", retry_after_seconds=0.1
            ) from error
        except KafkaException as failure:
            if failure.args[0].code() in _FENCED:
                raise FencedError(self._id) from failure
            raise self._refusals.of_delivery(failure.args[0]) from failure

    def commit(self) -> None:
        # It flushes by itself. `flush` raises a fatal error while a callback's is pending too.
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction)

    def close(self) -> None:
        """What is open is aborted by whoever comes next, or by the broker after a minute."""
        self._producer.purge()
        with suppress(KafkaException, SystemError):  # a fenced producer says so once more, or twice
            self._producer.flush(_CLOSE_SECONDS)
