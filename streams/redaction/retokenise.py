"""From spans of characters to spans of tokens: what may be learnt of tokens that held private data.

Token ids can be turned back into text, so those that touch private data go. Each such run of tokens
is replaced by the tokens of the same text with the placeholder in it, made by the policy's own
tokenizer; all other tokens stay the very ones that the policy read or sampled:

    ids      [ Dear][ Mi][a][,][ your]          →   [ Dear][ <][PER][SON][_q…][>][,][ your]
             exact   changed                        exact   changed               approximate

    exact        the same token, and nothing before it changed
    approximate  the same token behind a change: it was sampled in another context, so that its
                 log-probability holds nearly
    changed      of a run that touched private data: the policy never wrote it; it is in no loss

All positions are bytes, since a token may be a part of a letter. What does not come out equal to
the byte is refused with `NotAlignedError`, never passed on. Pure.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol


class NotAlignedError(Exception):
    """The tokens do not spell the text they are said to. Their ids have to be withheld."""


class Tokenizer(Protocol):
    """The policy's tokenizer, without the marks that it puts around a text."""

    def piece(self, token_id: int) -> bytes | None:
        """The bytes that a token stands for wherever it stands; None where that is not known."""

    def is_mark(self, token_id: int) -> bool:
        """Whether it is one of the marks between messages rather than text."""

    def encode(self, text: str) -> Sequence[int]:
        """The token ids of `text`."""


@dataclass(frozen=True, slots=True)
class Edit:
    """`made` goes where the bytes from `start` to `end` stand."""

    start: int
    end: int
    made: str


@dataclass(frozen=True, slots=True)
class Retokenised:
    """Tokens without private data. `origins` has the index of each in the original, None for
    what is changed."""

    token_ids: tuple[int, ...]
    origins: tuple[int | None, ...]
    #: Runs of tokens that were replaced: from, to in the original, from, to here.
    runs: tuple[tuple[int, int, int, int], ...]

    def moved(self, index: int) -> int:
        """Where a border between two tokens of the original is now; one inside a run that was
        replaced is behind it."""
        shift = 0
        for first, end, _, made_end in self.runs:
            if index <= first:
                break
            if index < end:
                return made_end
            shift = made_end - end
        return index + shift


def pieces(token_ids: Sequence[int], tokenizer: Tokenizer) -> list[bytes]:
    """The bytes of each token. NotAlignedError where one is not known."""
    found: list[bytes] = []
    for token_id in token_ids:
        piece = tokenizer.piece(token_id)
        if piece is None:
            raise NotAlignedError
        found.append(piece)
    return found


def retokenise(
    token_ids: Sequence[int], spelt: Sequence[bytes], edits: Sequence[Edit], tokenizer: Tokenizer
) -> Retokenised:
    """The tokens with the edits made. `spelt` are the pieces of the tokens; edits are in order,
    disjoint and not empty. NotAlignedError where the new text cannot be written exactly."""
    starts = [0, *accumulate(map(len, spelt))]
    text = b"".join(spelt)
    ids: list[int] = []
    origins: list[int | None] = []
    runs: list[tuple[int, int, int, int]] = []
    position = 0
    for first, end, inside in _runs(starts, text, edits):
        ids += token_ids[position:first]
        origins += range(position, first)
        made = _encoded(_edited(text, starts[first], starts[end], inside), tokenizer)
        runs.append((first, end, len(ids), len(ids) + len(made)))
        ids += made
        origins += [None] * len(made)
        position = end
    ids += token_ids[position:]
    origins += range(position, len(token_ids))
    return Retokenised(tuple(ids), tuple(origins), tuple(runs))


def _runs(
    starts: Sequence[int], text: bytes, edits: Sequence[Edit]
) -> Iterator[tuple[int, int, list[Edit]]]:
    """Runs of tokens that edits touch, whole letters each, with their edits."""
    run: tuple[int, int, list[Edit]] | None = None
    token = 0
    for edit in edits:
        while starts[token + 1] <= edit.start:
            token += 1
        first, end = token, token
        while first > 0 and _inside_letter(text, starts[first]):
            first -= 1
        while starts[end] < edit.end or _inside_letter(text, starts[end]):
            end += 1
        if run is not None and first < run[1]:
            run = (run[0], max(end, run[1]), [*run[2], edit])
            continue
        if run is not None:
            yield run
        run = (first, end, [edit])
    if run is not None:
        yield run


def _inside_letter(text: bytes, position: int) -> bool:
    return position < len(text) and text[position] & 0xC0 == 0x80


def _edited(text: bytes, start: int, end: int, edits: Sequence[Edit]) -> bytes:
    made: list[bytes] = []
    for edit in edits:
        made += text[start : edit.start], edit.made.encode()
        start = edit.end
    return b"".join([*made, text[start:end]])


#: Tokenizers that put a blank before a text put it before this.
_ANCHORS = ("", "\n", ".")


def _encoded(wanted: bytes, tokenizer: Tokenizer) -> list[int]:
    """Token ids that spell these bytes, neither more nor less."""
    try:
        text = wanted.decode()
    except UnicodeDecodeError:
        raise NotAlignedError from None
    # Some tokenizers write a blank before every text: the text's own is then that one.
    candidates = [(anchor, text) for anchor in _ANCHORS]
    if text[:1] == " ":
        candidates.append(("", text[1:]))
    for anchor, given in candidates:
        ids = list(tokenizer.encode(anchor + given))
        found = _behind(ids, pieces(ids, tokenizer), anchor, wanted)
        if found is not None:
            return found
    raise NotAlignedError


def _behind(ids: list[int], spelt: Sequence[bytes], anchor: str, wanted: bytes) -> list[int] | None:
    """The last of the tokens, which spell what is wanted, if what comes before is the anchor."""
    num_before = sum(map(len, spelt)) - len(wanted)
    for index, start in enumerate([0, *accumulate(map(len, spelt))]):
        if start == num_before:
            is_anchor = b"".join(spelt[:index]).strip(b" ") == anchor.encode()
            return ids[index:] if is_anchor and b"".join(spelt[index:]) == wanted else None
    return None
