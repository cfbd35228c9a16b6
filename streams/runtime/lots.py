"""Events out of a Faust stream, as many at a time as lie there.

Faust's own iterator takes a turn of the loop, and a wait for its channel, for each record. Here it
gives the first one of each lot; with it come those that lie behind it in the channel, after the
same looks: what was fetched before a rebalance is left out, and Faust knows of each of the others
that it was taken and waits for its acknowledgement.
"""

from collections.abc import AsyncIterator
from typing import Any

from streams.runtime.sizes import num_bytes_of

#: Records of one lot at most. Other tasks of the loop wait so long.
MAX_LOT = 100
#: Of their keys and values. The record that crosses it still belongs to the lot.
MAX_LOT_BYTES = 1024**2


async def lots(stream: Any) -> AsyncIterator[list[Any]]:
    """The stream's events in order. It must not acknowledge by itself, nor change values."""
    async for first in stream.events():
        yield [first, *_behind(stream, MAX_LOT_BYTES - num_bytes_of(first))]


def _behind(stream: Any, left_bytes: int) -> list[Any]:
    """What lies in the stream's channel, told to Faust as its iterator does."""
    app, queue = stream.app, stream.channel.queue
    taken: list[Any] = []
    # An error in the channel is its iterator's to raise, after what was taken before.
    while not queue.empty() and not queue._errors and len(taken) < MAX_LOT - 1 and left_bytes > 0:
        event = queue.get_nowait()
        message = event.message
        is_current = message.generation_id == app.consumer_generation_id
        if not (is_current and app.flow_control.is_active()):
            continue
        if not message.tracked and message.topic in app.topics.acking_topics:
            message.tracked = True
            app.consumer.unacked.add(message)
            app.sensors.on_message_in(message.tp, message.offset, message)
        app.sensors.on_stream_event_in(message.tp, message.offset, stream, event)
        taken.append(event)
        left_bytes -= num_bytes_of(event)
    return taken
