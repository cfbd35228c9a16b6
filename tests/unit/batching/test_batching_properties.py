"""Every sampled token once; budgets and shares are kept; the state comes back as it was."""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.atdp.training import SequenceKind
from schemas.atdp.types import Step
from streams.batching.admission import Candidate, Refusal, Rules, with_steps
from streams.batching.memory import Memory, dump, header, load
from streams.batching.packing import Choice, Limits, Waiting, choose, crowding, is_due, pack
from streams.batching.tokens import sequences
from tests.training_events import NOON, model_step, sample_of

RULES = Rules(success_reward=0.5, max_staleness=4, max_sample_tokens=10_000, retrain=False)


@st.composite
def trees(draw: Any) -> list[list[Step]]:
    """Branches of one trajectory that share prefixes, as lists of steps from the root.

    Each sampled token of the tree is a number of its own, so that it can be counted. A step goes on
    with its parent's tokens or writes the history anew.
    """
    num_steps = draw(st.integers(1, 7))
    fresh = iter(range(1_000, 10_000))
    steps: list[Step] = []
    parents: list[int | None] = []
    for index in range(num_steps):
        parent = draw(st.integers(0, index - 1)) if index and draw(st.booleans()) else index - 1
        parents.append(parent if index else None)
        before: list[int] = []
        if index and draw(st.integers(0, 3)):
            result = steps[parent].action_and_result
            before = [*result.prompt_token_ids, *result.token_ids]
        prompt = [*before, *draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))]
        tokens = [next(fresh) for _ in range(draw(st.integers(0, 3)))]
        known = draw(st.integers(0, 4)) > 0
        spans = [(0, 1, draw(st.integers(1, 3))), (1, 3, 4)] if draw(st.booleans()) else []
        steps.append(
            model_step(
                f"s-{index}", prompt, tokens, spans=spans,
                logprobs=[-t / 1_000 for t in tokens] if known else [],
            )
        )  # fmt: skip
    leaves = sorted(set(range(num_steps)) - {p for p in parents if p is not None})
    branches = []
    for leaf in draw(st.permutations(leaves)):
        branch, at = [], leaf
        while at is not None:
            branch.append(steps[at])
            at = parents[at]
        branches.append(branch[::-1])
    return branches


def _train(branches: list[list[Step]], memory: Memory) -> tuple[list[Candidate], Memory]:
    candidates = []
    for branch in branches:
        sample = sample_of(branch)
        found = with_steps(sample, {s.step_id: s for s in branch}, memory, RULES)
        if isinstance(found, Refusal):
            continue
        candidates.append(found)
        memory = memory.decided(sample.sample_id).trained(
            found.leaf, found.step_ids, sample.sample_id, sample.reward, found.policy
        )
    return candidates, memory


def _tokens(candidates: list[Candidate]) -> Counter[int]:
    return Counter(
        token
        for candidate in candidates
        for sequence in candidate.sequences
        for span in sequence.trained
        for token in sequence.token_ids[span.first : span.end]
    )


@given(trees())
@settings(max_examples=150, deadline=None)
def test_every_sampled_token_is_trained_once_over_all_branches(branches: list[list[Step]]) -> None:
    candidates, _ = _train(branches, Memory())
    steps = {step.step_id: step for branch in branches for step in branch}
    sampled = Counter(t for step in steps.values() for t in step.action_and_result.token_ids)
    assert _tokens(candidates) == sampled


@given(trees())
@settings(max_examples=60, deadline=None)
def test_a_revision_trains_the_tokens_of_its_branch_again_and_no_others(
    branches: list[list[Step]],
) -> None:
    first, memory = _train(branches, Memory())
    second, _ = _train(branches, memory)
    assert {c.leaf: _tokens([c]) for c in second} == {c.leaf: _tokens([c]) for c in first}
    assert all(c.revision == 2 for c in second)


@given(trees())
@settings(max_examples=150, deadline=None)
def test_a_sequence_says_of_each_token_what_the_step_said(branches: list[list[Step]]) -> None:
    steps = {step.step_id: step for branch in branches for step in branch}
    for candidate in _train(branches, Memory())[0]:
        for sequence in candidate.sequences:
            logprobs = list(sequence.logprobs)
            is_known = sequence.kind is SequenceKind.POLICY_GRADIENT
            assert bool(logprobs) is is_known
            for span in sequence.trained:
                step = steps[span.step_id]
                result = step.action_and_result
                before = list(sequence.token_ids[: span.first])
                start = len(before) - len(result.prompt_token_ids)
                sampled = list(sequence.token_ids[span.first : span.end])
                assert before[: len(result.prompt_token_ids)] == list(result.prompt_token_ids)
                assert list(result.token_ids[start : start + len(sampled)]) == sampled
                versions = {_version(step, start + i) for i in range(len(sampled))}
                assert versions == {span.version}
                if is_known:
                    mine, logprobs = logprobs[: len(sampled)], logprobs[len(sampled) :]
                    assert mine == [-token / 1_000 for token in sampled]
            assert logprobs == []


def _version(step: Step, token: int) -> int | None:
    model = step.model_version
    if not model.spans:
        return model.policy_version
    return next((s.policy_version for s in model.spans if s.start <= token < s.end), None)


@given(trees())
@settings(max_examples=60, deadline=None)
def test_turns_count_from_the_end_of_the_branch(branches: list[list[Step]]) -> None:
    for branch in branches:
        place = {step.step_id: len(branch) - 1 - i for i, step in enumerate(branch)}
        for made in sequences(branch, place.keys()):
            assert all(span.turn == place[span.step_id] for span in made.trained)


@given(trees(), st.integers(0, 1000), st.integers(0, 2**50))
@settings(max_examples=60, deadline=None)
def test_a_memory_comes_back_from_its_row(
    branches: list[list[Step]], partition: int, at_us: int
) -> None:
    _, memory = _train(branches, Memory())
    row = dump(memory, partition, at_us)
    assert load(row) == memory
    assert header(row) == (partition, at_us)


waiting_lists = st.lists(
    st.tuples(st.sampled_from("aaab"), st.integers(1, 3), st.integers(1, 30)), max_size=20
)


def _waiting(drawn: list[tuple[str, int, int]]) -> list[Waiting]:
    """Samples of tenants, each with so many sequences of so many tokens."""
    made = []
    for number, (tenant, num_sequences, num_tokens) in enumerate(drawn):
        steps = [
            model_step(f"s-{i}", [i + 1], [i] * num_tokens, tenant_id=tenant,
                       trajectory_id=f"t-{number}")
            for i in range(num_sequences)
        ]  # fmt: skip
        found = with_steps(sample_of(steps), {s.step_id: s for s in steps}, Memory(), RULES)
        assert isinstance(found, Candidate)
        made.append(Waiting(("samples", 0, number), found, float(number)))
    return made


@given(waiting_lists, st.integers(1, 8), st.integers(1, 80), st.sampled_from([0.25, 0.5, 1.0]))
@settings(max_examples=150, deadline=None)
def test_batches_keep_their_limits_and_leave_nobody_behind(
    drawn: list[tuple[str, int, int]], num_sequences: int, num_tokens: int, share: float
) -> None:
    limits = Limits(num_sequences, num_tokens, 1.0, share, 100)
    left = _waiting(drawn)
    seen: list[Waiting] = []
    while left:
        choice = choose(left, limits)
        _check(choice, left, limits)
        seen += choice.chosen
        left = [w for w in left if w not in choice.chosen]
    assert sorted(w.where for w in seen) == [w.where for w in _waiting(drawn)]


def _check(choice: Choice, left: list[Waiting], limits: Limits) -> None:
    assert choice.chosen
    assert choice.chosen[0] is left[0]  # the oldest never waits for younger ones
    if len(choice.chosen) == 1:
        return
    taken = Counter[str]()
    for one in choice.chosen:
        taken[one.tenant_id] += len(one.candidate.sequences)
    assert taken.total() <= limits.num_sequences
    assert sum(w.candidate.num_tokens for w in choice.chosen) <= limits.num_tokens
    if len({w.tenant_id for w in left}) > 1:
        cap = max(1, int(limits.num_sequences * limits.tenant_share))
        firsts = {}
        for one in choice.chosen:
            firsts.setdefault(one.tenant_id, len(one.candidate.sequences))
        assert all(taken[t] <= max(cap, firsts[t]) for t in taken)


@given(waiting_lists, st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_only_who_crowds_others_out_is_sent_away(
    drawn: list[tuple[str, int, int]], max_waiting: int
) -> None:
    limits = Limits(4, 100, 1.0, 0.5, max_waiting)
    waiting = _waiting(drawn)
    counts = Counter(w.tenant_id for w in waiting)
    found = crowding(waiting, limits)
    if len(waiting) <= max_waiting or len(counts) < 2:
        assert found is None
    else:
        assert found is not None
        assert counts[found.tenant_id] == max(counts.values())


@given(waiting_lists.filter(bool))
@settings(max_examples=60, deadline=None)
def test_the_id_of_a_batch_is_its_content(drawn: list[tuple[str, int, int]]) -> None:
    waiting = _waiting(drawn)
    batch = pack("main", waiting, 3, NOON, 0)
    assert batch.batch_id == pack("main", _waiting(drawn), 9, NOON, 5).batch_id
    assert batch.batch_id != pack("other", waiting, 3, NOON, 0).batch_id
    assert len(waiting) < 2 or batch.batch_id != pack("main", waiting[1:], 3, NOON, 0).batch_id
    assert batch.num_trained_tokens == sum(w.candidate.num_trained_tokens for w in waiting)


def test_a_batch_is_due_by_number_by_tokens_or_by_time() -> None:
    limits = Limits(num_sequences=3, num_tokens=50, max_wait_seconds=2.0, tenant_share=1.0,
                    max_waiting=10)  # fmt: skip
    one = _waiting([("a", 1, 5)])
    assert not is_due([], 100.0, limits)
    assert not is_due(one, 1.9, limits)
    assert is_due(one, 2.0, limits)
    assert is_due(_waiting([("a", 3, 1)]), 0.0, limits)
    assert is_due(_waiting([("a", 1, 30), ("a", 1, 30)]), 1.0, limits)
