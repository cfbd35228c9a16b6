"""Silence is told from an outage: while Kafka is away nobody is taken for gone."""

from collections.abc import Callable, Sequence

import pytest

from schemas import topics
from schemas.bus import Position
from schemas.bus.following import CONFIRM_SECONDS, Following
from schemas.bus.memory import MemoryAdmin, MemoryBus
from schemas.errors import TransientError
from tests.ring_events import beat, write


class MovableBus(MemoryBus):
    """A broker that can go away: what was fetched stays, questions fail."""

    is_away = False
    num_questions = 0

    #: What happens while it thinks.
    on_question: Callable[[], object] = staticmethod(lambda: None)

    def admin(self) -> "MovableAdmin":
        return MovableAdmin(self)


class MovableAdmin(MemoryAdmin):
    def __init__(self, bus: MovableBus) -> None:
        super().__init__(bus)
        self._movable = bus

    def extents(self, topics: Sequence[str]) -> dict[Position, tuple[int, int]]:
        self._movable.num_questions += 1
        self._movable.on_question()
        if self._movable.is_away:
            raise TransientError("Kafka: away")
        return super().extents(topics)


class Time:
    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def bus() -> MovableBus:
    made = MovableBus()
    made.admin().create_topics([topics.topic(topics.WORKERS)], 1, 1)
    return made


def test_the_moment_up_to_which_all_is_known_moves_with_records_and_answers(
    bus: MovableBus,
) -> None:
    time = Time()
    following = Following(bus, [topics.WORKERS], time)
    assert (following.as_of, following.is_caught_up) == (None, False)
    assert following.poll(0.0) == []
    assert (following.as_of, following.is_caught_up) == (100.0, True)
    time.seconds += 1.0
    write(bus, [beat("a", 1)])
    assert [r.key for r in following.poll(0.0)] == [b"a"]
    assert following.as_of == 101.0
    asked = bus.num_questions
    time.seconds += CONFIRM_SECONDS
    following.poll(0.0)
    assert (following.as_of, bus.num_questions) == (101.0, asked)  # it may just be between two
    time.seconds += 0.1
    following.poll(0.0)
    assert (following.as_of, bus.num_questions) == (time.seconds, asked + 1)


def test_it_stands_still_while_kafka_is_away_and_asks_seldom(bus: MovableBus) -> None:
    time = Time()
    following = Following(bus, [topics.WORKERS], time)
    following.poll(0.0)
    bus.is_away = True
    asked = bus.num_questions
    for _ in range(100):
        time.seconds += 0.1
        assert following.poll(0.0) == []
    assert (following.as_of, following.waits_for) == (100.0, "Kafka: away")
    assert bus.num_questions - asked <= 5
    # Nobody could say anything meanwhile: it goes on where everything was known last.
    bus.is_away = False
    time.seconds += CONFIRM_SECONDS + 0.1
    following.poll(0.0)
    assert (following.as_of, following.waits_for) == (100.0, "")
    assert following.clock() == 100.0
    time.seconds += CONFIRM_SECONDS + 0.1
    following.poll(0.0)
    assert following.as_of == following.clock() == pytest.approx(102.1)
    write(bus, [beat("a", 1)])
    time.seconds += 1.0
    assert following.poll(0.0)
    assert following.as_of == following.clock() == pytest.approx(103.1)


def test_a_broker_that_answers_late_was_away(bus: MovableBus) -> None:
    time = Time()
    following = Following(bus, [topics.WORKERS], time)
    following.poll(0.0)
    bus.on_question = lambda: setattr(time, "seconds", time.seconds + 9.0)
    time.seconds += CONFIRM_SECONDS + 0.1
    following.poll(0.0)
    assert following.as_of == following.clock() == 100.0


def test_silence_is_known_once_the_broker_says_so(bus: MovableBus) -> None:
    time = Time()
    following = Following(bus, [topics.WORKERS], time)
    following.poll(0.0)
    for _ in range(200):
        time.seconds += 0.1
        following.poll(0.0)
    assert following.as_of is not None
    assert following.as_of > 115.0
