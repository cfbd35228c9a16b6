"""Which worker a call gets first, and how long it waits for one."""

import asyncio

import pytest

from inference.routing import router as routing
from inference.routing.follow import RouteFollower
from inference.routing.router import NoWorkerError, Router
from inference.routing.table import Routes, Worker
from schemas.bus.memory import MemoryBus
from schemas.telemetry import Metrics

CALL = b"acme/t-1"


def worker(name: str, version: int = 1) -> Worker:
    return Worker(name, f"http://{name}.test", version)


@pytest.fixture
def router() -> Router:
    return Router(RouteFollower(MemoryBus(), "main", "default"), b"k" * 32, Metrics())


def names(workers: list[Worker]) -> list[str]:
    return [worker.worker_id for worker in workers]


async def test_a_worker_that_did_not_answer_comes_last_for_a_while(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    router.follower.routes = Routes(stable=((worker("a"), worker("b"), worker("c")),))
    found = await router.workers(CALL)
    assert sorted(names(found)) == ["a", "b", "c"]
    router.failed(found[0])
    assert names(await router.workers(CALL)) == [*names(found[1:]), found[0].worker_id]
    monkeypatch.setattr(routing, "AVOID_SECONDS", 0.0)
    assert await router.workers(CALL) == found


async def test_a_call_waits_for_a_worker_that_is_about_to_come(router: Router) -> None:
    waiting = asyncio.create_task(router.workers(CALL))
    await asyncio.sleep(0.03)
    assert not waiting.done()
    router.follower.routes = Routes(stable=((worker("a"),),))
    assert names(await waiting) == ["a"]


async def test_it_does_not_wait_for_ever(router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "HOLD_SECONDS", 0.05)
    with pytest.raises(NoWorkerError):
        await router.workers(CALL)


async def test_who_failed_long_ago_is_forgotten(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers may have a new id at each start."""
    monkeypatch.setattr(routing, "AVOID_SECONDS", 0.0)
    for number in range(50):
        router.failed(worker(f"w-{number}"))
    assert list(router._failed_at) == ["w-49"]
