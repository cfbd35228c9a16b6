"""Topics, watermarks and the offsets of groups on a real cluster, through librdkafka."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

from confluent_kafka import OFFSET_END, ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import Consumer as RdConsumer
from confluent_kafka import TopicPartition as RdPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from schemas.bus.access import KafkaAccess
from schemas.bus.api import Position
from schemas.bus.kafka_client import Refusals, make_client
from schemas.errors import ConfigError, TransientError
from schemas.topics import Topic

Answer = TypeVar("Answer")

#: Untyped in the library.
_OFFSET_SPEC: Any = OffsetSpec
_HOUR_MS = 3_600_000
#: A broker under load, with many topics to make, takes its time.
_CHANGE_SECONDS = 60.0
#: A refusal shows only between two attempts, so the first ones are short.
_FIRST_ATTEMPT_SECONDS = 1.0
#: The broker's words for a group whose coordinator is being elected, moved or loaded.
_UNCOORDINATED = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}


class KafkaAdmin:
    """Administration of the cluster; every call is bounded in time."""

    def __init__(self, access: KafkaAccess, request_seconds: float) -> None:
        self._access = access
        self._seconds = request_seconds
        self._refusals = Refusals(access)
        self._admin = make_client(AdminClient, self._refusals.config())

    def create_topics(
        self, topics: Iterable[Topic], num_partitions: int, replication_factor: int
    ) -> list[str]:
        existing = self.topics()
        missing = [t for t in topics if t.name not in existing]
        if not missing:
            return []
        new = [
            NewTopic(
                self._access.physical(t.name),
                t.partitions or num_partitions,
                replication_factor,
                config=topic_config(t, replication_factor),
            )
            for t in missing
        ]
        futures = self._admin.create_topics(new, request_timeout=self._seconds)
        for future in futures.values():
            self._result(future, ignore=KafkaError.TOPIC_ALREADY_EXISTS)
        names = [t.name for t in missing]
        self._wait(lambda: self._are_led(names))
        return names

    def _are_led(self, names: Sequence[str]) -> bool:
        """A new topic shows in the metadata before its partitions have leaders that answer, and
        brokers learn of it one after the other."""
        try:
            found = self.extents(names)
        except (TransientError, ConfigError):
            return False
        return {topic for topic, _ in found} == set(names)

    def delete_topics(self, names: Sequence[str]) -> None:
        known = self.topics()
        existing = [name for name in names if name in known]
        if not existing:
            return
        physical = [self._access.physical(name) for name in existing]
        for future in self._admin.delete_topics(physical, request_timeout=self._seconds).values():
            self._result(future, ignore=KafkaError.UNKNOWN_TOPIC_OR_PART)
        self._wait(lambda: not set(existing) & set(self.topics()))

    def _wait(self, condition: Callable[[], bool]) -> None:
        """Metadata follows an acknowledged change within moments; bounded all the same."""
        deadline = time.monotonic() + max(self._seconds, _CHANGE_SECONDS)
        while not condition():
            if time.monotonic() > deadline:
                raise TransientError("The broker's metadata did not follow the change.")
            time.sleep(0.05)

    def topics(self) -> dict[str, int]:
        return {
            self._access.logical(name): count
            for name, count in self._all_topics().items()
            if name.startswith(self._access.prefix)
        }

    def _all_topics(self) -> dict[str, int]:
        """Every topic of the cluster by its name there. ConfigError once the cluster refuses us."""
        left, attempt = self._seconds, _FIRST_ATTEMPT_SECONDS
        while True:
            try:
                metadata = self._admin.list_topics(timeout=min(attempt, left))
            except KafkaException as error:
                left -= attempt
                attempt *= 2
                self._admin.poll(0)  # runs the callback that says why
                if left <= 0 or self._refusals.is_refused:
                    raise self._refusals.translate(error.args[0]) from error
            else:
                self._refusals.forget()
                return {name: len(t.partitions) for name, t in metadata.topics.items()}

    def watermarks(self, topic: str) -> dict[int, tuple[int, int]]:
        count = self.topics().get(topic)
        if count is None:
            raise ConfigError(f"Topic {topic} does not exist. `headrace up` creates all topics.")
        name = self._access.physical(topic)
        with _reader(self._access) as consumer:
            return {
                p: consumer.get_watermark_offsets(RdPartition(name, p), timeout=self._seconds)
                for p in range(count)
            }

    def extents(self, topics: Sequence[str]) -> dict[Position, tuple[int, int]]:
        known = self.topics()
        positions = [(topic, p) for topic in topics for p in range(known.get(topic, 0))]
        first = self._listed(positions, _OFFSET_SPEC.earliest())
        end = self._listed(positions, _OFFSET_SPEC.latest())
        return {position: (first[position], end[position]) for position in positions}

    def _listed(self, positions: Sequence[Position], which: Any) -> dict[Position, int]:
        if not positions:
            return {}
        wanted = {RdPartition(self._access.physical(t), p): which for t, p in positions}
        futures = self._admin.list_offsets(wanted, request_timeout=self._seconds)
        return {
            (self._access.logical(partition.topic), partition.partition): (
                self._result(future).offset
            )
            for partition, future in futures.items()
        }

    def offsets_at(self, topic: str, at: datetime) -> dict[int, int]:
        ends = self.watermarks(topic)
        milliseconds = int(at.timestamp() * 1000)
        wanted = [RdPartition(self._access.physical(topic), p, milliseconds) for p in ends]
        with _reader(self._access) as consumer:
            found = consumer.offsets_for_times(wanted, timeout=self._seconds)
        return {
            f.partition: ends[f.partition][1] if f.offset in (-1, OFFSET_END) else f.offset
            for f in found
        }

    def committed(self, group: str, topics: Sequence[str]) -> dict[Position, int]:
        """Asked as the group's own consumer would, without joining it.

        librdkafka's admin client has a request for this as well. It ends the process when the
        coordinator of the group has moved or is not up yet: after a restart of the broker, say.
        """
        counts = self.topics()
        positions = [(t, p) for t in topics for p in range(counts.get(t, 0))]
        if not positions:
            return {}
        wanted = [RdPartition(self._access.physical(t), p) for t, p in positions]
        with _reader(self._access, group) as consumer:
            found = _once_coordinated(
                lambda seconds: consumer.committed(wanted, timeout=seconds), self._seconds
            )
        for partition in found:
            if partition.error is not None:
                raise self._refusals.translate(partition.error)
        offsets = {(self._access.logical(f.topic), f.partition): f.offset for f in found}
        return {position: offset for position, offset in offsets.items() if offset >= 0}

    def commit(self, group: str, offsets: Mapping[Position, int]) -> None:
        name = self._access.physical(group)
        partitions = [RdPartition(self._access.physical(t), p, o) for (t, p), o in offsets.items()]
        request = [ConsumerGroupTopicPartitions(name, partitions)]

        def altered(seconds: float) -> Any:
            futures = self._admin.alter_consumer_group_offsets(request, request_timeout=seconds)
            found = futures[name].result(timeout=seconds + 1).topic_partitions
            for partition in found:
                if partition.error is not None:
                    raise KafkaException(partition.error)
            return found

        self._answer(lambda: _once_coordinated(altered, self._seconds))

    def num_members(self, group: str) -> int:
        name = self._access.physical(group)
        futures = self._admin.describe_consumer_groups([name], request_timeout=self._seconds)
        try:
            return len(self._result(futures[name]).members)
        except TransientError as error:
            if "GROUP_ID_NOT_FOUND" in str(error):
                return 0
            raise

    def _result(self, future: "Future[Any]", ignore: int | None = None) -> Any:
        # the request itself ends sooner
        return self._answer(lambda: future.result(timeout=self._seconds + 1), ignore)

    def _answer(self, ask: Callable[[], Any], ignore: int | None = None) -> Any:
        try:
            return ask()
        except FutureTimeoutError as error:
            raise TransientError("Kafka: no answer to an admin request") from error
        except KafkaException as error:
            if error.args[0].code() == ignore:
                return None
            self._admin.poll(0)
            raise self._refusals.translate(error.args[0]) from error

    def close(self) -> None:
        """librdkafka's admin client has nothing to release."""


def _once_coordinated(ask: Callable[[float], Answer], seconds: float) -> Answer:
    """The answer, within `seconds`, once the group has a coordinator that serves it.

    On a new broker, and after a restart, the coordinator is elected or loads the offsets when the
    first one asks, and says so instead of an answer.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask(max(0.1, deadline - time.monotonic()))
        except KafkaException as error:
            if error.args[0].code() not in _UNCOORDINATED or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


@contextmanager
def _reader(access: KafkaAccess, group: str = "headrace.reader") -> Iterator[Any]:
    """A consumer to ask for offsets with, its errors translated."""
    refusals = Refusals(access)
    config = {**refusals.config(), "group.id": access.physical(group)}
    consumer = make_client(RdConsumer, config)
    try:
        yield consumer
    except KafkaException as error:
        consumer.poll(0)
        raise refusals.translate(error.args[0]) from error
    finally:
        consumer.close()


def topic_config(topic: Topic, replication_factor: int) -> dict[str, str]:
    """What a topic is made with."""
    config = {"cleanup.policy": topic.cleanup, "max.message.bytes": str(topic.max_bytes)}
    if replication_factor > 2:  # of two copies a lost broker would end all writes
        # A record that counts as taken is on two brokers. Kafka's own default is one, and then
        # the loss of a broker may take back what was acknowledged.
        config["min.insync.replicas"] = "2"
    if topic.cleanup != "compact":
        config["retention.ms"] = str(int(topic.retention_hours * _HOUR_MS))
        # The broker's clock, not the producers': theirs may be wrong, and then retention deleted
        # what had just come, or the broker refused what is dated an hour ahead.
        config["message.timestamp.type"] = "LogAppendTime"
    return config
