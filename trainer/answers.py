"""Answers that came as text: tokens are made of them here, where the policy's tokenizer is.

    demonstration   prompt ─▶ prompt + text, the text trained by its likelihood
    preference      prompt + given answer, text ─▶ two sequences with one prompt, a pair

An answer ends with the token that ends a turn, where the tokenizer names one.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from transformers import AutoTokenizer

from schemas.atdp.training import SequenceKind, TrainedSpan, TrainingSequence
from schemas.errors import ConfigError, PermanentError, Reason

Encode = Callable[[str], list[int]]


def encoder_of(model: Path) -> Encode:
    """Makes tokens of an answer; looks for the tokenizer when the first comes.

    ConfigError where the checkpoint folder has none.
    """
    loaded: list[AutoTokenizer] = []

    def encode(text: str) -> list[int]:
        if not loaded:
            try:
                loaded.append(AutoTokenizer.from_pretrained(model, local_files_only=True))
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"{model} has no tokenizer ({type(error).__name__}), so demonstrations and "
                    "preferences cannot be learned. Put one there, or unset "
                    "batching.demonstrations and batching.preferences."
                ) from None
        [tokenizer] = loaded
        ids = [int(i) for i in tokenizer(text, add_special_tokens=False)["input_ids"]]
        end = tokenizer.eos_token_id
        return ids if end is None or ids[-1:] == [end] else [*ids, int(end)]

    return encode


def written(
    sequence: TrainingSequence, encode: Encode, max_length: int
) -> Iterator[tuple[TrainingSequence, bool]]:
    """The sequences that a demonstration or a preference becomes, each with whether it is the
    better one; none where the text does not fit. Others stay as they are."""
    if sequence.kind not in (SequenceKind.DEMONSTRATION, SequenceKind.PREFERENCE):
        yield sequence, True
        return
    if sequence.answer is None or len(sequence.trained) != 1:
        raise PermanentError(Reason.WRONG_TYPE, "answer")
    [span] = sequence.trained
    prompt = sequence.token_ids[: span.first]
    answer = encode(sequence.answer)
    if not prompt or not answer or len(prompt) + len(answer) > max_length:
        return
    told = _with_answer(sequence, span, (*prompt, *answer))
    if sequence.kind is SequenceKind.DEMONSTRATION:
        yield replace(told, kind=SequenceKind.SUPERVISED), True
        return
    yield told, sequence.answer_is_better
    yield replace(sequence, answer=None), not sequence.answer_is_better


def _with_answer(
    sequence: TrainingSequence, span: TrainedSpan, token_ids: tuple[int, ...]
) -> TrainingSequence:
    whole = replace(span, end=len(token_ids))
    return replace(sequence, token_ids=token_ids, trained=(whole,), answer=None)
