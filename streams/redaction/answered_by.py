"""Which model, which version and which weights answered a captured call. Absent rather than wrong.

A worker that changed its weights in the middle of an answer names no version but its boundaries:
`x-headrace-policy-spans: 0:5,163:6` is version 5 up to token 163 and version 6 from there on.
"""

import re

from schemas.atdp.types import Exchange, ModelVersion, VersionSpan
from streams.redaction.bodies import header
from streams.redaction.redacting import EventRedaction

_SPANS = "x-headrace-policy-spans"
#: A root is a digest that says nothing of any text. Anything else in its place may.
_ROOT = re.compile(r"[0-9a-f]{64}", re.ASCII)
_ENTRY = re.compile(r"([0-9]{1,9}):([0-9]{1,18})?", re.ASCII)
_MAX_SPANS = 1_000


def model_version(
    exchange: Exchange, redaction: EventRedaction, requested: str | None = None,
    answered: str | None = None, num_tokens: int = 0,
) -> ModelVersion:  # fmt: skip
    """`requested` and `answered` are the model's names; `num_tokens` of the first choice."""
    root = exchange.weights_root
    return ModelVersion(
        requested_model=redaction.identifier(requested),
        model=redaction.identifier(answered),
        policy=redaction.identifier(exchange.policy),
        policy_version=exchange.policy_version,
        spans=spans_of(header(exchange.response_headers, _SPANS), num_tokens),
        weights_root=root if root is not None and _ROOT.fullmatch(root) else None,
        upstream=redaction.identifier(exchange.upstream),
    )


def spans_of(text: str, num_tokens: int) -> tuple[VersionSpan, ...]:
    """Half-open spans of the tokens; tokens of which no version is known are in none. Nothing at
    all where the boundaries do not fit the tokens."""
    found = [_ENTRY.fullmatch(entry) for entry in text.split(",")[: _MAX_SPANS + 1]]
    entries = [entry for entry in found if entry is not None]
    if not text or len(entries) < len(found) or len(entries) > _MAX_SPANS:
        return ()
    starts = [int(entry[1]) for entry in entries]
    ends = [*starts[1:], num_tokens]
    if any(start > end for start, end in zip(starts, ends, strict=True)):
        return ()
    return tuple(
        VersionSpan(start=start, end=end, policy_version=int(entry[2]))
        for entry, start, end in zip(entries, starts, ends, strict=True)
        if entry[2] is not None and end > start
    )
