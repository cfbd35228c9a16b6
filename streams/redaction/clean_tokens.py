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
from streams.redaction.value_forms import ValueForms, escaped

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
    forms = ValueForms(hidden.values)
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
    forms: ValueForms,
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


def _asked(request: ChatRequest, forms: ValueForms) -> Iterator[str]:
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
    return part in text or any(form in text for form in escaped(part))


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


def _edits(start: int, text: str, hidden: Hidden, forms: ValueForms) -> Iterator[Edit]:
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


def _require_nothing_left(spelt: bytes, hidden: Hidden, forms: ValueForms) -> None:
    text = spelt.decode("utf-8", _SURROGATES)
    for start, end in reversed(hidden.redactor.placeholders_in(text)):
        text = text[:start] + "\n" + text[end:]
    if forms.are_left_in(text):
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
