"""Events onto `raw.events.v1`: at most one window of them is in flight, every report is awaited."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from inference.capture.feedback import kafka_key
from infra.publishing.documents import Problem
from schemas import codec, topics
from schemas.atdp.types import Feedback
from schemas.bus import Producer, Record, deliver
from schemas.errors import PermanentError
from schemas.ids import trajectory_key

MAX_IN_FLIGHT = 500


def record_of(event: Any, where: str, max_bytes: int) -> Record | Problem:
    """The record of an event, or the Problem that keeps it off the topic."""
    try:
        value = codec.encode(event)
    except PermanentError:
        return Problem(where, None, "a value does not fit its schema, such as a lone surrogate.")
    if len(value) > max_bytes:
        return Problem(
            where,
            None,
            f"the event has {len(value)} bytes, more than the {max_bytes} of the setting "
            "kafka.max_record_bytes. Split it, or skip it with --keep-going.",
        )
    header = ("content-type", codec.AVRO_CONTENT_TYPE)
    return Record(topics.RAW_EVENTS, _key(event), value, (header,))


def send(producer: Producer, records: Iterable[Record], on_sent: Callable[[int], None]) -> int:
    """Deliver all records; the number that the broker confirmed. Raises what the bus raises."""
    return asyncio.run(_send(producer, records, on_sent))


async def _send(
    producer: Producer, records: Iterable[Record], on_sent: Callable[[int], None]
) -> int:
    count = 0
    for window in _windows(records):
        await deliver(producer, window)
        count += len(window)
        on_sent(len(window))
    return count


def _windows(records: Iterable[Record]) -> Iterator[list[Record]]:
    iterator = iter(records)
    while window := list(islice(iterator, MAX_IN_FLIGHT)):
        yield window


def _key(event: Any) -> bytes:
    if isinstance(event, Feedback):
        return kafka_key(event.tenant_id, event.target)
    return trajectory_key(event.tenant_id, event.trajectory_id)
