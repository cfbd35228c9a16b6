"""Token ids of a call whose text was redacted: the same tokens without the private data, or none.

The tokens hold the prompt as the engine read it, rendered by its chat template, and what it
sampled. Spelt out they are one text, and what goes from it is found in three ways:

    values     what redaction replaced in the messages and tools, wherever the text repeats it,
               also escaped: it gets the very placeholder that stands in the messages
    detector   each stretch between two marks (`<|im_start|>`, …) is read like a message
    names      names known from any message of the call

Then `retokenise` puts placeholders in. It fails closed: no tokenizer, a tokenizer of which the
messages do not come out, too little text to tell by, or a value that is still there, and the ids
are withheld with the reason.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final

from schemas.atdp.types import ActionResult, TokenSpan, VersionSpan
from streams.redaction.chat import ChatRequest, ChatResponse
from streams.redaction.redacting import EventRedaction, Hidden
from streams.redaction.retokenise import (
    Edit,
    NotAlignedError,
    Retokenised,
    Tokenizer,
    pieces,
    retokenise,
)

#: Values shorter than this are left to the detector: they stand in too many words.
_MIN_VALUE_LETTERS: Final = 2
#: A value with a digit or an @ of this length or more is nowhere in a clean text by chance.
_MIN_TELLING_LETTERS: Final = 6
_TELLING: Final = re.compile(r"[\d@]")
#: Fewer letters than these come out of many tokenizers: kindred ones share the ids of single bytes.
_MIN_PROVING_LETTERS: Final = 12
#: ChatML and its kin write the role into the first line of a stretch.
_ROLE_LINE: Final = re.compile(r"\A(?:system|developer|user|assistant|tool|ipython)?\n+")
_SURROGATES: Final = "surrogateescape"


@dataclass(frozen=True, slots=True)
class CleanTokens:
    """Tokens of a call that can be kept. `changed` are runs of `token_ids`."""

    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    changed: tuple[TokenSpan, ...]
    #: The first of `token_ids` that has a change before it.
    approximate_from: int | None
    versions: tuple[VersionSpan, ...]

    #: Whether any token is another than before.
    is_changed: bool

    def put_into(self, result: ActionResult) -> ActionResult:
        """The result with these tokens."""
        return replace(
            result, prompt_token_ids=self.prompt_token_ids, token_ids=self.token_ids,
            logprobs=self.logprobs, changed_tokens=self.changed,
            approximate_from=self.approximate_from,
        )  # fmt: skip


def clean_tokens(
    request: ChatRequest,
    answer: ChatResponse,
    versions: Sequence[VersionSpan],
    tokenizer: Tokenizer,
    redaction: EventRedaction,
) -> CleanTokens:
    """The call's tokens without private data. NotAlignedError where that cannot be proved.

    `request` has to hold all text of the prompt, `answer` all that was sampled; `versions` are
    spans of the sampled tokens.
    """
    ids = (*answer.prompt_token_ids, *answer.token_ids)
    num_prompt = len(answer.prompt_token_ids)
    spelt = pieces(ids, tokenizer)
    stretches = [*_stretches(ids, spelt, tokenizer)]
    documents = [*request.messages, *answer.outputs, request.beside_messages]
    hidden = redaction.hidden_in(documents)
    forms = _Forms(hidden.values)
    _require_same_text(request, answer, spelt, num_prompt, forms)
    edits = [edit for start, text in stretches for edit in _edits(start, text, hidden, forms)]
    made = retokenise(ids, spelt, edits, tokenizer)
    _require_nothing_left(b"".join(pieces(made.token_ids, tokenizer)), hidden, forms)
    return _split(made, num_prompt, answer.logprobs, len(answer.token_ids), versions)


# -- is it the text? ---------------------------------------------------------------------------


def _stretches(
    ids: Sequence[int], spelt: Sequence[bytes], tokenizer: Tokenizer
) -> Iterator[tuple[int, str]]:
    """The texts between marks, each with the position of its first byte."""
    starts = [0, *accumulate(map(len, spelt))]
    first = 0
    for index in range(len(ids) + 1):
        if index == len(ids) or tokenizer.is_mark(ids[index]):
            if index > first:
                yield starts[first], b"".join(spelt[first:index]).decode("utf-8", _SURROGATES)
            first = index + 1


def _require_same_text(
    request: ChatRequest,
    answer: ChatResponse,
    spelt: Sequence[bytes],
    num_prompt: int,
    forms: "_Forms",
) -> None:
    """What was asked and said comes out of the tokens: it is the tokenizer they were made with.
    Another one would spell nonsense, in which nothing private is found."""
    prompt = b"".join(spelt[:num_prompt]).decode("utf-8", _SURROGATES)
    sampled = b"".join(spelt[num_prompt:]).decode("utf-8", _SURROGATES)
    asked = [*_asked(request, forms)] if num_prompt else []
    said = [text for text in _said(answer.outputs[0]) if text.strip()]
    if sum(len(text.strip()) for text in asked + said) < _MIN_PROVING_LETTERS:
        raise NotAlignedError
    if not all(_holds(prompt, text) for text in asked):
        raise NotAlignedError
    if not all(_holds(sampled, text) for text in said):
        raise NotAlignedError


def _asked(request: ChatRequest, forms: "_Forms") -> Iterator[str]:
    """Texts that have to be in the prompt. Templates may shorten what an assistant said before, by
    its reasoning, say; that has to be there where something private is in it."""
    for index, message in enumerate(request.messages, start=1):
        is_history = message.get("role") == "assistant" and index < len(request.messages)
        for text in _texts(message):
            if text.strip() and (not is_history or next(forms.find(text), None) is not None):
                yield text


def _holds(text: str, part: str) -> bool:
    """Also as a template writes it that renders JSON."""
    part = part.strip()
    return part in text or any(form in text for form in _escaped(part))


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            text = part.get("text") if isinstance(part, dict) else None
            if isinstance(text, str):
                yield text


def _said(message: Mapping[str, Any]) -> Iterator[str]:
    """Texts that the model wrote; of a tool call its name, since arguments are written anew."""
    yield from _texts(message)
    for field in ("reasoning_content", "reasoning"):
        if isinstance(message.get(field), str):
            yield message[field]
    for call in message.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str):
            yield name


# -- what goes ---------------------------------------------------------------------------------


class _Forms:
    """Values in all ways in which a prompt may write them."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._made: dict[str, str] = {}
        for value, made in values.items():
            text = value.strip()
            if sum(letter.isalnum() for letter in text) >= _MIN_VALUE_LETTERS:
                self._made |= dict.fromkeys((text, *_escaped(text)), made)
        longest_first = sorted(self._made, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_bordered, longest_first)) or r"(?!)")

    def find(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Where the text holds one, from and to, and what goes there."""
        for match in self._pattern.finditer(text):
            yield match.start(), match.end(), self._made[match.group()]

    @property
    def telling(self) -> Iterator[str]:
        """Those that no clean text holds by chance, even inside a word."""
        for form in self._made:
            if len(form) >= _MIN_TELLING_LETTERS and _TELLING.search(form):
                yield form


def _escaped(text: str) -> Iterator[str]:
    """The text as JSON writes it, once and twice."""
    once = json.dumps(text)[1:-1]
    yield from {once, json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(once)[1:-1]} - {text}


def _bordered(form: str) -> str:
    """A pattern that finds the form as whole words; an escape such as `\\n` ends where it does."""
    before = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))" if form[0].isascii() and form[0].isalnum() else ""
    after = r"(?![A-Za-z0-9])" if form[-1].isascii() and form[-1].isalnum() else ""
    return before + re.escape(form) + after


def _edits(start: int, text: str, hidden: Hidden, forms: _Forms) -> Iterator[Edit]:
    """What goes from one stretch, in order, in bytes of the whole text."""
    role = _ROLE_LINE.match(text)
    begin = role.end() if role else 0
    found = [*forms.find(text)]
    found += [
        (item.start + begin, item.end + begin, item.placeholder)
        for item in hidden.found_in(text[begin:])
    ]
    at: Sequence[int] = range(len(text) + 1)
    if not text.isascii():
        at = [0, *accumulate(map(_num_bytes, text))]
    for first, end, made in _merged(found, hidden.redactor.placeholders_in(text)):
        yield Edit(start + at[first], start + at[end], made)


def _num_bytes(letter: str) -> int:
    return len(letter.encode("utf-8", _SURROGATES))


def _merged(
    found: Iterable[tuple[int, int, str]], ours: Sequence[tuple[int, int]]
) -> list[tuple[int, int, str]]:
    """Disjoint spans in order that cover all that was found. Of several that touch the longest
    gives its placeholder. What lies in a placeholder of `ours` stays."""
    merged: list[tuple[int, int, str]] = []
    longest = 0
    for start, end, made in sorted(found):
        if end <= start or any(first <= start and end <= last for first, last in ours):
            continue
        if merged and start < merged[-1][1]:
            before = merged.pop()
            kept = made if end - start > longest else before[2]
            longest = max(longest, end - start)
            merged.append((before[0], max(end, before[1]), kept))
        else:
            longest = end - start
            merged.append((start, end, made))
    return merged


def _require_nothing_left(spelt: bytes, hidden: Hidden, forms: _Forms) -> None:
    text = spelt.decode("utf-8", _SURROGATES)
    for start, end in reversed(hidden.redactor.placeholders_in(text)):
        text = text[:start] + "\n" + text[end:]
    if any(form in text for form in forms.telling) or next(forms.find(text), None) is not None:
        raise NotAlignedError


# -- prompt and answer -------------------------------------------------------------------------


def _split(
    made: Retokenised,
    num_prompt: int,
    logprobs: Sequence[float],
    num_sampled: int,
    versions: Sequence[VersionSpan],
) -> CleanTokens:
    border = made.moved(num_prompt)
    ids = made.token_ids
    changed = [
        TokenSpan(start=max(first, border) - border, end=end - border)
        for _, _, first, end in made.runs
        if end > border
    ]
    kept = [origin - num_prompt for origin in made.origins[border:] if origin is not None]
    first_end = made.runs[0][3] if made.runs else None
    return CleanTokens(
        prompt_token_ids=ids[:border],
        token_ids=ids[border:],
        logprobs=(tuple(logprobs[index] for index in kept) if len(logprobs) == num_sampled else ()),
        changed=tuple(changed),
        approximate_from=(
            None if first_end is None or first_end >= len(ids) else max(first_end - border, 0)
        ),
        versions=tuple(
            VersionSpan(start=start, end=end, policy_version=span.policy_version)
            for span in versions
            for start, end in [
                [made.moved(num_prompt + i) - border for i in (span.start, span.end)]
            ]
            if end > start
        ),
        is_changed=bool(made.runs),
    )
