"""Lots say what Faust's own iterator says, of the same channel."""

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import faust
import pytest
from faust.events import Event
from faust.sensors import Sensor
from faust.types import TP
from faust.types.tuples import ConsumerMessage
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.runtime.lots import MAX_LOT, _behind, lots

IN = TP("in", 0)
CURRENT = 3


class Seen(Sensor):
    """What Faust's sensors are told of."""

    def __init__(self) -> None:
        self.tracked: list[int] = []
        self.given: list[int] = []
        super().__init__()

    def on_message_in(self, tp: Any, offset: int, message: Any) -> None:  # noqa: ARG002 - Faust's
        self.tracked.append(offset)

    def on_stream_event_in(self, tp: Any, offset: int, stream: Any, event: Any) -> None:  # noqa: ARG002
        self.given.append(offset)


class World:
    """A stream over a channel in which records lie, one offset after the other."""

    def __init__(self, generations: Sequence[int]) -> None:
        self.app: Any = faust.App("test", broker="kafka://127.0.0.1:1", web_enabled=False)
        self.app.consumer_generation_id = CURRENT
        self.app.flow_control.resume()
        self.app.topics._acking_topics.add(IN.topic)
        self.seen = Seen()
        self.app.sensors.add(self.seen)
        topic = self.app.topic(
            IN.topic, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw"
        )
        self.stream = topic.stream()
        self.stream.enable_acks = False
        self.messages = [self._message(*pair) for pair in enumerate(generations)]
        for message in self.messages:
            self.stream.channel.queue.put_nowait(
                Event(self.app, message.key, message.value, message.headers, message)
            )

    def close(self) -> None:
        """Faust made a loop for a thread that never starts."""
        self.app.consumer._thread.thread_loop.close()

    def _message(self, offset: int, generation: int) -> ConsumerMessage:
        fields = (*IN, offset, 1.0, 0, (), b"k", b"v", None)
        return ConsumerMessage(*fields, tp=IN, generation_id=generation)

    async def lots(self, number: int) -> list[list[int]]:
        """Offsets, lot by lot, until so many records came."""
        found: list[list[int]] = []
        async for lot in lots(self.stream):
            found.append([event.message.offset for event in lot])
            if sum(map(len, found)) >= number:
                break
        return found

    async def events(self, number: int) -> list[int]:
        """The same from Faust's own iterator."""
        found: list[int] = []
        async for event in self.stream.events():
            found.append(event.message.offset)
            if len(found) == number:
                break
        return found

    def told(self) -> tuple[list[int], list[int], list[bool], set[int]]:
        unacked = {message.offset for message in self.app.consumer.unacked}
        return self.seen.tracked, self.seen.given, [m.tracked for m in self.messages], unacked


@given(st.lists(st.sampled_from([CURRENT, CURRENT, CURRENT - 1]), max_size=2 * MAX_LOT + 3))
@settings(max_examples=15, deadline=None)
async def test_lots_are_what_the_iterator_of_faust_gives(generations: list[int]) -> None:
    generations.append(CURRENT)  # so that neither has to wait for the last one
    number = generations.count(CURRENT)
    with closing(World(generations)) as theirs, closing(World(generations)) as ours:
        found = await ours.lots(number)
        assert [offset for lot in found for offset in lot] == await theirs.events(number)
        assert max(map(len, found)) <= MAX_LOT
        assert ours.told() == theirs.told()


async def test_all_that_lies_there_comes_at_once() -> None:
    with closing(World([CURRENT] * (MAX_LOT + 5))) as world:
        assert list(map(len, await world.lots(MAX_LOT + 5))) == [MAX_LOT, 5]


async def test_large_records_come_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.runtime.lots.MAX_LOT_BYTES", 6)  # each has two
    with closing(World([CURRENT] * 7)) as world:
        assert await world.lots(7) == [[0, 1, 2], [3, 4, 5], [6]]


async def test_what_lay_there_when_the_flow_stopped_does_not_come() -> None:
    """It is fetched again, so it would come twice."""
    with closing(World([CURRENT] * 4)) as world:
        event = await anext(aiter(world.stream.events()))
        world.app.flow_control.suspend()
        assert event.message.offset == 0
        assert _behind(world.stream, 1) == []
        assert world.told()[:2] == ([0], [0])


async def test_an_error_in_the_channel_comes_after_what_was_taken() -> None:
    with closing(World([CURRENT] * 2)) as world:
        found = lots(world.stream)
        assert [event.message.offset for event in await anext(found)] == [0, 1]
        await world.stream.channel.queue.throw(ConnectionError())
        with pytest.raises(ConnectionError):
            await anext(found)


async def test_an_error_that_lies_there_ends_a_lot() -> None:
    with closing(World([CURRENT] * 2)) as world:
        await world.stream.channel.queue.throw(ConnectionError())
        assert _behind(world.stream, 1) == []
        with pytest.raises(ConnectionError):
            await world.events(1)
