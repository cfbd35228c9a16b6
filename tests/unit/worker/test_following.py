"""What a worker learns from the topics, in whatever order and whoever else is spoken of."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from inference.worker.following import KEPT_LINES, Follower
from schemas import codec, topics
from schemas.atdp.weights import RingAssignment, RingState, TensorDigest, VersionRef
from schemas.bus import Received
from schemas.weights.manifests import MAX_REFUSED, signed
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


def test_what_is_kept_of_manifests_is_bounded() -> None:
    """Old ones lose their lines, and of those that are refused only the latest are kept."""
    line = TensorDigest(name="a", dtype="BF16", shape=(2,), digest="00" * 16, num_changed=1)
    follower = Follower("w", "main", ["a"])
    first = replace(manifest(1, None, snapshot=True), tensors=(line,))
    follower.take(received(topics.WEIGHTS_VERSIONS, first))
    for version in range(2, KEPT_LINES + 12):
        made = replace(manifest(version, version - 1), tensors=(line,))
        follower.take(received(topics.WEIGHTS_VERSIONS, made))
    versions, newest = follower.history.versions, KEPT_LINES + 11
    assert [len(versions[v].tensors) for v in (1, 11, 12, newest)] == [0, 0, 1, 1]
    assert follower.history.snapshots[1].tensors == ()
    assert follower.history.path_to(newest)[0].root == first.root
    for number in range(MAX_REFUSED + 5):
        other = replace(manifest(5_000 + number, 4_000), tensors=(line,))
        follower.take(received(topics.WEIGHTS_VERSIONS, other))
    refused = follower.history.refused
    assert len(refused) == MAX_REFUSED
    assert (refused[0][0].version, refused[-1][0].version) == (5_005, 5_000 + MAX_REFUSED + 4)
    assert refused[0][0].tensors == ()
