"""What fails while records are taken in stops the process: nothing behind it may be committed."""

import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from schemas.bus import Received
from schemas.telemetry import Metrics
from streams.runtime.pump import Pump
from streams.runtime.shell import feeding


class NoLane:
    """Nothing gets as far as this."""

    async def process(self, records: Any) -> list[Received]:
        raise AssertionError(records)

    def forget(self, topic: str, partition: int) -> None:
        raise AssertionError(topic, partition)


class Stream:
    """Gives something that is no event."""

    enable_acks = True

    async def events(self) -> AsyncIterator[Any]:
        yield object()


async def test_a_bug_while_records_are_taken_in_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)

    async def acknowledge(event: Any) -> None:
        raise AssertionError(event)

    pump = Pump(
        group="g", lane=NoLane(), acknowledge=acknowledge, metrics=Metrics(),
        max_batch=10, linger_seconds=0.01,
    )  # fmt: skip
    stream = Stream()
    await feeding(pump)(stream)
    assert codes == [1]
    assert stream.enable_acks is False
