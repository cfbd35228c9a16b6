"""One suite over the promotion process and the gateways' tables, in memory and on a real broker."""

import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from controlplane.promotion.process import Promotion
from controlplane.promotion.state import TOPICS, State
from inference.routing.follow import RouteFollower
from schemas import topics
from schemas.atdp.weights import AckStatus, ProposalStatus, RingState
from schemas.bus import Bus, FencedError, Received, read_to_end
from schemas.bus.access import KafkaAccess
from schemas.bus.following import CONFIRM_SECONDS, Following
from schemas.bus.kafka import KafkaBus
from schemas.bus.memory import MemoryBus, MemoryConsumer
from schemas.errors import ConfigError
from schemas.roster import Reading
from schemas.settings import PromotionSettings
from tests.ring_events import POLICY, RING, ack, beat, manifest, proposal, ref, write
from tests.services import running

_SECONDS = 30.0
KEY = b"k" * 32


class PatientConsumer(MemoryConsumer):
    """Waits a moment where there is nothing, as a broker's does, so that a loop does not spin."""

    def poll(self, max_records: int, timeout_seconds: float) -> list[Received]:
        found = super().poll(max_records, timeout_seconds)
        if not found:
            threading.Event().wait(min(timeout_seconds, 0.005))
        return found


class PatientBus(MemoryBus):
    def consumer(self, *, reads_ahead: bool = True) -> MemoryConsumer:  # noqa: ARG002 - the port's signature
        return PatientConsumer(self)


@dataclass(frozen=True)
class Place:
    """A bus with the topics of weights, and how a child process finds it."""

    bus: Bus
    environment: dict[str, str]

    def state(self) -> State:
        """What a process that comes now would know."""
        made = State()
        reading = Reading(datetime.now(UTC), time.monotonic(), is_live=True)
        for topic in TOPICS:
            for received in read_to_end(self.bus, topic):
                made.take(received, reading)
        return made

    def until(self, condition: Callable[[State], Any]) -> State:
        deadline = time.monotonic() + _SECONDS
        while not condition(state := self.state()):
            assert time.monotonic() < deadline, f"did not come true: {state.rings}"
        return state


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.integration)])
def place(request: pytest.FixtureRequest) -> Place:
    bus: Bus = PatientBus()
    environment = {}
    if request.param == "real":
        servers, prefix = request.getfixturevalue("kafka"), f"p{uuid.uuid4().hex[:8]}."
        bus = KafkaBus(KafkaAccess(servers, prefix=prefix))
        environment = {
            "HEADRACE_KAFKA__BOOTSTRAP_SERVERS": servers, "HEADRACE_KAFKA__TOPIC_PREFIX": prefix,
        }  # fmt: skip
    bus.admin().create_topics([topics.topic(name) for name in TOPICS], 1, 1)
    return Place(bus, environment)


@contextmanager
def deciding(place: Place, mode: str = "auto") -> Iterator[Promotion]:
    """A promotion process, as a thread, that has read everything."""
    ready = threading.Event()
    settings = PromotionSettings.model_validate({"mode": mode})
    promotion = Promotion(place.bus, settings, on_ready=ready.set)
    thread = threading.Thread(target=promotion.run, daemon=True)
    thread.start()
    try:
        assert ready.wait(_SECONDS)
        yield promotion
    finally:
        promotion.stop()
        thread.join(_SECONDS)
        assert not thread.is_alive()


def test_proposals_are_answered_and_refused_versions_taken_back(place: Place) -> None:
    write(place.bus, [manifest(1), manifest(2), beat("a", None), beat("b", None), proposal(1)])
    with deciding(place):
        place.until(lambda s: s.rings and s.rings[POLICY, RING].stable == ref(1))
        write(place.bus, [beat("a", 1, heartbeat_at=datetime.now(UTC)),
                          beat("b", 1, heartbeat_at=datetime.now(UTC)), proposal(2)])  # fmt: skip
        state = place.until(lambda s: (POLICY, RING, 2) in s.answers)
        assert state.answers[POLICY, RING, 2].status is ProposalStatus.ACCEPTED
        write(place.bus, [ack("a", 2, AckStatus.REFUSED), ack("b", 2, AckStatus.REFUSED)])
        state = place.until(lambda s: s.rings[POLICY, RING].sequence == 3)
    ring = state.rings[POLICY, RING]
    assert (ring.stable, ring.state) == (ref(1), RingState.ROLLED_BACK)


def test_a_later_process_ends_the_earlier_one_and_counts_on(place: Place) -> None:
    write(place.bus, [manifest(1), manifest(2), proposal(1)])
    first = Promotion(place.bus, PromotionSettings())
    outcome: list[BaseException] = []

    def run() -> None:
        try:
            first.run()
        except FencedError as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    place.until(lambda s: s.rings)
    with deciding(place):
        write(place.bus, [proposal(2)])
        state = place.until(lambda s: s.rings[POLICY, RING].sequence == 2)
        thread.join(_SECONDS)
    assert not thread.is_alive()
    assert len(outcome) == 1
    assert state.rings[POLICY, RING].epoch == 2
    made = [a for a in state.answers.values() if a.status is ProposalStatus.ACCEPTED]
    assert sorted(answer.sequence or 0 for answer in made) == [1, 2]


def test_what_was_proposed_while_nobody_decided_is_decided_later(place: Place) -> None:
    write(place.bus, [manifest(1), manifest(2), proposal(1), proposal(2)])
    with deciding(place):
        state = place.until(lambda s: not s.pending())
    assert state.rings[POLICY, RING].stable == ref(2)
    with deciding(place):
        pass  # and nothing is decided a second time
    assert place.state().rings == state.rings


def test_a_gateway_follows_and_a_new_one_knows_the_same(place: Place) -> None:
    def now_beat(worker: str, version: int | None) -> Any:
        return beat(worker, version, heartbeat_at=datetime.now(UTC))

    def firsts(follower: RouteFollower) -> list[tuple[str, int | None]]:
        return [(w.worker_id, w.version) for w in follower.routes.candidates(KEY, b"t/1")]

    followers = [RouteFollower(place.bus, POLICY, RING)]
    followers[0].start()
    try:
        write(place.bus, [manifest(1), proposal(1), now_beat("a", None)])
        _wait(lambda: firsts(followers[0]) == [("a", None)])
        with deciding(place):
            place.until(lambda s: s.rings)
            write(place.bus, [ack("a", 1, occurred_at=datetime.now(UTC)), now_beat("a", 1)])
            _wait(lambda: firsts(followers[0]) == [("a", 1)])
        followers.append(RouteFollower(place.bus, POLICY, RING))
        followers[1].start()
        _wait(lambda: followers[1].is_ready)
        assert followers[1].routes == followers[0].routes
    finally:
        for follower in followers:
            follower.stop()
        assert not any(follower.is_alive for follower in followers)


def test_following_says_up_to_when_it_knows_everything(place: Place) -> None:
    write(place.bus, [manifest(1), beat("a", None)])
    following = Following(place.bus, TOPICS)
    found: list[Received] = []
    try:
        while not following.is_caught_up:
            found += following.poll(0.05)
        assert {r.topic for r in found} == {topics.WEIGHTS_VERSIONS, topics.WORKERS}
        first = following.as_of
        assert first is not None
        _wait(lambda: following.poll(0.05) or (following.as_of or 0) >= first + CONFIRM_SECONDS)
    finally:
        following.close()


def test_a_topic_that_nobody_made_is_named(place: Place) -> None:
    with pytest.raises(ConfigError, match=r"training\.samples\.v1 does not exist"):
        Following(place.bus, [*TOPICS, topics.SAMPLES])


#: Of making the transactions, begin, each of two sends and commit, before and after each: after
#: begin, between the sends, after them, before the commit, after the commit.
STEPS = (3, 5, 7, 8, 9)


@pytest.mark.integration
@pytest.mark.parametrize("place", ["real"], indirect=True)
def test_a_process_killed_at_any_step_leaves_a_decision_whole_or_undone(
    place: Place, tmp_path: Path
) -> None:
    """Kill -9 in the middle of a decision: nothing half, nothing twice, nothing forgotten."""
    number = len(STEPS) + 1
    write(place.bus, [manifest(version) for version in range(1, number + 1)])
    servers, prefix = place.environment.values()
    command = [sys.executable, "-m", "tests.integration.routing.dying", servers, prefix]
    for version, step in enumerate(STEPS, start=1):
        write(place.bus, [proposal(version)])
        with running([*command, str(step)], tmp_path / "log") as process:
            assert process.wait(_SECONDS) == -signal.SIGKILL
        state = place.state()
        made = [answer.sequence or 0 for answer in state.answers.values()]
        newest = max(state.rings.values(), key=lambda r: r.sequence, default=None)
        assert sorted(made) == list(range(1, len(made) + 1))
        assert (0 if newest is None else newest.sequence) == len(made)
    assert made, "the last process was killed after its commit"
    write(place.bus, [proposal(number)])
    with deciding(place):
        state = place.until(lambda s: not s.pending())
    assert state.rings[POLICY, RING].stable == ref(number)
    answers = sorted(state.answers.values(), key=lambda a: a.version)
    assert [answer.sequence for answer in answers] == list(range(1, number + 1))


def _wait(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        threading.Event().wait(0.01)
