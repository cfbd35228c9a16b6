"""What a step learns from: sequences as arrays, checked. Nothing here is trusted before.

A sequence that cannot be learned from makes its whole micro-batch poisoned: it says that whoever
made it was wrong, so nothing else in it is believed either.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from schemas.atdp.training import MicroBatch, SequenceKind, TrainedSpan, TrainingSequence
from schemas.errors import PermanentError, Reason
from trainer.answers import Encode, written

#: A version that is not known.
UNKNOWN_VERSION = -1
_KINDS = (
    SequenceKind.POLICY_GRADIENT, SequenceKind.SUPERVISED, SequenceKind.RETRACTION,
    SequenceKind.PREFERENCE,
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """A sequence. The arrays but `token_ids` have an entry for each trained token, in order.

    Names of samples, trajectories and tasks begin with the tenant: what one tenant calls its own is
    never another's.

    `is_better` says of the two examples of a preference which is which.

    `behaviour` is NaN where the engine's log-probability is not known, `versions`
    UNKNOWN_VERSION where the version is not.
    """

    sample_id: str
    revision: int
    trajectory: str
    task: str
    kind: SequenceKind
    reward: float | None
    replaces: str | None
    replaced_reward: float | None
    token_ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    behaviour: NDArray[np.float64]
    versions: NDArray[np.int64]
    turns: NDArray[np.int64]
    approximate: NDArray[np.bool_]
    is_better: bool = True


def no_encoder(_text: str) -> list[int]:
    """For sequences that hold no text. PermanentError for those that do."""
    raise PermanentError(Reason.WRONG_TYPE, "kind")


def examples_of(
    batch: MicroBatch, vocabulary_size: int, max_length: int, encode: Encode = no_encoder
) -> list[Example]:
    """The sequences of a micro-batch; `encode` makes tokens of answers that came as text.

    Answers that are too long for the policy are left out. PermanentError names the field of the
    first sequence that is wrong.
    """
    return [
        replace(_example(made, vocabulary_size, max_length), is_better=is_better)
        for sequence in batch.sequences
        for made, is_better in written(sequence, encode, max_length)
    ]


def _example(sequence: TrainingSequence, vocabulary_size: int, max_length: int) -> Example:
    if sequence.kind not in _KINDS:
        raise PermanentError(Reason.WRONG_TYPE, "kind")
    _require_rewards(sequence)
    tokens = np.array(sequence.token_ids, np.int64)
    if sequence.kind is not SequenceKind.RETRACTION:
        _require_tokens(tokens, vocabulary_size, max_length)
    positions = np.array([*_positions(sequence, tokens.size)], np.int64)
    return Example(
        sample_id=_owned(sequence, sequence.sample_id),
        revision=sequence.revision,
        trajectory=_owned(sequence, sequence.trajectory_id),
        task=_owned(sequence, sequence.task_key or ""),
        kind=sequence.kind,
        reward=sequence.reward,
        replaces=None if sequence.replaces is None else _owned(sequence, sequence.replaces),
        replaced_reward=sequence.replaced_reward,
        token_ids=tokens,
        positions=positions,
        behaviour=_behaviour(sequence, positions.size),
        versions=_spread(
            sequence.trained, lambda s: UNKNOWN_VERSION if s.version is None else s.version
        ),
        turns=_spread(sequence.trained, lambda s: s.turn),
        approximate=_spread(sequence.trained, lambda s: int(s.approximate)).astype(np.bool_),
    )


def _owned(sequence: TrainingSequence, name: str) -> str:
    return f"{sequence.tenant_id}/{name}"


def _require_rewards(sequence: TrainingSequence) -> None:
    for field in ("reward", "replaced_reward"):
        value = getattr(sequence, field)
        if value is not None and not math.isfinite(value):
            raise PermanentError(Reason.NOT_FINITE, field)
    if sequence.kind is SequenceKind.POLICY_GRADIENT and sequence.reward is None:
        raise PermanentError(Reason.WRONG_TYPE, "reward")


def _require_tokens(tokens: NDArray[np.int64], vocabulary_size: int, max_length: int) -> None:
    if not 2 <= tokens.size <= max_length:
        raise PermanentError(
            Reason.OVERSIZED if tokens.size > 2 else Reason.WRONG_TYPE, "token_ids"
        )
    if tokens.min() < 0 or tokens.max() >= vocabulary_size:
        raise PermanentError(Reason.WRONG_TYPE, "token_ids")


def _positions(sequence: TrainingSequence, num_tokens: int) -> Iterator[int]:
    """The trained tokens. The first token of a sequence has nothing before it to follow from."""
    last = 1
    for span in sequence.trained:
        if not last <= span.first < span.end <= num_tokens or span.turn < 0:
            raise PermanentError(Reason.WRONG_TYPE, "trained")
        yield from range(span.first, span.end)
        last = span.end


def _behaviour(sequence: TrainingSequence, num_trained: int) -> NDArray[np.float64]:
    if not sequence.logprobs:
        return np.full(num_trained, np.nan)
    found = np.array(sequence.logprobs, np.float64)
    if found.size != num_trained:
        raise PermanentError(Reason.WRONG_TYPE, "logprobs")
    # A log-probability above 0 by rounding is one of 0; NaN and infinities are wrong.
    if not np.isfinite(found).all() or (found > 1e-3).any():
        raise PermanentError(Reason.NOT_FINITE, "logprobs")
    return np.minimum(found, 0.0)


def _spread(
    spans: tuple[TrainedSpan, ...], value: Callable[[TrainedSpan], int]
) -> NDArray[np.int64]:
    """The value of each span, once for each of its tokens."""
    lengths = [span.end - span.first for span in spans]
    return np.repeat(np.array([value(span) for span in spans], np.int64), lengths)
