"""Reading topics record by record, for people: what cannot be decoded comes with its reason."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from schemas import codec, topics
from schemas.bus import Admin, Bus, Position, Received
from schemas.errors import ConfigError, PermanentError, TransientError

_POLL_RECORDS = 500
_POLL_SECONDS = 0.3
#: Without a further record for this long a bounded reading ends: the rest was compacted away.
IDLE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A record and its event. One that cannot be decoded has a reason instead."""

    record: Received
    event: Any | None
    reason: str | None = None


def registered(name: str) -> topics.Topic:
    """The topic of that name. ConfigError for one that headrace does not have."""
    try:
        return topics.topic(name)
    except KeyError:
        raise ConfigError(
            f"{name} is no topic of headrace. `headrace topics` lists them."
        ) from None


def see(record: Received) -> Seen:
    """Decode a record."""
    try:
        return Seen(record, codec.decode(record.value))
    except PermanentError as error:
        return Seen(record, None, str(error))


def read_between(
    bus: Bus, starts: Mapping[Position, int], ends: Mapping[Position, int]
) -> Iterator[Seen]:
    """All records from `starts` up to `ends`, in the order of arrival."""
    waiting = {where for where, start in starts.items() if start < ends[where]}
    if not waiting:
        return
    consumer = bus.consumer()
    consumer.assign({where: starts[where] for where in waiting})
    last = time.monotonic()
    try:
        while waiting and time.monotonic() - last < IDLE_SECONDS:
            for record in consumer.poll(_POLL_RECORDS, _POLL_SECONDS):
                last = time.monotonic()
                where = (record.topic, record.partition)
                if record.offset + 1 >= ends[where]:
                    waiting.discard(where)
                if record.offset < ends[where]:
                    yield see(record)
    finally:
        consumer.close()


def follow(bus: Bus, starts: Mapping[Position, int]) -> Iterator[Seen]:
    """Records from `starts` on, until the reader has enough."""
    consumer = bus.consumer()
    consumer.assign(starts)
    try:
        while True:
            yield from map(see, consumer.poll(_POLL_RECORDS, _POLL_SECONDS))
    finally:
        consumer.close()


def bounds(admin: Admin, topic: str) -> tuple[dict[Position, int], dict[Position, int]]:
    """First offset kept and end of every partition."""
    marks = admin.watermarks(topic)
    starts = {(topic, partition): first for partition, (first, _) in marks.items()}
    return starts, {(topic, partition): end for partition, (_, end) in marks.items()}


def record_at(bus: Bus, admin: Admin, topic: str, partition: int, offset: int) -> Received | None:
    """The record at these coordinates, None when the topic no longer holds it.

    TransientError when the broker does not hand it out in time.
    """
    if topic not in admin.topics():
        return None
    first, end = admin.watermarks(topic).get(partition, (0, 0))
    if not first <= offset < end:
        return None
    consumer = bus.consumer()
    consumer.assign({(topic, partition): offset})
    deadline = time.monotonic() + 3 * IDLE_SECONDS
    try:
        while time.monotonic() < deadline:
            for record in consumer.poll(1, _POLL_SECONDS):
                return record if record.offset == offset else None
    finally:
        consumer.close()
    raise TransientError(f"{topic}/{partition}/{offset} was not handed out in time. Try again.")
