"""From spans of characters to spans of tokens: what may be learnt of a text that was redacted.

Token ids of the original can be turned back into it, so they are never kept. The redacted text is
tokenised anew with the policy's own tokenizer, and each token is told apart:

    CHANGED      touches a placeholder: the policy never wrote it
    RESPLIT      its characters are the policy's, its borders are not: beside a placeholder the
                 text splits differently, so that the token was never sampled
    APPROXIMATE  the same token at the same characters, after a change: it was sampled in another
                 context, so that its log-probability holds nearly
    EXACT        the same token at the same characters, and nothing before it changed

Only the last two may be in a loss. Pure; any tokenizer that tells characters will do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from streams.redaction.placeholders import Replacement
from streams.redaction.scanner import replaced


class Standing(Enum):
    """What a token of the redacted text is to the policy that wrote the original."""

    EXACT = "exact"
    APPROXIMATE = "approximate"
    RESPLIT = "resplit"
    CHANGED = "changed"

    @property
    def may_train(self) -> bool:
        """Whether the token may be in a loss."""
        return self in (Standing.EXACT, Standing.APPROXIMATE)


@dataclass(frozen=True, slots=True)
class Token:
    """A token and the characters (code points) of its text that it stands for.

    Several tokens may share a character (bytes of one letter), and one that stands for none has
    `start == end`.
    """

    token_id: int
    start: int
    end: int


class Tokenizer(Protocol):
    """The policy's tokenizer, without the marks that it puts around a text."""

    def encode(self, text: str) -> Sequence[Token]:
        """The tokens of `text` in order; `start` never falls."""


@dataclass(frozen=True, slots=True)
class Retokenised:
    """The redacted text and its tokens. `logprobs` is None where a token may not train."""

    text: str
    tokens: tuple[Token, ...]
    standings: tuple[Standing, ...]
    logprobs: tuple[float | None, ...]

    @property
    def loss_mask(self) -> tuple[bool, ...]:
        """True for each token that may be in a loss."""
        return tuple(standing.may_train for standing in self.standings)

    @property
    def trainable_share(self) -> float:
        """Tokens that may be in a loss, of all; 1 for a text without tokens."""
        return sum(self.loss_mask) / len(self.tokens) if self.tokens else 1.0


def retokenise(
    text: str,
    replacements: Sequence[Replacement],
    tokenizer: Tokenizer,
    *,
    sampled: Sequence[Token] | None = None,
    logprobs: Sequence[float] = (),
    is_context_changed: bool = False,
) -> Retokenised:
    """The tokens of `text` without its private data.

    `replacements` are disjoint and in order, in positions of `text`. `sampled` are the tokens that
    the policy wrote or read; without them those of the tokenizer are taken. `logprobs` are theirs,
    one each, or none at all. `is_context_changed` says that a text before this one was redacted.
    """
    original = tokenizer.encode(text) if sampled is None else sampled
    if logprobs and len(logprobs) != len(original):
        raise ValueError("there is one log-probability a token, or none at all")
    redacted = replaced(text, replacements)
    changes = _placed(replacements)
    known = {(t.start, t.end, t.token_id): index for index, t in enumerate(original)}
    tokens = tuple(tokenizer.encode(redacted))
    standings: list[Standing] = []
    kept: list[float | None] = []
    walk = _Walk(changes)
    for token in tokens:
        shift = walk.shift_at(token)
        index = (
            None if shift is None
            else known.get((token.start + shift, token.end + shift, token.token_id))
        )  # fmt: skip
        if shift is None:
            standing = Standing.CHANGED
        elif index is None:
            standing = Standing.RESPLIT
        elif is_context_changed or walk.num_passed:
            standing = Standing.APPROXIMATE
        else:
            standing = Standing.EXACT
        standings.append(standing)
        has_logprob = index is not None and bool(logprobs)
        kept.append(logprobs[index] if has_logprob and index is not None else None)
    return Retokenised(redacted, tokens, tuple(standings), tuple(kept))


@dataclass(frozen=True, slots=True)
class _Change:
    """A placeholder in the redacted text; `shift` leads from behind it to the original."""

    start: int
    end: int
    shift: int


def _placed(replacements: Sequence[Replacement]) -> list[_Change]:
    changes = []
    shift = 0
    for item in replacements:
        start = item.start - shift
        end = start + len(item.placeholder)
        shift = item.end - end
        changes.append(_Change(start, end, shift))
    return changes


class _Walk:
    """Goes along the changes with tokens whose starts never fall."""

    def __init__(self, changes: Sequence[_Change]) -> None:
        self._changes = changes
        #: Changes that lie wholly before the token that was asked for last.
        self.num_passed = 0

    def shift_at(self, token: Token) -> int | None:
        """What leads from the token to the original; None where it touches a change."""
        while self.num_passed < len(self._changes):
            change = self._changes[self.num_passed]
            if token.start < change.end:
                break
            self.num_passed += 1
        following = self._changes[self.num_passed : self.num_passed + 1]
        if following and max(token.end, token.start + 1) > following[0].start:
            return None
        return self._changes[self.num_passed - 1].shift if self.num_passed else 0
