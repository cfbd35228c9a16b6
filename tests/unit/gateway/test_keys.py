"""The follower knows the end of the keys from silence: a slow broker is silent too."""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from inference.access.keys import KeyFollower
from infra.cli.keys import make_key, publish_key
from schemas import topics
from schemas.bus import Consumer, Position, Received
from schemas.bus.memory import MemoryBus


class SlowConsumer:
    """Answers nothing until it is let go, as a broker does that is still busy with its start."""

    def __init__(self, inner: Consumer, polled: threading.Semaphore, go: threading.Event) -> None:
        self._inner = inner
        self._polled = polled
        self._go = go

    def assign(self, positions: Mapping[Position, int]) -> None:
        self._inner.assign(positions)

    def poll(self, max_records: int, timeout_seconds: float) -> list[Received]:
        self._polled.release()
        if not self._go.is_set():
            self._go.wait(timeout_seconds)
            return []
        return self._inner.poll(max_records, timeout_seconds)

    def at_end(self) -> bool:
        return self._inner.at_end()

    def close(self) -> None:
        self._inner.close()


class SlowBus(MemoryBus):
    def __init__(self) -> None:
        super().__init__()
        self.polled = threading.Semaphore(0)
        self.go = threading.Event()

    def consumer(self, *, reads_ahead: bool = True) -> SlowConsumer:  # type: ignore[override]  # noqa: ARG002
        return SlowConsumer(super().consumer(), self.polled, self.go)


def test_silence_before_the_end_is_not_the_end(tmp_path: Path) -> None:
    bus = SlowBus()
    bus.admin().create_topics([topics.topic(topics.KEYS)], 1, 1)
    publish_key(bus, make_key("acme", ("capture",))[1])
    follower = KeyFollower(bus, tmp_path / "keys.json")
    follower.start()
    try:
        for _ in range(3):
            assert bus.polled.acquire(timeout=10)
        assert follower.seen_end_at == 0
        assert not follower.is_ready
        bus.go.set()
        for _ in range(100):
            assert bus.polled.acquire(timeout=10)
            if follower.seen_end_at:
                break
        assert follower.is_ready
        assert [record.tenant_id for record in follower.book.records()] == ["acme"]
    finally:
        follower.stop()


def until(bus: SlowBus, condition: Callable[[], object]) -> None:
    """Wait, poll by poll."""
    deadline = time.monotonic() + 10
    while not condition():
        assert bus.polled.acquire(timeout=10)
        assert time.monotonic() < deadline, "the condition did not come true"


def test_keys_are_known_while_the_disk_refuses_their_copy(tmp_path: Path) -> None:
    bus, cache = SlowBus(), tmp_path / "keys.json"
    bus.go.set()
    bus.admin().create_topics([topics.topic(topics.KEYS)], 1, 1)
    follower = KeyFollower(bus, cache)
    cache.mkdir()  # no file can take its place
    follower.start()
    try:
        publish_key(bus, make_key("acme", ("capture",))[1])
        until(bus, lambda: follower.book.records() and follower.seen_end_at)
        assert follower.is_alive
        cache.rmdir()
        until(bus, cache.is_file)
        assert [r.tenant_id for r in KeyFollower(bus, cache).book.records()] == ["acme"]
    finally:
        follower.stop()
