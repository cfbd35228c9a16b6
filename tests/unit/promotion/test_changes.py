"""Proposals, trials and refusals, case by case."""

import json

import pytest

from controlplane.promotion.changes import MANIFEST_SECONDS
from controlplane.promotion.state import State
from schemas.atdp.weights import AckStatus, ProposalStatus, RingState
from schemas.rings import MAX_SERVED, STALE_SECONDS, TRAINER, target_of
from schemas.weights.manifests import signed
from tests.ring_events import POLICY, RING, ack, at, beat, manifest, proposal, ref
from tests.unit.promotion.world import World

REFUSED = AckStatus.REFUSED


@pytest.fixture
def world() -> World:
    """Versions 1 to 5 are published, two workers are there, the ring serves 1."""
    made = World()
    made.add(*(manifest(version) for version in range(1, 6)))
    made.add(beat("a", None), beat("b", None), proposal(1))
    made.settle()
    assert (made.ring.sequence, made.ring.stable, made.ring.state) == (1, ref(1), RingState.STABLE)
    return made


def promote(world: World, version: int, seconds: float, **changes: object) -> None:
    world.seconds = seconds
    world.add(proposal(version, proposed_at=at(seconds), **changes))
    world.settle()


def hear(world: World, *workers: str, version: int) -> None:
    world.add(*(beat(worker, version, heartbeat_at=at(world.seconds)) for worker in workers))


def test_an_accepted_proposal_becomes_the_whole_assignment(world: World) -> None:
    promote(world, 2, 3.0, reason="better", evidence='{"reward": 0.7}')
    ring = world.ring
    assert (ring.sequence, ring.stable, ring.served) == (2, ref(2), (ref(1),))
    assert (ring.reason, ring.evidence, ring.decided_at) == ("better", '{"reward": 0.7}', at(3))
    answer = world.answer(2)
    assert (answer.status, answer.sequence) == (ProposalStatus.ACCEPTED, 2)
    assert answer.proposal_id == ring.decision_id


@pytest.mark.parametrize("killed_after", [None, 0, 1, 2])
def test_two_rings_may_be_offered_one_version_at_once(
    world: World, killed_after: int | None
) -> None:
    """Nobody decides between the two; the second one must not hide the first, also where the
    process dies before, between or after the two decisions."""
    num_before = len(world.written)
    world.add(proposal(2, proposed_at=at(1)), proposal(2, proposed_at=at(2), ring="other"))
    if killed_after is not None:  # all that is left is what compaction keeps
        for _ in range(killed_after):
            world.step()
        world.restart()
    world.settle()
    assert len(world.written) == num_before + 2, "each is decided once"
    for ring in (RING, "other"):
        assert world.state.rings[POLICY, ring].stable == ref(2)
        assert world.answer(2, ring).status is ProposalStatus.ACCEPTED
    assert world.answer(2) != world.answer(2, "other")
    assert not world.state.pending()


def test_a_rollback_is_an_ordinary_assignment_with_a_lower_version(world: World) -> None:
    for seconds, version in enumerate((2, 3, 2, 1, 4), start=1):
        promote(world, version, float(seconds))
    assert world.ring.sequence == 6
    assert world.ring.served == (ref(1), ref(2), ref(3))
    assert [c.assignment.state for c in world.written if c.assignment] == [
        RingState.STABLE, RingState.STABLE, RingState.STABLE, RingState.ROLLED_BACK,
        RingState.ROLLED_BACK, RingState.STABLE,
    ]  # fmt: skip


def test_a_version_that_nobody_published_waits_for_its_manifest_and_is_refused(
    world: World,
) -> None:
    promote(world, 9, 1.0)
    assert [p.proposal.target.version for p in world.state.pending()] == [9]
    world.seconds += MANIFEST_SECONDS
    world.settle()
    assert world.answer(9).status is ProposalStatus.REFUSED
    assert "has no version 9" in world.answer(9).reason
    assert world.ring.sequence == 1


def test_a_manifest_that_comes_after_the_proposal_is_waited_for(world: World) -> None:
    promote(world, 9, 1.0)
    world.add(manifest(9))
    world.settle()
    assert world.ring.stable == ref(9)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"target": ref(2).__class__(version=2, root="f" * 64)}, "another root"),
        ({"ring": "no/name"}, "letters"),
        ({"canary_share": 1.0}, "between 0 and 1"),
        ({"canary_share": 0.0}, "between 0 and 1"),
        ({"canary_share": 0.5, "ring": "other"}, "serves nothing yet"),
        ({"proposed_by": TRAINER, "epoch": 0}, "later trainer"),
    ],
)
def test_what_cannot_be_accepted_is_answered_with_what_to_do(
    world: World, changes: dict[str, object], why: str
) -> None:
    promote(world, 2, 1.0, **changes)
    answer = world.answer(2, str(changes.get("ring", RING)))
    assert answer.status is ProposalStatus.REFUSED
    assert why in answer.reason
    assert world.ring.sequence == 1


def test_a_version_without_the_deployment_s_signature_is_not_assigned() -> None:
    world = World(state=State(key=b"k"))
    world.add(signed(manifest(1), b"k"), manifest(2), signed(manifest(3), b"x"), proposal(1))
    world.settle()
    for version in (2, 3):
        promote(world, version, MANIFEST_SECONDS * version)
        world.seconds += MANIFEST_SECONDS + 1
        world.settle()
        assert world.answer(version).status is ProposalStatus.REFUSED
        assert "signed with the key" in world.answer(version).reason
    assert world.ring.stable == ref(1)


def test_a_trial_of_what_is_served_or_with_one_worker_is_refused(world: World) -> None:
    promote(world, 1, 1.0, canary_share=0.5)
    assert "serves version 1 to all already" in world.answer(1).reason
    world.seconds = STALE_SECONDS + 1
    hear(world, "a", version=1)  # b is gone
    promote(world, 2, world.seconds, canary_share=0.5)
    assert "A trial needs two workers, and ring default of main has 1" in world.answer(2).reason


def test_with_manual_a_trainers_proposal_is_held_and_a_command_accepts_it(world: World) -> None:
    world.mode = "manual"
    promote(world, 2, 1.0, proposed_by=TRAINER)
    assert world.answer(2).status is ProposalStatus.HELD
    assert world.ring.stable == ref(1)
    promote(world, 2, 2.0)
    assert world.answer(2).status is ProposalStatus.ACCEPTED
    assert world.ring.stable == ref(2)


def test_a_trial_goes_to_some_workers_and_then_to_all(world: World) -> None:
    promote(world, 2, 1.0, canary_share=0.1)
    ring = world.ring
    assert (ring.stable, ring.canary, ring.canary_share) == (ref(1), ref(2), 0.1)
    assert (ring.state, ring.canary_workers) == (RingState.CANARY, ("a",))
    assert (target_of(ring, "a"), target_of(ring, "b")) == (ref(2), ref(1))
    promote(world, 2, 2.0)
    assert (world.ring.stable, world.ring.canary, world.ring.served) == (ref(2), None, (ref(1),))
    assert target_of(world.ring, "a") == ref(2)


def test_a_trial_ends_when_the_stable_version_is_promoted_again(world: World) -> None:
    promote(world, 2, 1.0, canary_share=0.5)
    promote(world, 1, 2.0)
    assert (world.ring.stable, world.ring.canary, world.ring.served) == (ref(1), None, ())


def test_a_trial_moves_to_another_worker_when_its_own_is_gone(world: World) -> None:
    world.add(beat("c", None))
    promote(world, 2, 1.0, canary_share=0.5)
    assert world.ring.canary_workers == ("a", "b")
    world.seconds = STALE_SECONDS + 2
    hear(world, "b", "c", version=1)
    world.settle()
    assert world.ring.canary_workers == ("b",)
    hear(world, "a", version=1)
    world.settle()
    assert world.ring.canary_workers == ("a", "b")
    assert (world.ring.canary, world.ring.canary_share) == (ref(2), 0.5)


def test_a_version_that_all_workers_refuse_is_taken_back(world: World) -> None:
    promote(world, 2, 1.0)
    world.add(ack("a", 2, REFUSED))
    world.settle()
    assert world.ring.stable == ref(2)  # b may still take it
    world.add(ack("b", 2, REFUSED, error="wrong_root"))
    world.settle()
    ring = world.ring
    assert (ring.stable, ring.served, ring.state) == (ref(1), (), RingState.ROLLED_BACK)
    assert ring.reason == "Every worker refused version 2: wrong_digest, wrong_root"
    assert json.loads(ring.evidence)["workers"] == {"a": "wrong_digest", "b": "wrong_root"}
    assert world.answer(2).status is ProposalStatus.ACCEPTED  # the proposal was; it is not repeated


def test_who_is_gone_or_of_another_ring_has_no_say(world: World) -> None:
    world.add(beat("elsewhere", None, rings=("other",)), beat("stranger", None, policy="p2"))
    world.seconds = STALE_SECONDS + 1
    hear(world, "a", version=1)
    promote(world, 2, world.seconds)
    world.add(ack("a", 2, REFUSED))
    world.settle()
    assert world.ring.stable == ref(1)


def test_a_refusal_from_before_the_assignment_does_not_count(world: World) -> None:
    promote(world, 2, 1.0)
    world.add(ack("a", 2, REFUSED), ack("b", 2, REFUSED))
    world.settle()
    assert world.ring.stable == ref(1)
    promote(world, 2, 2.0)  # whoever repaired it tries again
    assert world.ring.stable == ref(2)
    world.add(ack("a", 2, REFUSED))
    world.settle()
    assert world.ring.stable == ref(2)
    world.restart()
    world.settle()
    assert world.ring.stable == ref(2)


def test_a_first_version_that_all_refuse_freezes_the_ring_once(world: World) -> None:
    world.add(ack("a", 1, REFUSED), ack("b", 1, AckStatus.QUARANTINED))
    world.settle()
    assert (world.ring.state, world.ring.sequence) == (RingState.FROZEN, 2)
    assert "nothing to return to" in world.ring.reason
    world.add(ack("a", 1, REFUSED), ack("b", 1, REFUSED))
    world.settle()
    assert world.ring.sequence == 2
    promote(world, 3, 1.0)
    assert (world.ring.stable, world.ring.state) == (ref(3), RingState.STABLE)


def test_a_return_that_all_refuse_does_not_return_again(world: World) -> None:
    promote(world, 2, 1.0)
    promote(world, 3, 2.0)
    world.add(ack("a", 3, REFUSED), ack("b", 3, REFUSED))
    world.settle()
    assert world.ring.stable == ref(2)
    world.add(ack("a", 2, REFUSED), ack("b", 2, REFUSED))
    world.settle()
    assert (world.ring.stable, world.ring.state) == (ref(2), RingState.FROZEN)
    assert world.ring.served == (ref(1),)


def test_a_rollback_that_all_refuse_leads_back_to_what_they_serve(world: World) -> None:
    promote(world, 2, 1.0)
    promote(world, 1, 2.0)
    assert world.ring.state is RingState.ROLLED_BACK
    world.add(ack("a", 1, REFUSED), ack("b", 1, REFUSED))
    world.settle()
    assert (world.ring.stable, world.ring.state) == (ref(2), RingState.ROLLED_BACK)
    assert "refused version 1" in world.ring.reason


def test_a_refused_trial_ends_and_the_stable_version_stays(world: World) -> None:
    promote(world, 2, 1.0, canary_share=0.5)
    world.add(ack("a", 2, REFUSED))
    world.settle()
    ring = world.ring
    assert (ring.stable, ring.canary, ring.canary_workers) == (ref(1), None, ())
    assert (ring.state, ring.canary_share) == (RingState.ROLLED_BACK, 0.0)


def test_the_earlier_versions_that_are_remembered_are_bounded() -> None:
    world = World()
    world.add(*(manifest(version) for version in range(1, 31)))
    for version in range(1, 31):
        promote(world, version, float(version))
    assert world.ring.served == tuple(ref(v) for v in range(29, 29 - MAX_SERVED, -1))


def test_rings_do_not_touch_each_other(world: World) -> None:
    promote(world, 4, 1.0, ring="other")
    assert world.state.rings[POLICY, "other"].stable == ref(4)
    assert world.state.rings[POLICY, RING].sequence == 1
