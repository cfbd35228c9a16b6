"""Progress is judged from looks, and told by the health thread over a real bus's protocol."""

import json
import urllib.error
import urllib.request
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from schemas.bus import Record
from schemas.bus.lag import Standing, standings, waiting_since
from schemas.bus.memory import MemoryAdmin, MemoryBus, MemoryConsumer
from schemas.errors import TransientError
from schemas.telemetry import Metrics
from schemas.topics import Topic
from streams.runtime.door import open_door
from streams.runtime.health import Health, HealthWatch
from streams.runtime.progress import Progress, Standstill

GROUP = "streams.test"
LIMIT_SECONDS = 60.0
A, B = ("t", 0), ("t", 1)


def test_a_partition_that_moves_or_has_nothing_to_do_stands_still_for_no_time() -> None:
    progress = Progress()
    progress.look({A: Standing(0, 10), B: Standing(5, 5)}, 0.0)
    progress.look({A: Standing(1, 10), B: Standing(5, 5)}, 100.0)
    assert progress.standstills() == [Standstill(A, 9, 0.0)]
    assert progress.behind == 9


def test_a_standstill_lasts_from_the_last_move() -> None:
    progress = Progress()
    for at in (0.0, 40.0, 70.0):
        progress.look({A: Standing(3, 10), B: Standing(4 + int(at), 200)}, at)
    assert progress.standstills()[0] == Standstill(A, 7, 70.0)
    progress.look({A: Standing(4, 10)}, 90.0)
    assert progress.standstills() == [Standstill(A, 6, 0.0)]


def test_a_partition_that_comes_back_begins_anew() -> None:
    progress = Progress()
    progress.look({A: Standing(3, 10)}, 0.0)
    progress.look({}, 50.0)
    progress.look({A: Standing(3, 10)}, 100.0)
    assert progress.standstills() == [Standstill(A, 7, 0.0)]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=30))
def test_whoever_commits_at_every_look_is_never_late(steps: list[tuple[int, int]]) -> None:
    progress, committed, end = Progress(), 0, 0
    for number, (produced, extra) in enumerate(steps):
        committed, end = committed + 1 + extra, max(end, committed) + 1 + extra + produced
        progress.look({A: Standing(committed, end)}, number * 1_000.0)
        assert [s.seconds for s in progress.standstills()] in ([], [0.0])


class World:
    """A watch over the memory bus; time is an argument."""

    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.admin: Any = self.bus.admin()
        topic = Topic("t", "test", "key", 2, "delete", 1.0, "test", ())
        self.admin.create_topics([topic], 2, 1)
        self.ready, self.waits_for = True, ""
        self.assigned = {A, B}
        self.metrics = Metrics()
        self.watch = HealthWatch(
            group=GROUP,
            bus=self.bus,
            inputs=["t"],
            assigned=lambda: self.assigned,
            is_ready=lambda: self.ready,
            waits_for=lambda: self.waits_for,
            metrics=self.metrics,
            stalled_after_seconds=LIMIT_SECONDS,
        )

    def produce(self, partition: int, number: int) -> None:
        producer = self.bus.producer("test")
        for _ in range(number):
            producer.send(Record("t", None, b"v", partition=partition), lambda _: None)

    def look(self, at: float) -> Health:
        self.watch.look(self.admin, at)
        return self.watch.health

    def exposed(self) -> str:
        return generate_latest(self.metrics.registry).decode()


def test_a_process_that_has_not_begun_says_so() -> None:
    world = World()
    world.ready = False
    assert not world.look(0.0).healthy
    assert "reads its state" in world.watch.health.why


def test_a_standstill_is_told_with_what_is_waited_for_and_ends() -> None:
    world = World()
    world.produce(1, 7)
    assert world.look(0.0).healthy
    world.waits_for = "ClickHouse: NETWORK_ERROR."
    health = world.look(LIMIT_SECONDS + 1)
    assert not health.healthy
    assert health.why == (
        "7 records wait on t, partition 1, and nothing was committed for 61 s: "
        "ClickHouse: NETWORK_ERROR."
    )
    assert health.partitions == {"t": {"0": 0, "1": 7}}
    assert f'headrace_lag_records{{group="{GROUP}",partition="1",topic="t"}} 7.0' in world.exposed()
    assert f'headrace_commit_age_seconds{{group="{GROUP}"}} 61.0' in world.exposed()
    assert "headrace_healthy 0.0" in world.exposed()
    world.admin.commit(GROUP, {("t", 1): 3})
    assert world.look(LIMIT_SECONDS + 5).healthy
    assert "headrace_healthy 1.0" in world.exposed()


def test_a_partition_that_stands_still_is_read_once() -> None:
    """A record that waits goes on waiting; reading it at each look took the memory of a backlog."""
    world = World()
    opened: list[bool] = []

    class Counted(MemoryBus):
        def consumer(self, *, reads_ahead: bool = True) -> MemoryConsumer:
            opened.append(reads_ahead)
            return super().consumer()

    world.bus.__class__ = Counted
    world.produce(1, 7)
    world.look(0.0)
    looks = [world.look(LIMIT_SECONDS + second).healthy for second in range(1, 6)]
    assert (looks, opened) == ([False] * 5, [False])
    world.produce(0, 1)
    world.admin.commit(GROUP, {("t", 1): 3})
    assert world.look(LIMIT_SECONDS + 7).healthy
    assert not world.look(2 * LIMIT_SECONDS + 9).healthy
    assert opened == [False] * 2


def test_partitions_of_other_workers_are_theirs_to_tell() -> None:
    world = World()
    world.produce(1, 7)
    world.assigned = {A}
    world.look(0.0)
    health = world.look(1_000.0)
    assert (health.healthy, health.behind) == (True, 0)


def test_offsets_that_hold_no_record_are_no_standstill(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a transaction leaves at the end of a partition can be read by nobody."""
    monkeypatch.setattr("streams.runtime.health._PROBE_SECONDS", 0.05)
    world = World()
    world.bus.partitions("t")[0].first = 3

    class OneMore(MemoryAdmin):
        def extents(self, topics: Any) -> dict[tuple[str, int], tuple[int, int]]:
            return {p: (first, end + 1) for p, (first, end) in super().extents(topics).items()}

    world.admin = OneMore(world.bus)
    world.watch.look(world.admin, 0.0)
    assert world.look(LIMIT_SECONDS + 1).healthy
    assert world.look(LIMIT_SECONDS + 9).healthy


def test_a_broker_that_is_away_is_told_after_a_while() -> None:
    world = World()

    class Away(MemoryAdmin):
        def extents(self, topics: Any) -> dict[tuple[str, int], tuple[int, int]]:  # noqa: ARG002
            raise TransientError("Kafka: _TRANSPORT")

    here, world.admin = world.admin, Away(world.bus)
    assert world.look(0.0).healthy
    assert not world.look(LIMIT_SECONDS + 1).healthy
    assert world.watch.health.why == "Kafka does not answer for 61 s (Kafka: _TRANSPORT)."
    world.admin = here
    assert world.look(LIMIT_SECONDS + 2).healthy


def test_lag_is_counted_from_what_is_kept_and_dated_by_the_first_record() -> None:
    world = World()
    world.produce(0, 5)
    world.admin.commit(GROUP, {("t", 0): 1})
    log = world.bus.partitions("t")[0]
    log.first, log.records = 2, log.records[2:]
    found = standings(world.admin, GROUP, ["t", "absent"])
    assert found == {A: Standing(2, 5), B: Standing(0, 0)}
    since = waiting_since(world.bus, found, max_seconds=5.0)
    assert {p: at.timestamp() for p, at in since.items()} == {A: log.records[0].timestamp_ms / 1000}
    assert Standing(7, 5).behind == 0


def test_the_door_answers_health_and_metrics() -> None:
    metrics = Metrics()
    metrics.gauge("headrace_healthy").set(1)
    shown = [Health("g", healthy=True, why="")]
    port = open_door("127.0.0.1", 0, metrics.registry, lambda: shown[0])

    def get(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    assert get("/health")[0] == 200
    assert "headrace_healthy 1.0" in get("/metrics")[1]
    assert get("/other")[0] == 404
    shown[0] = Health("g", healthy=False, why="Something stands still.")
    status, text = get("/health")
    assert (status, json.loads(text)["why"]) == (503, "Something stands still.")
    with pytest.raises(OSError, match="in use"):
        open_door("127.0.0.1", port, metrics.registry, lambda: shown[0])
