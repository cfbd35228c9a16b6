"""Faust's Kafka consumer, with one promise more: it reads on exactly where its group stands.

After a rebalance Faust lets input partitions flow first and seeks them to their committed offsets
then. Much goes wrong in between: what was fetched in that moment is thrown out of the
queues when the flow resumes; a partition without a committed offset (or with offset 0) is not
sought at all, so what was thrown out never comes again; and a record under way marks the position
after the seek. Later records are then committed over the ones that were skipped. Here an input
partition is fetched only between a completed seek and the next stop of the flow, and a seek waits
for the delivery under way.

Records of a transaction are read once it is committed, and a group may get beyond its end.

Kafka moves a reader whose position was deleted to the first record kept and says nothing. Here
what it passes over is told to `on_gap` first, at a seek and in the middle of the flow.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Collection, Generator, Mapping
from contextlib import suppress
from typing import Any

from aiokafka.errors import IllegalStateError
from faust.transport.drivers import aiokafka
from mode.services import WaitResults

from streams.runtime import fetched, records
from streams.runtime.gaps import OnGap
from streams.runtime.handover import Handover


class Consumer(aiokafka.Consumer):
    """A consumer whose input partitions flow only from known positions."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.callback = self._handover = Handover(self.app, self.callback, self._is_changelog_tp)
        #: Held from the request for records until the last of them is delivered.
        self._delivery = asyncio.Lock()
        self._deliverer: asyncio.Task[Any] | None = None
        self._positioned = False
        #: A seek was asked for and has not ended; Faust gives up waiting for one that takes long.
        self._owes_seek = False
        #: The offset that each input partition has to go on with.
        self._next_offset: dict[Any, int] = {}
        self._on_gap: OnGap = self.transport.on_gap  # type: ignore[attr-defined]  # ours, below
        #: Topics whose last offset may be the end of a transaction.
        self._transactional: Collection[str] = self.transport.transactional  # type: ignore[attr-defined]
        self._looked_for_ends_at = 0.0

    def _new_consumer_thread(self) -> "ConsumerThread":
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    def stop_flow(self) -> None:
        """Deliver nothing more. What was fetched and not delivered is fetched again."""
        self._positioned = False
        super().stop_flow()

    async def perform_seek(self) -> None:
        """Seek every input partition to its committed offset, else to its beginning.

        The flow stands still then; the caller resumes it.
        """
        if asyncio.current_task() is self._deliverer:
            return  # the flow was stopped: whoever stopped it seeks before it resumes
        self._owes_seek = True
        self.stop_flow()
        async with self._delivery:
            await self._seek_inputs()

    async def _seek_inputs(self) -> None:
        self._committed_offset.clear()  # the broker's word counts, also that it knows none
        await super().perform_seek()
        fresh = [tp for tp in self.assignment() if self._begins_anew(tp)]
        if fresh:
            await self._thread.seek_to_beginning(*map(aiokafka.ensure_aiokafka_TP, fresh))
        await self._pass_over_gaps()
        self._owes_seek = False
        self._positioned = True

    async def on_stop(self) -> None:
        """Commit and leave the group, also under a worker's name, which aiokafka would keep."""
        await super().on_stop()
        self._thread._ensure_consumer()._coordinator._group_instance_id = None

    async def getmany(
        self,
        timeout: float,  # noqa: ASYNC109 - Faust's
    ) -> AsyncIterator[tuple[Any, Any]]:
        """Fetch what may be delivered now: changelogs always, inputs from known positions."""
        if not self.flow_active:
            await self.wait(self.can_resume_flow.wait())
        async with self._delivery:
            if not self.flow_active:
                return
            self._deliverer = asyncio.current_task()
            try:
                await self._pass_over_ends()
                async for tp, message in super().getmany(timeout):
                    if self._may_flow(tp):
                        if self._next_offset.get(tp) == message.offset:
                            self._next_offset[tp] = message.offset + 1
                        else:
                            await self._expect(tp, message.offset)
                    if self._may_flow(tp):  # telling of a gap takes time
                        yield tp, message
            finally:
                self._deliverer = None

    async def _getmany(
        self,
        active_partitions: Any,
        timeout: float,  # noqa: ASYNC109 - Faust's
    ) -> Mapping[Any, Any]:
        if self._owes_seek and not all(map(self._is_changelog_tp, active_partitions)):
            await self._seek_inputs()  # Faust did not wait for it and resumed the flow
        flowing = self._handover.with_room([tp for tp in active_partitions if self._may_flow(tp)])
        if not flowing:  # to Faust's driver no partition means every partition
            await self.sleep(min(timeout, 0.05))
            return {}
        found: Mapping[Any, Any] = await super()._getmany(flowing, timeout)
        return found

    async def wait_first(self, *coros: Any, timeout: Any = None) -> Any:  # noqa: ASYNC109 - mode's
        """Faust delivers each message with this, beside a wait for the flow to be suspended.

        A delivery that meets room in its stream ends without waiting. So it is begun at once, and
        only one that has to wait costs tasks: four for each record were a fifth of all CPU time.
        """
        if timeout is None and len(coros) == 2 and all(map(asyncio.iscoroutine, coros)):
            delivery, suspended = coros
            try:
                waits_for = delivery.send(None)
            except StopIteration:
                suspended.close()
                return WaitResults([], [], stopped=False)
            except BaseException:
                suspended.close()
                raise
            coros = (_going_on(delivery, waits_for), suspended)
        return await super().wait_first(*coros, timeout=timeout)

    def _may_flow(self, tp: Any) -> bool:
        return self._positioned or self._is_changelog_tp(tp)

    async def _pass_over_gaps(self) -> None:
        """Tell what was deleted before its turn, and go on with the first record kept."""
        inputs = [tp for tp in self.assignment() if not self._is_changelog_tp(tp)]
        if not inputs:
            return
        kept = await self._thread.earliest_offsets(*map(aiokafka.ensure_aiokafka_TP, inputs))
        for tp in inputs:
            expected, first = self._committed_offset.get(tp) or 0, kept[tp]
            if first > expected:
                await self._on_gap(tp.topic, tp.partition, expected, first)
                # Faust remembers each offset that it passes over, and there may be millions.
                self._committed_offset[tp] = first
                self._read_offset[tp] = first
                await self._thread.seek_wait({aiokafka.ensure_aiokafka_TP(tp): first})
                # Where nothing is left to read, nothing would ever move the group on.
                await self._commit({tp: first})
            self._next_offset[tp] = max(expected, first)

    async def _expect(self, tp: Any, offset: int) -> None:
        """Tell what lies before `offset` and was deleted meanwhile. Offsets that never held a
        record, such as the ends of transactions, are no gap."""
        expected = self._next_offset.get(tp, offset)
        if offset > expected and not self._is_changelog_tp(tp):
            kept = await self._thread.earliest_offsets(aiokafka.ensure_aiokafka_TP(tp))
            end = min(offset, kept[tp])
            if end > expected:
                await self._on_gap(tp.topic, tp.partition, expected, end)
        self._next_offset[tp] = offset + 1

    async def _pass_over_ends(self) -> None:
        """Commit beyond ends of transactions behind which nothing came: they are no records, so
        nothing acknowledges them, and the group would look behind for ever."""
        now = asyncio.get_running_loop().time()
        if not (self._transactional and self._positioned) or now < self._looked_for_ends_at + 1.0:
            return
        self._looked_for_ends_at = now
        for tp in [tp for tp in self.assignment() if tp.topic in self._transactional]:
            expected = self._next_offset.get(tp)
            if expected != (self._committed_offset.get(tp) or 0):
                continue  # records are on their way
            with suppress(IllegalStateError):  # just taken away: whoever has it now looks
                position = await self._thread.position(aiokafka.ensure_aiokafka_TP(tp))
                if position is not None and position > expected:
                    await self._go_on_from(tp, position)

    async def _go_on_from(self, tp: Any, position: int) -> None:
        self._committed_offset[tp] = self._read_offset[tp] = position
        self._next_offset[tp] = position
        await self._commit({tp: position})

    def _begins_anew(self, tp: Any) -> bool:
        return not self._is_changelog_tp(tp) and not self._committed_offset.get(tp)


async def _going_on(begun: Any, waits_for: Any) -> Any:
    """A coroutine that was begun already and waits."""
    return await _Begun(begun, waits_for)


class _Begun:
    """What is left of a coroutine that has yielded once."""

    def __init__(self, coroutine: Any, waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        waits_for = self._waits_for
        while True:
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001 - it is the coroutine's, a cancellation too
                go_on = functools.partial(self._coroutine.throw, error)
            else:
                go_on = functools.partial(self._coroutine.send, sent)
            try:
                waits_for = go_on()
            except StopIteration as end:
                return end.value


class ConsumerThread(aiokafka.AIOKafkaConsumerThread):
    """The thread that reads. Records of transactions are seen once those are committed."""

    def _create_worker_consumer(self, transport: Any) -> Any:
        made = super()._create_worker_consumer(transport)
        made._isolation_level = "read_committed"
        return made


records.install()
fetched.install()


class Transport(aiokafka.Transport):
    """Faust's Kafka transport with our consumer, and whom to tell of deleted records."""

    Consumer = Consumer

    def __init__(
        self, *args: Any, on_gap: OnGap, transactional: Collection[str] = (), **kwargs: Any
    ) -> None:
        """`transactional` are names on the cluster."""
        super().__init__(*args, **kwargs)
        self.on_gap = on_gap
        self.transactional = transactional
