"""What a worker learns from the topics, in whatever order and whoever else is spoken of."""

import itertools
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from inference.worker.following import Follower
from schemas import codec, topics
from schemas.atdp.weights import RingAssignment, RingState, VersionRef
from schemas.bus import Received
from schemas.weights.manifests import signed
from tests.unit.worker.test_plan import manifest

_offsets = itertools.count()


def received(topic: str, event: object) -> Received:
    return Received(topic, 0, next(_offsets), b"k", codec.encode(event))  # type: ignore[arg-type]


def assignment(
    sequence: int, stable: int, *, ring: str = "a", policy: str = "main",
    canary: int | None = None, workers: tuple[str, ...] = (),
) -> RingAssignment:  # fmt: skip
    return RingAssignment(
        policy=policy, ring=ring, stable=VersionRef(version=stable, root=f"r{stable}"),
        canary=None if canary is None else VersionRef(version=canary, root=f"r{canary}"),
        canary_workers=workers, state=RingState.STABLE, decision_id="d", sequence=sequence,
        decided_at=datetime.now(UTC),
    )  # fmt: skip


@given(st.permutations(range(1, 6)))
def test_the_highest_sequence_counts_in_any_order(order: list[int]) -> None:
    follower = Follower("w", "main", ["a"])
    for sequence in order:
        one = assignment(sequence, stable=10 - sequence)
        follower.take(received(topics.WEIGHTS_PROMOTIONS, one))
    assert follower.target == VersionRef(version=5, root="r5")


def test_the_first_ring_that_has_an_assignment_is_followed() -> None:
    follower = Follower("w", "main", ["a", "b"])
    follower.take(received(topics.WEIGHTS_PROMOTIONS, assignment(1, 3, ring="b")))
    follower.take(received(topics.WEIGHTS_PROMOTIONS, assignment(9, 4, ring="c")))
    follower.take(received(topics.WEIGHTS_PROMOTIONS, assignment(9, 5, ring="a", policy="other")))
    assert follower.target == VersionRef(version=3, root="r3")
    follower.take(received(topics.WEIGHTS_PROMOTIONS, assignment(1, 6, ring="a")))
    assert follower.target == VersionRef(version=6, root="r6")


def test_a_trial_is_for_those_who_are_named() -> None:
    one = assignment(1, 3, canary=4, workers=("w",))
    for worker_id, version in (("w", 4), ("v", 3)):
        follower = Follower(worker_id, "main", ["a"])
        follower.take(received(topics.WEIGHTS_PROMOTIONS, one))
        assert follower.target == VersionRef(version=version, root=f"r{version}")


def test_manifests_of_other_policies_and_what_cannot_be_read_pass_by() -> None:
    follower = Follower("w", "other", ["a"])
    follower.take(received(topics.WEIGHTS_VERSIONS, manifest(1, None, snapshot=True)))
    follower.take(Received(topics.WEIGHTS_VERSIONS, 0, 1, b"k", None))
    follower.take(Received(topics.WEIGHTS_VERSIONS, 0, 2, b"k", b"\x00nonsense"))
    assert (follower.num_manifests, follower.history.versions) == (0, {})


def test_with_a_key_unsigned_manifests_are_refused() -> None:
    follower = Follower("w", "main", ["a"], key=b"k")
    follower.take(received(topics.WEIGHTS_VERSIONS, manifest(1, None, snapshot=True)))
    assert follower.history.versions == {}
    assert len(follower.history.refused) == 1
    good = signed(manifest(1, None, snapshot=True), b"k")
    follower.take(received(topics.WEIGHTS_VERSIONS, good))
    assert list(follower.history.versions) == [1]
    assert follower.num_manifests == 2
