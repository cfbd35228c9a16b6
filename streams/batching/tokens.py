"""Steps of a branch → sequences of tokens, in which every sampled token is trained once.

A step says what the engine read (`prompt_token_ids`) and what it sampled (`token_ids`). Where the
prompt of a step goes on exactly where the step before it ended, both are one sequence; where the
chat template or the agent wrote the history anew, the step begins a sequence of its own. Steps that
another branch trains are context here. Tokens with log-probabilities and tokens without never share
a sequence, so that a sequence has them all or none.
"""

import itertools
import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

from schemas.atdp.training import TrainedSpan
from schemas.atdp.types import Step

#: A certain token may come out a little above 0 by rounding; more is no log-probability.
MAX_LOGPROB = 1e-3


@dataclass(frozen=True, slots=True)
class Tokens:
    """One sequence: its tokens, which of them are trained, and their log-probabilities."""

    token_ids: tuple[int, ...]
    trained: tuple[TrainedSpan, ...]
    logprobs: tuple[float, ...]

    @property
    def num_trained(self) -> int:
        """Number of tokens that are trained."""
        return sum(span.end - span.first for span in self.trained)


@dataclass(slots=True)
class _Open:
    """A sequence that the next step may go on with."""

    has_logprobs: bool
    token_ids: list[int] = field(default_factory=list)
    trained: list[TrainedSpan] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def goes_on_with(self, step: Step, *, has_logprobs: bool) -> bool:
        prompt = step.action_and_result.prompt_token_ids
        known = len(self.token_ids)
        return (
            self.has_logprobs is has_logprobs
            and len(prompt) >= known
            and list(prompt[:known]) == self.token_ids
        )

    def add(self, step: Step, turn: int, *, is_trained: bool) -> None:
        result = step.action_and_result
        self.token_ids += result.prompt_token_ids[len(self.token_ids) :]
        first = len(self.token_ids)
        self.token_ids += result.token_ids
        if is_trained:
            self.trained += _spans(step, first, turn)
            if self.has_logprobs:
                self.logprobs += result.logprobs

    def closed(self) -> Tokens:
        end = self.trained[-1].end  # what follows is context of nothing
        return Tokens(tuple(self.token_ids[:end]), tuple(self.trained), tuple(self.logprobs))


def has_tokens(step: Step) -> bool:
    """Whether the step can be trained: without its prompt a token's probability is unknown, and
    what redaction changed was not sampled."""
    return num_sampled(step) > 0 and bool(step.action_and_result.prompt_token_ids)


def num_sampled(step: Step) -> int:
    """Tokens that the policy sampled and redaction left as they were."""
    result = step.action_and_result
    return len(result.token_ids) - sum(span.end - span.start for span in result.changed_tokens)


def has_logprobs(step: Step) -> bool:
    """Whether every sampled token has a log-probability that can be one."""
    result = step.action_and_result
    are_whole = len(result.logprobs) == num_sampled(step)
    return are_whole and all(-math.inf < logprob <= MAX_LOGPROB for logprob in result.logprobs)


def sequences(steps: Sequence[Step], trained_ids: Set[str]) -> list[Tokens]:
    """The sequences of a branch whose steps stand in order; only `trained_ids` are trained."""
    made: list[_Open] = []
    for index, step in enumerate(steps):
        if not has_tokens(step):
            continue
        logs = has_logprobs(step)
        going_on = next(
            (o for o in reversed(made) if o.goes_on_with(step, has_logprobs=logs)), None
        )
        if going_on is None:
            going_on = _Open(logs)
            made.append(going_on)
        going_on.add(step, len(steps) - 1 - index, is_trained=step.step_id in trained_ids)
    return [sequence.closed() for sequence in made if sequence.trained]


def _spans(step: Step, first: int, turn: int) -> Iterator[TrainedSpan]:
    """The sampled tokens of a step that begin at `first`, one span for each version in a row."""
    model = step.model_version
    position = first
    for (version, approximate), group in itertools.groupby(_sampled(step)):
        end = position + sum(1 for _ in group)
        if approximate is not None:
            yield TrainedSpan(
                first=position,
                end=end,
                version=version,
                root=model.weights_root if version == model.policy_version else None,
                step_id=step.step_id,
                turn=turn,
                approximate=approximate,
            )
        position = end


def _sampled(step: Step) -> Iterator[tuple[int | None, bool | None]]:
    """The version of each token and whether its log-probability is of another context; None in
    the second place where redaction changed it."""
    result = step.action_and_result
    changed = {i for span in result.changed_tokens for i in range(span.start, span.end)}
    # Steps of old said only that something was redacted.
    unknown = bool(step.governance.redactions) and not changed
    since = result.approximate_from
    for index, version in enumerate(_versions(step)):
        is_behind = unknown if since is None else index >= since
        yield version, None if index in changed else is_behind


def _versions(step: Step) -> list[int | None]:
    """The version of each sampled token; None where the engine did not say."""
    num_tokens = len(step.action_and_result.token_ids)
    model = step.model_version
    if not model.spans:
        return [model.policy_version] * num_tokens
    versions: list[int | None] = [None] * num_tokens
    for span in model.spans:
        start, end = max(0, span.start), min(span.end, num_tokens)
        versions[start:end] = [span.policy_version] * max(0, end - start)
    return versions
