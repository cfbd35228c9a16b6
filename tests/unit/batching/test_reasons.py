"""Each reason is given for what it says, and docs/learning.md says all of them."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.atdp.training import Decision, SampleOutcome, SequenceKind
from streams.batching.admission import (
    Candidate,
    Refusal,
    Rules,
    Why,
    before_steps,
    outcome_of,
    staleness,
    with_steps,
)
from streams.batching.memory import Memory
from tests.training_events import model_step, retracted, sample_of

DOCS = Path(__file__).resolve().parents[3] / "docs"
RULES = Rules(success_reward=0.5, max_staleness=4, max_sample_tokens=40, retrain=False)


def decide(sample: Any, steps: Any, memory: Memory | None = None, rules: Rules = RULES) -> Any:
    memory = memory or Memory()
    found = before_steps(sample, memory, rules)
    return (
        with_steps(sample, {s.step_id: s for s in steps}, memory, rules) if found is None else found
    )


def why(sample: Any, steps: Any, memory: Memory | None = None, rules: Rules = RULES) -> str:
    found = decide(sample, steps, memory, rules)
    assert isinstance(found, Refusal), found
    return found.why.value


def test_the_document_lists_every_reason() -> None:
    text = (DOCS / "learning.md").read_text()
    rows = re.findall(r"^\| (trained|held|dropped) \| `([a-z_]+)` \|", text, re.M)
    assert {reason for _, reason in rows} == {reason.value for reason in Why}
    assert {decision for decision, _ in rows} <= {decision.value for decision in Decision}


@pytest.mark.parametrize(
    ("outcomes", "reward", "expected"),
    [
        (("complete",), 1.0, SampleOutcome.SUCCESS),
        (("complete",), 0.49, SampleOutcome.FAILURE),
        (("client_aborted", "complete"), 1.0, SampleOutcome.ABORTED),
        (("complete", "upstream_error"), 0.0, SampleOutcome.INFRASTRUCTURE_ERROR),
        (("client_aborted", "timeout"), 0.0, SampleOutcome.INFRASTRUCTURE_ERROR),
        (("complete", "rejected"), 0.0, SampleOutcome.INFRASTRUCTURE_ERROR),
        (("complete", "gateway_crashed"), 0.0, SampleOutcome.INFRASTRUCTURE_ERROR),
        (("complete", "unknown"), 0.0, SampleOutcome.CENSORED),
        (("complete",), None, SampleOutcome.CENSORED),
        ((), 1.0, SampleOutcome.SUCCESS),
    ],
)
def test_outcome_classes(outcomes: Any, reward: Any, expected: SampleOutcome) -> None:
    sample = sample_of([model_step("a", [1], [2])], reward, step_outcomes=outcomes)
    assert outcome_of(sample, 0.5) is expected


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_an_infrastructure_error_is_never_a_reward(reward: float) -> None:
    steps = [model_step("a", [1], [2])]
    sample = sample_of(
        steps, reward, eligible=False, reasons=("incomplete_step",),
        step_outcomes=("complete", "timeout"),
    )  # fmt: skip
    assert why(sample, steps) == "infrastructure_error"


def test_what_assembly_refuses_is_dropped_for_its_reason() -> None:
    steps = [model_step("a", [1], [2])]
    forbidden = sample_of(steps, eligible=False, reasons=("not_permitted",))
    assert why(forbidden, steps) == "not_permitted"
    hole = sample_of(steps, eligible=False, reasons=("missing_parent",))
    assert why(hole, steps) == "censored"
    left = sample_of(steps, eligible=False, reasons=("incomplete_step",),
                     step_outcomes=("client_aborted",))  # fmt: skip
    assert why(left, steps) == "aborted"
    assert why(retracted(sample_of(steps)), steps) == "reward_retracted"


def test_replayed_samples_are_trained_only_where_that_is_asked_for() -> None:
    steps = [model_step("a", [1], [2])]
    sample = sample_of(steps, replayed=True)
    assert why(sample, steps) == "replayed"
    assert isinstance(decide(sample, steps, rules=replace(RULES, retrain=True)), Candidate)


def test_what_the_steps_lack() -> None:
    plain = model_step("a", [1], [2])
    nameless = model_step("a", [1], [2], policy=None)
    other = model_step("b", [1, 2], [3], policy="other")
    assert why(sample_of([plain], step_refs=()), [plain]) == "places_unknown"
    assert why(sample_of([plain]), []) == "steps_expired"
    assert (
        why(sample_of([model_step("a", [1], [])]), [model_step("a", [1], [])]) == "tokens_missing"
    )
    assert (
        why(sample_of([model_step("a", [], [2])]), [model_step("a", [], [2])]) == "tokens_missing"
    )
    assert why(sample_of([nameless]), [nameless]) == "policy_unknown"
    assert why(sample_of([plain, other]), [plain, other]) == "policies_mixed"
    unversioned = model_step("a", [1], [2], version=None)
    assert why(sample_of([unversioned]), [unversioned]) == "version_unknown"
    long = model_step("a", range(40), [2])
    assert why(sample_of([long]), [long]) == "too_long"


@pytest.mark.parametrize("logprobs", [(), (-0.5,), (-0.5, float("nan")), (-0.5, 0.1)])
def test_log_probabilities_that_are_not_known_are_never_made_up(logprobs: Any) -> None:
    step = model_step("a", [1], [2, 3], logprobs=logprobs)
    assert why(sample_of([step], 0.0), [step]) == "logprobs_missing"
    found = decide(sample_of([step], 1.0), [step])
    [sequence] = found.sequences
    assert (sequence.kind, sequence.logprobs) == (SequenceKind.SUPERVISED, ())


def test_steps_without_tokens_make_a_sample_that_is_trained_in_part() -> None:
    steps = [model_step("a", [1], [2]), model_step("b", [1, 2], [])]
    found = decide(sample_of(steps), steps)
    assert not found.is_whole
    assert found.step_ids == ("a",)
    assert found.sequences[0].trained[0].turn == 1


def test_a_branch_that_was_sent_with_this_reward_says_nothing_new() -> None:
    steps = [model_step("a", [1], [2])]
    first = sample_of(steps)
    memory = Memory().decided(first.sample_id).trained("a", ["a"], first.sample_id, 1.0, "main")
    assert why(sample_of(steps, 1.0, revision=2), steps, memory) == "unchanged"
    changed = decide(sample_of(steps, 0.0, revision=2), steps, memory)
    assert changed.sequences[0].replaced_reward == 1.0
    prefix = memory.trained("b", ["b"], "other", 1.0, "main")
    shorter = [model_step("b", [1], [2])]
    assert why(replace(sample_of([*shorter, *steps], 0.5)), [*shorter, *steps],
               prefix.trained("c", ["a"], "third", 0.5, "main")) == "trained_before"  # fmt: skip


def test_staleness_is_that_of_the_oldest_trained_token() -> None:
    step = model_step("a", [1], [2, 3, 4], version=9, spans=[(0, 1, 7), (1, 3, 9)])
    found = decide(sample_of([step]), [step])
    assert staleness(found, 10) == 3
    assert staleness(found, None) is None
    assert [(t.version, t.root) for t in found.sequences[0].trained] == [(7, None), (9, "root-9")]
