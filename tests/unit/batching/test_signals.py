"""Demonstrations, preferences and critiques: each is in a batch, or dropped with its reason."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas import topics
from schemas.atdp.internal import RewardRef, Sample, StepRef
from schemas.atdp.training import Decision, SequenceKind
from schemas.atdp.types import RedactedSpan, Reward, RewardKind
from schemas.ids import trajectory_key
from schemas.settings import BatchingSettings
from tests.training_events import NOON, model_step, sample_of
from tests.unit.batching.test_lane import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def signal(
    world: World, kind: RewardKind, text: str | None = "do it so", *, revision: int = 1,
    step: dict[str, Any] | None = None, sample: dict[str, Any] | None = None, **fields: Any,
) -> Sample:  # fmt: skip
    """Publish a step, a signal about it, and the sample that assembly makes of them."""
    made = model_step("s", [1, 2], [10, 20], **(step or {}))
    key = trajectory_key(made.tenant_id, made.trajectory_id)
    at = world.put(topics.STEPS, key, made)
    told = Reward(
        reward_id="r", tenant_id="acme", trajectory_id="t-1", step_id="s", name="better", kind=kind,
        text=text, revision=revision, occurred_at=NOON, received_at=NOON, digest="d",
    )  # fmt: skip
    lies = world.put(topics.REWARDS, key, replace(told, **fields))
    told_at = StepRef(partition=lies.partition, offset=lies.offset)
    about = {
        "sample_id": f"signal-{revision}",
        "signal": kind,
        "signal_refs": (told_at,),
        "rewards": (RewardRef(reward_id="r", revision=revision),),
    }
    plain = sample_of([made], None, places=[(at.partition, at.offset)])
    return world.publish(replace(plain, **about, **(sample or {})))


def test_a_demonstration_goes_out_as_its_prompt_and_the_text(world: World) -> None:
    sample = signal(world, RewardKind.DEMONSTRATION)
    world.run()
    world.pass_time()
    [sequence] = world.batches[0].sequences
    assert sequence.kind is SequenceKind.DEMONSTRATION
    assert (sequence.token_ids, sequence.answer) == ((1, 2), "do it so")
    assert [(t.first, t.end) for t in sequence.trained] == [(2, 2)]
    assert world.decided(sample) == [(Decision.TRAINED, None)]
    assert not world.unacknowledged()


@pytest.mark.parametrize(("value", "is_better"), [(None, True), (True, True), (False, False)])
def test_a_preference_goes_out_with_the_given_answer(
    world: World, value: bool | None, is_better: bool
) -> None:
    signal(world, RewardKind.PREFERENCE, value=value)
    world.run()
    world.pass_time()
    [sequence] = world.batches[0].sequences
    assert sequence.kind is SequenceKind.PREFERENCE
    assert (sequence.token_ids, sequence.answer) == ((1, 2, 10, 20), "do it so")
    assert [(t.first, t.end) for t in sequence.trained] == [(2, 4)]
    assert sequence.answer_is_better is is_better


REDACTION = RedactedSpan(path="text", kind="EMAIL_ADDRESS", start=0, end=2, placeholder="<x>")


@pytest.mark.parametrize(
    ("kind", "given", "reason"),
    [
        (RewardKind.CRITIQUE, {}, "critique"),
        (RewardKind.DEMONSTRATION, {"text": " "}, "text_missing"),
        (RewardKind.DEMONSTRATION, {"redactions": (REDACTION,)}, "text_redacted"),
        (RewardKind.DEMONSTRATION, {"tenant_id": "other"}, "steps_expired"),
        (RewardKind.DEMONSTRATION, {"step": {"policy": None}}, "policy_unknown"),
        (
            RewardKind.DEMONSTRATION,
            {"sample": {"eligible": False, "reasons": ("not_permitted",)}},
            "not_permitted",
        ),
        (
            RewardKind.DEMONSTRATION,
            {"sample": {"eligible": False, "reasons": ("reward_retracted",)}},
            "reward_retracted",
        ),
    ],
)
def test_what_is_not_learned_is_dropped_with_its_reason(
    world: World, kind: RewardKind, given: dict[str, Any], reason: str
) -> None:
    sample = signal(world, kind, **given)
    world.run()
    world.pass_time()
    assert world.decided(sample) == [(Decision.DROPPED, reason)]
    assert world.batches == []


@pytest.mark.parametrize("kind", [RewardKind.DEMONSTRATION, RewardKind.PREFERENCE])
def test_a_kind_that_is_switched_off_is_dropped_as_such(tmp_path: Path, kind: RewardKind) -> None:
    off = BatchingSettings(demonstrations=False, preferences=False)
    world = World(tmp_path, off)
    sample = signal(world, kind)
    world.run()
    assert world.decided(sample) == [(Decision.DROPPED, kind.value)]


def test_a_signal_and_a_reward_of_one_step_are_both_trained(world: World) -> None:
    told = signal(world, RewardKind.DEMONSTRATION)
    rated = world.publish(replace(told, sample_id="rated", reward=1.0, signal=None))
    world.run()
    world.pass_time()
    kinds = {s.sample_id: s.kind for b in world.batches for s in b.sequences}
    assert kinds == {
        told.sample_id: SequenceKind.DEMONSTRATION,
        rated.sample_id: SequenceKind.POLICY_GRADIENT,
    }


def test_a_corrected_demonstration_goes_out_as_the_next_revision(world: World) -> None:
    first = signal(world, RewardKind.DEMONSTRATION)
    world.run()
    world.pass_time()
    signal(world, RewardKind.DEMONSTRATION, "no, so", revision=2)
    world.run()
    world.pass_time()
    _, second = (s for b in world.batches for s in b.sequences)
    assert (second.revision, second.replaces, second.answer) == (2, first.sample_id, "no, so")


def test_a_demonstration_that_is_taken_back_is_told_to_the_trainer(world: World) -> None:
    told = signal(world, RewardKind.DEMONSTRATION)
    world.run()
    world.pass_time()
    taken_back = {"eligible": False, "reasons": ("reward_retracted",)}
    gone = signal(world, RewardKind.DEMONSTRATION, revision=2, retracted=True, sample=taken_back)
    world.run()
    world.pass_time()
    _, last = (s for b in world.batches for s in b.sequences)
    assert (last.kind, last.replaces) == (SequenceKind.RETRACTION, told.sample_id)
    assert world.decided(gone) == [(Decision.DROPPED, "reward_retracted")]


def test_a_death_after_it_was_sent_sends_it_once(world: World) -> None:
    signal(world, RewardKind.DEMONSTRATION)
    world.run()
    world.pass_time()
    sent = len(world.batches)
    world.start()
    world.acknowledged.clear()
    world.run()
    world.pass_time()
    assert (sent, len(world.batches)) == (1, 1)
