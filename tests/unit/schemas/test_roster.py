"""Who is remembered, and for how long."""

from schemas.roster import FORGOTTEN_SECONDS, Reading, Roster
from tests.ring_events import POLICY, RING, at, beat


def heard(roster: Roster, name: str, monotonic: float) -> None:
    roster.take(name, beat(name, 1), Reading(at(2), monotonic, is_live=True))


def test_a_worker_that_was_killed_is_forgotten_in_the_end() -> None:
    """One that is killed says no farewell, and its next start may have another name."""
    roster = Roster()
    for number in range(100):
        heard(roster, f"w-{number}", float(number))
    assert len(roster.heartbeats) == 100
    heard(roster, "w-99", FORGOTTEN_SECONDS + 50.5)
    assert sorted(roster.heartbeats) == sorted(f"w-{number}" for number in range(51, 100))
    assert list(roster.live(POLICY, RING, FORGOTTEN_SECONDS + 51)) == ["w-99"]
    roster.take("w-99", None, Reading(at(2), FORGOTTEN_SECONDS + 52, is_live=True))
    assert roster.live(POLICY, RING, FORGOTTEN_SECONDS + 52) == {}
