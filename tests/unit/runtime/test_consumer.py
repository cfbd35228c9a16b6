"""After any rebalance, every input record from the committed offset on is delivered, in order."""

import asyncio
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.types import TP
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mode import Service

from streams.runtime.consumer import Consumer, Transport

NUM_RECORDS = 30
INPUTS = [TP("in", 0), TP("in", 1), TP("in", 2)]
PAUSES = st.lists(st.sampled_from([0, 0, 1, 5, 30, 100]), min_size=5, max_size=5)
CHANGELOG = TP("changes", 0)


class FakeThread(Service):
    """A broker with a few partitions and what aiokafka knows of them: one position each."""

    def __init__(
        self, committed: dict[TP, int], fetch_ticks: int, kept: dict[TP, int] | None = None
    ) -> None:
        """`kept` says where partitions begin whose first records were deleted."""
        super().__init__()
        self.kept = kept or {}
        self.committed = committed
        self.fetch_ticks = fetch_ticks
        self.broker_answers = asyncio.Event()
        self.broker_answers.set()
        self.positions = dict.fromkeys([*INPUTS, CHANGELOG], 0)

    def assignment(self) -> set[TP]:
        return set(self.positions)

    def highwater(self, _tp: TP) -> int:
        return NUM_RECORDS

    async def getmany(
        self,
        active: set[TP],
        timeout: float,  # noqa: ASYNC109 - Faust's
    ) -> dict[TP, list[Any]]:
        assert active, "no partition means every partition to aiokafka"
        assert timeout > 0
        found = {}
        for tp in active:
            # a position that was deleted is moved, as a real reader's is
            first = max(self.positions[tp], self.kept.get(tp, 0))
            if batch := range(first, min(first + 4, NUM_RECORDS)):
                self.positions[tp] = batch.stop
                found[tp] = [_record(tp, offset) for offset in batch]
        await ticks(self.fetch_ticks)
        return found

    async def seek_to_committed(self) -> dict[TP, int | None]:
        await self.broker_answers.wait()
        await ticks(2)
        for tp, offset in self.committed.items():
            if offset:  # as aiokafka does: neither None nor 0 moves a position
                self.positions[tp] = offset
        return {tp: self.committed.get(tp) for tp in self.positions}

    async def seek_to_beginning(self, *partitions: Any) -> None:
        await ticks(2)
        for partition in partitions:
            tp = TP(partition.topic, partition.partition)
            self.positions[tp] = self.kept.get(tp, 0)

    async def earliest_offsets(self, *partitions: Any) -> dict[TP, int]:
        await ticks(1)
        return {tp: self.kept.get(TP(*tp), 0) for tp in partitions}

    async def seek_wait(self, positions: dict[TP, int]) -> None:
        await ticks(1)
        self.positions.update(positions)

    async def commit(self, offsets: dict[TP, int]) -> bool:
        await ticks(1)
        self.committed.update(offsets)
        return True


def _record(tp: TP, offset: int) -> Any:
    empty = dict.fromkeys(
        ("timestamp", "timestamp_type", "key", "value", "checksum"), None
    ) | dict.fromkeys(("serialized_key_size", "serialized_value_size"), 0)
    return SimpleNamespace(
        topic=tp.topic, partition=tp.partition, offset=offset, headers=(), **empty
    )


async def ticks(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


class Worker:
    """A consumer whose fetching loop runs, and the queue into which it delivers."""

    def __init__(
        self, thread: FakeThread, transactional: Collection[str] = (), deliver_ticks: int = 1
    ) -> None:
        """A delivery takes so many turns of the loop; none where a stream has room."""
        self._deliver_ticks = deliver_ticks
        app = faust.App("test", broker="kafka://127.0.0.1:1", web_enabled=False)
        app.transport = Transport(
            app.conf.broker_consumer, app, on_gap=self._note_gap, transactional=transactional
        )
        self.gaps: list[tuple[TP, int, int]] = []
        app.tables._changelogs[CHANGELOG.topic] = None
        self.thread = thread

        class OnFake(Consumer):
            def _new_consumer_thread(self) -> FakeThread:
                return thread

        self.consumer: Any = OnFake(
            app.transport, self._deliver, on_partitions_revoked=None, on_partitions_assigned=None
        )
        self.consumer._set_active_tps(set(thread.positions))
        self.queue: dict[TP, list[int]] = defaultdict(list)

    async def _deliver(self, message: Any) -> None:
        await ticks(self._deliver_ticks)
        self.queue[message.tp].append(message.offset)

    async def _note_gap(self, topic: str, partition: int, first: int, end: int) -> None:
        await asyncio.sleep(0)
        self.gaps.append((TP(topic, partition), first, end))

    async def rebalance(self, pauses: list[int]) -> None:
        """What Faust does at a rebalance, step by step, with the loop turning in between."""
        consumer, thread = self.consumer, self.thread
        consumer.stop_flow()
        consumer.pause_partitions(thread.assignment())
        self.queue.clear()
        await ticks(pauses[0])
        consumer.resume_partitions({CHANGELOG})
        consumer.resume_flow()
        await ticks(pauses[1])
        consumer.pause_partitions({CHANGELOG})
        consumer.resume_partitions(set(INPUTS))
        await ticks(pauses[2])
        await consumer.perform_seek()
        await ticks(pauses[3])
        self.queue.clear()  # resuming the flow clears every queue
        consumer.resume_flow()
        await ticks(pauses[4])


async def _deliveries(
    committed: dict[TP, int], fetch_ticks: int, deliver_ticks: int, rebalances: Any
) -> Any:
    worker = Worker(FakeThread(committed, fetch_ticks), deliver_ticks=deliver_ticks)
    fetcher = SimpleNamespace(_stopped=asyncio.Event())
    loop = asyncio.create_task(worker.consumer._drain_messages(fetcher))
    for pauses in rebalances:
        await worker.rebalance(pauses)
    async with asyncio.timeout(5):
        while any(worker.queue[tp][-1:] != [NUM_RECORDS - 1] for tp in INPUTS):
            await ticks(10)
    fetcher._stopped.set()
    await loop
    return {tp: worker.queue[tp] for tp in INPUTS}


@settings(deadline=None, max_examples=60)
@given(
    committed=st.lists(st.none() | st.integers(0, NUM_RECORDS - 1), min_size=3, max_size=3),
    fetch_ticks=st.sampled_from([0, 1, 5, 20, 80]),
    deliver_ticks=st.sampled_from([0, 1, 1, 7]),
    rebalances=st.lists(
        st.lists(st.sampled_from([0, 0, 1, 5, 30, 100]), min_size=5, max_size=5),
        min_size=1,
        max_size=4,
    ),
)
@example([None] * 3, 40, 1, [[0, 0, 0, 0, 60], [0, 0, 0, 0, 0]])
@example([None] * 3, 9, 1, [[0, 0, 0, 0, 60], [0, 0, 0, 0, 0]])
@example([None] * 3, 9, 1, [[0, 0, 0, 0, 95], [0, 0, 0, 0, 0]])
def test_nothing_is_skipped_after_a_rebalance(
    committed: list[int | None], fetch_ticks: int, deliver_ticks: int, rebalances: list[list[int]]
) -> None:
    offsets = {tp: at for tp, at in zip(INPUTS, committed, strict=True) if at is not None}
    delivered = asyncio.run(_deliveries(offsets, fetch_ticks, deliver_ticks, rebalances))
    for tp in INPUTS:
        assert delivered[tp] == list(range(offsets.get(tp, 0), NUM_RECORDS))


@pytest.mark.parametrize("committed", [None, 0, 7])
def test_inputs_wait_for_the_first_seek(committed: int | None) -> None:
    async def fetch_before_and_after() -> tuple[list[int], list[int]]:
        offsets = {} if committed is None else {INPUTS[0]: committed}
        worker = Worker(FakeThread(offsets, 1))
        consumer = worker.consumer
        before = [m.offset async for tp, m in consumer.getmany(1.0) if tp in INPUTS]
        await consumer.perform_seek()
        consumer.resume_flow()
        after = [m.offset async for tp, m in consumer.getmany(1.0) if tp == INPUTS[0]]
        return before, after

    first = committed or 0
    assert asyncio.run(fetch_before_and_after()) == ([], list(range(first, first + 4)))


def test_a_seek_that_takes_longer_than_faust_waits_is_made_up_for() -> None:
    async def deliveries_after_an_outage() -> list[int]:
        worker = Worker(FakeThread({INPUTS[0]: 7}, 1))
        worker.thread.broker_answers.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await worker.consumer.perform_seek()
        worker.thread.broker_answers.set()
        worker.consumer.resume_flow()
        return [m.offset async for tp, m in worker.consumer.getmany(1.0) if tp == INPUTS[0]]

    assert asyncio.run(deliveries_after_an_outage()) == [7, 8, 9, 10]


LOST = st.lists(st.integers(0, NUM_RECORDS - 1), min_size=3, max_size=3)


@settings(deadline=None, max_examples=60)
@given(
    committed=st.lists(st.none() | st.integers(0, NUM_RECORDS - 1), min_size=3, max_size=3),
    kept=LOST,
    rebalances=st.lists(PAUSES, min_size=1, max_size=3),
)
@example([None, 0, 5], [4, 4, 9], [[0, 0, 0, 0, 0]])
@example([None, 1, None], [25, 6, 3], [[100, 0, 100, 0, 100], [100, 100, 30, 0, 100], [0] * 5])
def test_what_was_deleted_before_its_turn_is_told_before_the_rest_is_read(
    committed: list[int | None], kept: list[int], rebalances: list[list[int]]
) -> None:
    first_kept = dict(zip(INPUTS, kept, strict=True))
    offsets = {tp: at for tp, at in zip(INPUTS, committed, strict=True) if at is not None}
    thread = FakeThread(dict(offsets), 3, first_kept)
    gaps = asyncio.run(_gaps_of(thread, rebalances))
    expected = {
        (tp, offsets.get(tp, 0), first) for tp, first in first_kept.items()
        if first > offsets.get(tp, 0)
    }  # fmt: skip
    assert sorted(gaps) == sorted(expected)  # each once, however often the group rebalances
    assert {tp: thread.committed[tp] for tp, _, _ in expected} == {
        tp: first for tp, _, first in expected
    }


async def _gaps_of(thread: FakeThread, rebalances: list[list[int]]) -> list[tuple[TP, int, int]]:
    """The gaps told until everything that is kept was delivered."""
    worker = Worker(thread)
    fetcher = SimpleNamespace(_stopped=asyncio.Event())
    loop = asyncio.create_task(worker.consumer._drain_messages(fetcher))
    for pauses in rebalances:
        await worker.rebalance(pauses)
    async with asyncio.timeout(5):
        while any(worker.queue[tp][-1:] != [NUM_RECORDS - 1] for tp in INPUTS):
            await ticks(10)
    fetcher._stopped.set()
    await loop
    return worker.gaps


@pytest.mark.parametrize(("kept", "gaps"), [(20, [(INPUTS[0], 4, 20)]), (0, [])])
def test_what_is_deleted_while_records_flow_is_told(
    kept: int, gaps: list[tuple[TP, int, int]]
) -> None:
    """Offsets that are passed over though nothing was deleted never held a record."""

    async def read_on() -> tuple[list[int], list[tuple[TP, int, int]]]:
        worker = Worker(FakeThread({}, 1))
        consumer = worker.consumer
        await consumer.perform_seek()
        consumer.resume_flow()
        read = [m.offset async for tp, m in consumer.getmany(1.0) if tp == INPUTS[0]]
        worker.thread.kept = {INPUTS[0]: kept}
        worker.thread.positions[INPUTS[0]] = 20
        read += [m.offset async for tp, m in consumer.getmany(1.0) if tp == INPUTS[0]]
        return read, worker.gaps

    assert asyncio.run(read_on()) == ([0, 1, 2, 3, 20, 21, 22, 23], gaps)


async def _wait_first(delivery: Any, suspended: asyncio.Event) -> Any:
    consumer = Worker(FakeThread({}, 1)).consumer
    return await consumer.wait_first(delivery, suspended.wait())


def test_a_delivery_that_meets_room_makes_no_task() -> None:
    async def deliver() -> tuple[bool, int]:
        told = []

        async def delivery() -> None:
            told.append(len(asyncio.all_tasks()))

        results = await _wait_first(delivery(), asyncio.Event())
        return results.stopped, told[0]

    assert asyncio.run(deliver()) == (False, 1)


def test_a_delivery_that_waits_goes_on_where_it_was() -> None:
    async def deliver() -> list[str]:
        room: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        told = []

        async def delivery() -> None:
            told.append("begun")
            told.append(await room)
            await ticks(3)
            told.append("ended")

        waiting = asyncio.create_task(_wait_first(delivery(), asyncio.Event()))
        await ticks(20)
        assert not waiting.done()
        room.set_result("went on")
        await waiting
        return told

    assert asyncio.run(deliver()) == ["begun", "went on", "ended"]


@pytest.mark.parametrize("waits", [0, 2])
def test_the_failure_of_a_delivery_is_its_own(waits: int) -> None:
    async def delivery() -> None:
        await ticks(waits)
        raise ZeroDivisionError

    async def deliver() -> None:
        await _wait_first(delivery(), asyncio.Event())

    with pytest.raises(ZeroDivisionError):
        asyncio.run(deliver())


def test_a_delivery_that_waits_is_broken_off_when_the_flow_is_suspended() -> None:
    async def deliver() -> list[str]:
        told = []

        async def delivery() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                told.append("broken off")
                raise

        suspended = asyncio.Event()
        waiting = asyncio.create_task(_wait_first(delivery(), suspended))
        await ticks(20)
        suspended.set()
        await waiting
        await ticks(5)
        return told

    assert asyncio.run(deliver()) == ["broken off"]
