"""A record goes straight into its channel, as Faust's conductor would put it there, or its way."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import faust
import pytest
from faust.types import TP
from faust.types.tuples import ConsumerMessage

from streams.runtime import handover
from streams.runtime.handover import Handover

IN = TP("in", 0)
NUM_PLACES = 10


class World:
    """A topic with one listener whose partition is assigned."""

    def __init__(self) -> None:
        where: dict[str, Any] = {"broker": "kafka://127.0.0.1:1", "web_enabled": False}
        self.app: Any = faust.App("test", stream_buffer_maxsize=NUM_PLACES, **where)
        self.app.flow_control.resume()
        self.channel = self.listen(bytes)
        self.conducted: list[int] = []
        self.states: set[TP] = set()
        self.handover = Handover(self.app, self._conduct, self.states.__contains__)

    def close(self) -> None:
        """Faust makes a loop for a thread that never starts."""
        self.app.consumer._thread.thread_loop.close()

    def listen(self, kind: Any) -> Any:
        topic = self.app.topic(
            IN.topic, key_type=kind, value_type=kind, key_serializer="raw", value_serializer="raw"
        )
        channel = topic.clone(is_iterator=True)
        self.app.topics._topic_name_index[IN.topic].add(channel)
        self.app.topics._tp_index[IN].add(channel)
        return channel

    async def _conduct(self, message: Any) -> None:
        self.conducted.append(message.offset)

    def queued(self) -> list[Any]:
        queue = self.channel.queue
        return [queue.get_nowait() for _ in range(queue.qsize())]


@pytest.fixture
def world() -> Iterator[World]:
    with closing(World()) as made:
        yield made


def message(offset: int = 7) -> ConsumerMessage:
    fields = (*IN, offset, 1.5, 0, [("name", b"value")], b"k", b"v", None)
    return ConsumerMessage(*fields, tp=IN, generation_id=3)


async def test_a_record_lies_in_its_channel_as_if_conducted(world: World) -> None:
    given = message(), message()
    await world.handover(given[0])
    (ours,) = world.queued()
    world.app.topics._update_callback_map()
    await world.app.topics.on_message(given[1])
    (theirs,) = world.queued()
    assert world.conducted == []
    assert (ours.app, ours.key, ours.value, ours.headers) == (world.app, b"k", b"v", theirs.headers)
    assert (theirs.key, theirs.value) == (ours.key, ours.value)
    assert (ours.message, theirs.message) == given
    assert given[0].refcount == given[1].refcount == 1
    assert not given[0].acked


async def test_handing_over_wakes_whoever_waits_without_a_wait_of_its_own(world: World) -> None:
    waiting = asyncio.create_task(world.channel.queue.get())
    await asyncio.sleep(0)
    coroutine = world.handover(message())
    with pytest.raises(StopIteration):
        coroutine.send(None)
    assert (await asyncio.wait_for(waiting, 10.0)).message.offset == 7


def _two_listeners(world: World) -> None:
    world.listen(bytes)


def _no_listener(world: World) -> None:
    world.app.topics._tp_index.clear()


def _other_types(world: World) -> None:
    world.channel.value_type = str


def _pressure(world: World) -> None:
    for offset in range(8):  # 10 / 1.25: from here on Faust stops to fetch
        world.channel.queue.force_put_nowait(offset)


def _standstill(world: World) -> None:
    world.app.flow_control.suspend()


def _producer_behind(world: World) -> None:
    world.app.producer.buffer.pending.put_nowait(None)


def _changelog(world: World) -> None:
    world.states.add(IN)


@pytest.mark.parametrize(
    "make_unusual",
    [_two_listeners, _no_listener, _other_types, _pressure, _standstill, _producer_behind,
     _changelog],
)  # fmt: skip
async def test_what_is_not_usual_goes_the_way_of_faust(world: World, make_unusual: Any) -> None:
    make_unusual(world)
    before, given = world.channel.queue.qsize(), message()
    await world.handover(given)
    assert world.conducted == [7]
    assert world.channel.queue.qsize() == before
    assert given.refcount == 0


async def test_while_listeners_change_the_way_of_faust_waits_for_them(world: World) -> None:
    async with world.app.topics._tp_to_callback_lock:
        await world.handover(message())
    assert world.conducted == [7]


async def test_no_more_is_taken_for_a_stream_before_which_many_bytes_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "MAX_WAITING_BYTES", 6)
    other = TP("other", 0)
    for offset in range(3):  # two bytes each
        assert world.handover.with_room([IN, other]) == {IN, other}
        await world.handover(message(offset))
    assert world.handover.with_room([IN, other]) == {other}
    world.channel.queue.get_nowait()
    assert world.handover.with_room([IN]) == {IN}


async def test_state_is_read_whatever_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "MAX_WAITING_BYTES", 0)
    assert world.handover.with_room([IN]) == set()
    world.states.add(IN)
    assert world.handover.with_room([IN]) == {IN}
