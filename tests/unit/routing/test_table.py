"""Who may get a call, case by case and whatever the workers say."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.routing.table import Routes, Serving, Table, serves
from schemas import codec, topics
from schemas.atdp.weights import AckStatus, RingAssignment, RingState, VersionRef
from schemas.bus import Received
from schemas.rings import STALE_SECONDS
from schemas.roster import Reading
from tests.ring_events import POLICY, RING, START, ack, at, beat, record, ref

KEY = b"k" * 32
REFUSED, QUARANTINED = AckStatus.REFUSED, AckStatus.QUARANTINED


def assignment(stable: int, *served: int, sequence: int = 1, **changes: Any) -> RingAssignment:
    fields: dict[str, Any] = {
        "policy": POLICY, "ring": RING, "stable": ref(stable), "decision_id": "d",
        "served": tuple(ref(v) for v in served), "state": RingState.STABLE, "sequence": sequence,
        "decided_at": START,
    }  # fmt: skip
    return RingAssignment(**fields | changes)


def table(*events: Any, seconds: float = 0.0) -> Table:
    made = Table(POLICY, RING)
    take(made, *events, seconds=seconds)
    return made


def take(to: Table, *events: Any, seconds: float = 0.0, is_live: bool = True) -> None:
    for event in events:
        reading = Reading(at(seconds), seconds, is_live)
        if isinstance(event, RingAssignment):
            topic, key, value = topics.WEIGHTS_PROMOTIONS, b"ring", codec.encode(event)
        else:
            made = record(event)
            topic, key, value = made.topic, made.key or b"", made.value or b""
        to.take(Received(topic, 0, 0, key, value), reading)


def best(routes: Routes, call: bytes = b"t/1") -> list[tuple[str, int | None]]:
    return [(w.worker_id, w.version) for w in routes.candidates(KEY, call)]


def names(routes: Routes) -> set[str]:
    return {name for name, _ in best(routes)}


def test_nobody_is_there() -> None:
    assert best(table(assignment(1)).routes(0.0)) == []


def test_before_the_first_promotion_the_model_that_workers_started_with_answers() -> None:
    made = table(beat("a", None), beat("b", 3), ack("b", 3))
    assert best(made.routes(0.0)) == [("a", None)]


def test_until_somebody_proves_the_first_version_the_model_before_it_answers() -> None:
    made = table(assignment(1), beat("a", None), beat("b", None))
    assert names(made.routes(0.0)) == {"a", "b"}
    take(made, ack("a", 1, occurred_at=at(3)))
    assert best(made.routes(0.0))[0] == ("a", 1)


def test_a_rollout_moves_worker_by_worker_and_always_has_an_answer() -> None:
    made = table(assignment(1), ack("a", 1), beat("a", 1), ack("b", 1), beat("b", 1))
    assert {v for _, v in best(made.routes(0.0))} == {1}
    take(made, assignment(2, 1, sequence=2))
    assert sorted(best(made.routes(0.0))) == [("a", 1), ("b", 1)]
    take(made, ack("b", 2, occurred_at=at(3)))
    assert best(made.routes(0.0)) == [("b", 2), ("a", 1)]  # a is there when b breaks
    take(made, beat("b", 2, heartbeat_at=at(4)), ack("a", 2, occurred_at=at(5)))
    assert sorted(best(made.routes(0.0))) == [("a", 2), ("b", 2)]


def test_a_rollback_keeps_an_answer_until_somebody_is_back() -> None:
    made = table(assignment(2, 1), ack("a", 2), beat("a", 2))
    take(made, assignment(1, 2, sequence=2))
    assert best(made.routes(0.0)) == [("a", 2)]
    take(made, ack("a", 1, occurred_at=at(3)))
    assert best(made.routes(0.0)) == [("a", 1)]


def test_a_version_that_was_taken_back_gets_nothing() -> None:
    made = table(assignment(2, 1), ack("a", 2), beat("a", 2))
    take(made, assignment(1, sequence=2, state=RingState.ROLLED_BACK))
    assert best(made.routes(0.0)) == []


def test_an_older_assignment_changes_nothing() -> None:
    made = table(assignment(2, 1, sequence=7), assignment(1, sequence=6))
    assert made.assignment == assignment(2, 1, sequence=7)


def test_a_worker_with_other_weights_under_the_same_number_gets_nothing() -> None:
    other: dict[str, Any] = {"root": "f" * 64}
    made = table(assignment(1, sequence=1), ack("a", 1, **other), beat("a", 1, **other))
    assert best(made.routes(0.0)) == []


def test_other_policies_and_rings_do_not_matter() -> None:
    made = table(
        assignment(1), assignment(2, ring="other", sequence=9), assignment(3, policy="p2"),
        ack("a", 1), beat("a", 1), ack("b", 1), beat("b", 1, rings=("other",)),
        ack("c", 1, policy="p2"), beat("c", 1, policy="p2"),
    )  # fmt: skip
    assert best(made.routes(0.0)) == [("a", 1)]


def test_silence_counts_only_up_to_the_moment_that_is_known() -> None:
    made = table(assignment(1), ack("a", 1), beat("a", 1), seconds=100.0)
    assert best(made.routes(100.0 + STALE_SECONDS)) == [("a", 1)]
    assert best(made.routes(100.1 + STALE_SECONDS)) == []


def test_what_lay_there_at_the_start_is_as_old_as_it_says() -> None:
    made = table(assignment(1), ack("a", 1))
    take(made, beat("a", 1, heartbeat_at=at(2)), seconds=2 + STALE_SECONDS, is_live=False)
    assert best(made.routes(2 + STALE_SECONDS)) == [("a", 1)]
    assert best(made.routes(3 + STALE_SECONDS)) == []


def test_a_worker_that_says_goodbye_gets_nothing_more() -> None:
    made = table(assignment(1), ack("a", 1), beat("a", 1))
    made.take(Received(topics.WORKERS, 0, 1, b"a", None), Reading(START, 0.0, is_live=True))
    assert best(made.routes(0.0)) == []


def test_a_broken_record_is_passed_over() -> None:
    made = table(assignment(1), ack("a", 1), beat("a", 1))
    made.take(Received(topics.WORKERS, 0, 1, b"a", b"{"), Reading(START, 0.0, is_live=True))
    assert (best(made.routes(0.0)), made.num_unreadable) == ([("a", 1)], 1)


LATER: dict[str, Any] = {"occurred_at": at(9)}


@pytest.mark.parametrize(
    ("what", "heartbeat", "said", "expected"),
    [
        ("proved and told", beat("a", 5), ack("a", 5), Serving(ref(5))),
        ("proved, not yet told", beat("a", 4), ack("a", 5, **LATER), Serving(ref(5))),
        ("told, not proved", beat("a", 5), ack("a", 4), None),
        ("told before anything was proved", beat("a", 5), None, None),
        ("nothing published", beat("a", None), None, Serving(None)),
        ("goes on after a refusal", beat("a", 4), ack("a", 5, REFUSED), Serving(ref(4))),
        ("goes on while staging", beat("a", 4), ack("a", 5, AckStatus.STAGED), Serving(ref(4))),
        ("in quarantine", beat("a", 4), ack("a", 5, QUARANTINED), None),
        ("a status of the future", beat("a", 4), ack("a", 5, AckStatus.UNKNOWN), None),
        ("applied without a root", beat("a", 5), ack("a", 5, root=None, **LATER), None),
        ("started anew", beat("a", None, started_at=at(1.5)), ack("a", 5), Serving(None)),
        ("started anew, not proved", beat("a", 5, started_at=at(1.5)), ack("a", 5), None),
        ("up for longer than acks are kept", beat("a", 5, started_at=START - timedelta(days=8)),
         None, Serving(ref(5))),
    ],
)  # fmt: skip
def test_what_a_worker_is_believed(what: str, heartbeat: Any, said: Any, expected: Any) -> None:
    assert serves(heartbeat, said) == expected, what


def test_a_trial_gets_its_share_and_a_trajectory_stays() -> None:
    trial: dict[str, Any] = {"canary": ref(2), "canary_share": 0.25, "canary_workers": ("a",)}
    made = table(
        assignment(1, state=RingState.CANARY, **trial),
        ack("a", 2), beat("a", 2), ack("b", 1), beat("b", 1),
    )  # fmt: skip
    routes = made.routes(0.0)
    calls = [f"t/{n}".encode() for n in range(4_000)]
    first = {call: best(routes, call)[0] for call in calls}
    share = sum(1 for choice in first.values() if choice == ("a", 2)) / len(calls)
    assert 0.22 < share < 0.28
    assert all(best(routes, call)[0] == choice for call, choice in first.items())
    # A larger share keeps those that it had; the others' turn comes.
    take(made, assignment(1, sequence=2, state=RingState.CANARY, **trial | {"canary_share": 0.5}))
    wider = made.routes(0.0)
    assert all(best(wider, call)[0] == ("a", 2) for call in calls if first[call] == ("a", 2))
    # Without the worker on trial everybody gets the stable version.
    take(made, ack("a", 2, QUARANTINED))
    assert {best(made.routes(0.0), call)[0] for call in calls} == {("b", 1)}


def test_calls_spread_over_the_workers_and_a_trajectory_stays() -> None:
    made = table(assignment(1), *(e for w in "abc" for e in (ack(w, 1), beat(w, 1))))
    routes = made.routes(0.0)
    firsts = [best(routes, f"t/{n}".encode())[0][0] for n in range(3_000)]
    assert all(800 < firsts.count(worker) < 1_200 for worker in "abc")
    assert best(routes, b"t/7") == best(routes, b"t/7")
    # Another worker takes only what it gets; nothing moves between the others.
    take(made, ack("d", 1), beat("d", 1))
    moved = [best(made.routes(0.0), f"t/{n}".encode())[0][0] for n in range(3_000)]
    assert {(old, new) for old, new in zip(firsts, moved, strict=True) if old != new} == {
        ("a", "d"), ("b", "d"), ("c", "d"),
    }  # fmt: skip


EVENTS = st.one_of(
    st.builds(
        lambda stable, served, sequence, canary: assignment(
            stable, *served, sequence=sequence,
            canary=ref(canary) if canary else None, canary_share=0.5 if canary else 0.0,
        ),
        st.integers(1, 4), st.lists(st.integers(1, 4), max_size=3, unique=True),
        st.integers(1, 9), st.sampled_from([0, 1, 2, 3, 4]),
    ),
    st.builds(
        lambda worker, version, status, seconds: ack(
            worker, version, status, occurred_at=at(seconds)
        ),
        st.sampled_from("abc"), st.integers(1, 4), st.sampled_from(list(AckStatus)),
        st.integers(0, 9),
    ),
    st.builds(
        lambda worker, version, seconds: beat(worker, version, heartbeat_at=at(seconds)),
        st.sampled_from("abc"), st.sampled_from([None, 1, 2, 3, 4]), st.integers(0, 9),
    ),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(EVENTS, max_size=30), st.binary(max_size=4))
def test_nobody_gets_a_call_for_what_it_has_not_proved(events: list[Any], call: bytes) -> None:
    made = table(*events)
    for worker in made.routes(0.0).candidates(KEY, call):
        said, heartbeat = made.acks.get(worker.worker_id), made.roster.heartbeats[worker.worker_id]
        assert said is None or said.status is not QUARANTINED
        if worker.version is None:
            assert heartbeat.version is None
            continue
        proved = VersionRef(version=worker.version, root=f"{worker.version:064x}")
        assert said is not None
        if said.status is AckStatus.APPLIED:
            assert (said.version, said.root) == (proved.version, proved.root)
        else:
            assert heartbeat.version == worker.version
        assert made.assignment is not None
        ring = made.assignment
        assert proved in (ring.stable, ring.canary, *ring.served)
