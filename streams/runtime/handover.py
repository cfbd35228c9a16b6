"""From Faust's consumer into the channel of a stream, without a wait where there is room.

Faust's conductor asks for each record whether the flow stands still, whether its producer is
behind and who listens, and decodes key and value: seven coroutines, two locks. Ours are bytes and
have one listener, so a record goes straight into its channel. What is not so goes Faust's way.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from faust.events import Event

from streams.runtime.sizes import num_bytes_of

#: Of keys and values in a stream's channel, beyond which nothing more is fetched for it.
MAX_WAITING_BYTES = 16 * 1024**2


class Handover:
    """What a consumer calls with each record in place of the conductor's callback."""

    def __init__(
        self, app: Any, conducted: Callable[[Any], Awaitable[None]], is_state: Callable[[Any], bool]
    ) -> None:
        """`conducted` is Faust's way; `is_state` tells partitions of changelogs, which go it."""
        self._app = app
        self._conducted = conducted
        self._is_state = is_state

    async def __call__(self, message: Any) -> None:
        """Put the record into its channel; waits where Faust would."""
        channel = self._open_channel(message.tp)
        if channel is None:
            await self._conducted(message)
            return
        message.incref()
        event = Event(self._app, message.key, message.value, message.headers, message)
        channel.queue.force_put_nowait(event)

    def with_room(self, partitions: Collection[Any]) -> set[Any]:
        """Those of which more may be taken. Faust bounds only the number of records that wait."""
        index = self._app.topics._tp_index
        waiting = {channel for tp in partitions for channel in index.get(tp, ())}
        full = {channel for channel in waiting if _num_bytes(channel.queue) >= MAX_WAITING_BYTES}
        return {tp for tp in partitions if self._is_state(tp) or full.isdisjoint(index.get(tp, ()))}

    def _open_channel(self, tp: Any) -> Any:
        """The channel of the only listener, if nothing about it needs a wait or a decoder."""
        app = self._app
        listeners = app.topics._tp_index.get(tp, ())
        if len(listeners) != 1 or self._is_state(tp) or app.topics._tp_to_callback_lock.locked():
            return None
        (channel,) = listeners
        queue = channel.queue
        takes_it = (
            channel.key_type is bytes
            and channel.value_type is bytes
            and queue.qsize() < queue.pressure_high_size  # beyond it, Faust stops to fetch
            and app.flow_control.is_active()
            and app.producer.buffer.pending.empty()
        )
        return channel if takes_it else None


def _num_bytes(queue: Any) -> int:
    """Keys and values of what waits; some hundred records at most."""
    return sum(map(num_bytes_of, queue._queue))
