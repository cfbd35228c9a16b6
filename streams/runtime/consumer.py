"""Faust's Kafka consumer, with one promise more: it reads on exactly where its group stands.

After a rebalance Faust lets input partitions flow first and seeks them to their committed offsets
then. Three things go wrong in between: what was fetched in that moment is thrown out of the
queues when the flow resumes; a partition without a committed offset (or with offset 0) is not
sought at all, so what was thrown out never comes again; and a record under way marks the position
after the seek. Later records are then committed over the ones that were skipped. Here an input
partition is fetched only between a completed seek and the next stop of the flow, and a seek waits
for the delivery under way.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from faust.transport.drivers import aiokafka


class Consumer(aiokafka.Consumer):
    """A consumer whose input partitions flow only from known positions."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: Held from the request for records until the last of them is delivered.
        self._delivery = asyncio.Lock()
        self._deliverer: asyncio.Task[Any] | None = None
        self._positioned = False

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
        self.stop_flow()
        async with self._delivery:
            await super().perform_seek()
            fresh = [tp for tp in self.assignment() if self._begins_anew(tp)]
            if fresh:
                await self._thread.seek_to_beginning(*map(aiokafka.ensure_aiokafka_TP, fresh))
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
                async for tp, message in super().getmany(timeout):
                    if self._may_flow(tp):
                        yield tp, message
            finally:
                self._deliverer = None

    async def _getmany(
        self,
        active_partitions: Any,
        timeout: float,  # noqa: ASYNC109 - Faust's
    ) -> Mapping[Any, Any]:
        flowing = {tp for tp in active_partitions if self._may_flow(tp)}
        if not flowing:  # to Faust's driver no partition means every partition
            await self.sleep(min(timeout, 0.05))
            return {}
        records: Mapping[Any, Any] = await super()._getmany(flowing, timeout)
        return records

    def _may_flow(self, tp: Any) -> bool:
        return self._positioned or self._is_changelog_tp(tp)

    def _begins_anew(self, tp: Any) -> bool:
        return not self._is_changelog_tp(tp) and not self._committed_offset.get(tp)


class Transport(aiokafka.Transport):
    """Faust's Kafka transport with our consumer."""

    Consumer = Consumer
