"""Rollouts under traffic: every answer's version is right, and no call fails."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from schemas.atdp.types import Outcome
from tests.integration.gateway.harness import eventually
from tests.integration.routing.cluster import Cluster, cluster
from tests.ring_events import root

pytestmark = pytest.mark.integration

VERSION = "x-headrace-policy-version"
Answer = tuple[int, dict[str, Any], dict[str, str]]


class Traffic:
    """Agents that call one after the other until told to stop."""

    def __init__(self, to: Cluster, num_agents: int) -> None:
        self._to = to
        self.answers: list[Answer] = []
        self._stopping = False
        self._agents = [asyncio.create_task(self._run(f"t-{n}")) for n in range(num_agents)]

    async def _run(self, trajectory: str) -> None:
        while not self._stopping:
            self.answers.append(await self._to.ask(trajectory))

    async def stop(self) -> list[Answer]:
        self._stopping = True
        await asyncio.gather(*self._agents)
        return self.answers

    async def until(self, number: int) -> None:
        """Wait until that many more calls are answered."""
        wanted = len(self.answers) + number
        await eventually(lambda: len(self.answers) >= wanted, 60)


def require_right(answers: list[Answer]) -> None:
    """No call failed, and each is labelled with the version that made it."""
    assert Counter(status for status, _, _ in answers) == {200: len(answers)}
    for _, body, headers in answers:
        made_by = body["made_by"]
        assert headers.get(VERSION) == (None if made_by is None else str(made_by))


async def versions(to: Cluster, num_trajectories: int) -> list[int | None]:
    """Which version answers each of so many trajectories."""
    answers = await asyncio.gather(*(to.ask(f"t-{n}") for n in range(num_trajectories)))
    return [body["made_by"] for _, body, _ in answers]


@pytest.mark.parametrize("num_updates", [15, pytest.param(50, marks=pytest.mark.soak)])
async def test_updates_under_traffic(kafka: str, tmp_path: Path, num_updates: int) -> None:
    """Each of them takes a proposal, a decision and two acks on the broker: half a second or so."""
    async with cluster(kafka, tmp_path) as to:
        to.add_worker("a")
        to.add_worker("b")
        await to.until_routable(("a", None), ("b", None))
        traffic = Traffic(to, 4)
        await traffic.until(4)
        for version in range(1, num_updates + 1):
            await to.propose(version)
            await to.until_served(version)
            await traffic.until(5)
        await to.until_routable(("a", num_updates), ("b", num_updates))
        await traffic.until(20)
        answers = await traffic.stop()
        require_right(answers)
        assert {body["worker"] for _, body, _ in answers} == {"a", "b"}
        seen = {body["made_by"] for _, body, _ in answers}
        assert {None, num_updates} <= seen
        assert len(seen) > num_updates // 2  # the next one may come before a call met it

        recorded = {e.step_id: e for e in await to.exchanges(len(answers))}
        assert len(recorded) == len(answers)
        for _, body, headers in answers:
            event = recorded[headers["x-headrace-step-id"]]
            assert (event.outcome, event.policy_version) == (Outcome.COMPLETE, body["made_by"])
            told = {h.name: h.value for h in event.response_headers}
            version = body["made_by"]
            assert told.get("x-headrace-weights-root") == (
                None if version is None else root(version)
            )


async def test_a_worker_is_killed_in_the_middle_of_a_rollout(kafka: str, tmp_path: Path) -> None:
    async with cluster(kafka, tmp_path) as to:
        to.add_worker("a", dies_at=2)  # its answers under way break before a byte of them came
        to.add_worker("b")
        await to.until_routable(("a", None), ("b", None))
        await to.promote(1)
        traffic = Traffic(to, 6)
        await traffic.until(10)
        await to.propose(2)
        await eventually(lambda: ("b", 2) in to.routable(), 30)
        await traffic.until(10)
        await to.propose(3)
        await eventually(lambda: ("b", 3) in to.routable(), 30)
        await traffic.until(10)
        answers = await traffic.stop()
        require_right(answers)
        assert answers[-1][1] == {"made_by": 3, "worker": "b"}
        recorded = await to.exchanges(len(answers))
        assert len(recorded) == len(answers), "one call, one record"
        assert {event.outcome for event in recorded} == {Outcome.COMPLETE}
        assert {event.attempts for event in recorded} > {1}
        by_step = {e.step_id: e for e in recorded}
        for _, body, headers in answers:
            assert by_step[headers["x-headrace-step-id"]].policy_version == body["made_by"]


async def test_who_has_not_proved_gets_nothing_and_a_refused_version_is_taken_back(
    kafka: str, tmp_path: Path
) -> None:
    async with cluster(kafka, tmp_path) as to:
        to.add_worker("a", refuses=2)
        to.add_worker("b")
        await to.until_routable(("a", None), ("b", None))
        await to.promote(1)
        await to.promote(2)
        await eventually(lambda: ("b", 2) in to.routable(), 30)
        answers = [await to.ask(f"t-{n}") for n in range(20)]
        assert {(body["worker"], body["made_by"]) for _, body, _ in answers} == {("b", 2)}

        to.processes["b"].kill()  # nobody is left who can serve 2; a goes on with 1
        answers = [await to.ask(f"t-{n}") for n in range(6)]
        require_right(answers)
        assert {(body["worker"], body["made_by"]) for _, body, _ in answers} == {("a", 1)}


async def test_a_trial_is_served_to_its_share_and_a_trajectory_stays(
    kafka: str, tmp_path: Path
) -> None:
    async with cluster(kafka, tmp_path) as to:
        to.add_worker("a")
        to.add_worker("b")
        await to.until_routable(("a", None), ("b", None))
        await to.promote(1)
        await to.promote(2, canary_share=0.5)
        await to.until_routable(("a", 2), ("b", 1))
        first, again = [await versions(to, 40) for _ in range(2)]
        assert first == again
        assert 8 < Counter(first)[2] < 32
        await to.promote(2)
        await to.until_routable(("a", 2), ("b", 2))
        assert (await to.ask("t-1"))[1]["made_by"] == 2


async def test_without_a_worker_clients_are_told_to_come_again(kafka: str, tmp_path: Path) -> None:
    async with cluster(kafka, tmp_path) as to:
        openai, anthropic = await asyncio.gather(to.ask("t-1"), to.ask("t-2", path="/v1/messages"))
        for status, body, headers in (openai, anthropic):
            assert (status, headers["Retry-After"]) == (503, "2")
            assert body["error"]["code"] == "no_worker"
            assert "headrace workers" in body["error"]["message"]
        assert anthropic[1]["type"] == "error"
        recorded = await to.exchanges(2)
        assert {(e.outcome, e.error_class, e.status, e.attempts) for e in recorded} == {
            (Outcome.UPSTREAM_ERROR, "no_worker", 503, 0)
        }
        # A worker that dies is no reason to fail for good.
        to.add_worker("a")
        await to.until_routable(("a", None))
        assert (await to.ask("t-1"))[0] == 200
