"""A group gets beyond the ends of transactions, which are no records, and never beyond a record."""

import asyncio
from typing import Any

from aiokafka.errors import IllegalStateError
from faust.types import TP

from tests.unit.runtime.test_consumer import INPUTS, NUM_RECORDS, FakeThread, Worker

FIRST = INPUTS[0]
END = NUM_RECORDS + 1


class WithEnds(FakeThread):
    """Every partition ends with the end of a transaction, at the offset after the last record."""

    def __init__(self, committed: dict[TP, int]) -> None:
        super().__init__(committed, fetch_ticks=0)
        self.asked: list[TP] = []
        self.is_taken_away = False

    async def position(self, partition: Any) -> int:
        self.asked.append(TP(*partition))
        if self.is_taken_away:
            raise IllegalStateError("not assigned")
        at = self.positions[TP(*partition)]
        return at + 1 if at == NUM_RECORDS else at


async def fetched(worker: Worker, *, again: bool = False) -> list[int]:
    """What one fetch delivers of the first partition; `again` a second or more later."""
    if again:
        worker.consumer._looked_for_ends_at = 0.0
    return [m.offset async for tp, m in worker.consumer.getmany(1.0) if tp == FIRST]


async def started(thread: WithEnds, *transactional: str) -> Worker:
    worker = Worker(thread, transactional)
    await worker.consumer.perform_seek()
    worker.consumer.resume_flow()
    return worker


def test_where_nothing_is_left_to_read_the_group_goes_to_the_end() -> None:
    async def run() -> WithEnds:
        thread = WithEnds({FIRST: NUM_RECORDS})
        worker = await started(thread, "in")
        assert await fetched(worker) == []
        assert worker.consumer._committed_offset[FIRST] == END
        return thread

    assert asyncio.run(run()).committed[FIRST] == END


def test_it_does_not_while_records_are_on_their_way() -> None:
    async def run() -> None:
        thread = WithEnds({FIRST: NUM_RECORDS - 4})
        worker = await started(thread, "in")
        assert await fetched(worker) == list(range(NUM_RECORDS - 4, NUM_RECORDS))
        assert await fetched(worker, again=True) == []
        assert thread.committed[FIRST] == NUM_RECORDS - 4
        worker.consumer._committed_offset[FIRST] = NUM_RECORDS  # they are acknowledged
        assert await fetched(worker, again=True) == []
        assert thread.committed[FIRST] == END

    asyncio.run(run())


def test_a_partition_that_is_just_taken_away_is_left_alone() -> None:
    async def run() -> None:
        thread = WithEnds({FIRST: NUM_RECORDS})
        thread.is_taken_away = True
        worker = await started(thread, "in")
        assert await fetched(worker) == []
        assert thread.asked
        assert thread.committed[FIRST] == NUM_RECORDS

    asyncio.run(run())


def test_nobody_looks_where_there_are_no_transactions() -> None:
    async def run() -> list[TP]:
        thread = WithEnds({FIRST: NUM_RECORDS})
        worker = await started(thread, "elsewhere")
        await fetched(worker)
        return thread.asked

    assert asyncio.run(run()) == []
