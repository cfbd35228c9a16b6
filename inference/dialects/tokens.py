"""Token ids and log-probabilities, and what a stream used: asked of the engine, kept in the record,
hidden from a client that did not ask for them.

The request is edited where its bytes are; all others stay as the client wrote them. An engine that
was not asked writes `null` where an engine that was asked writes tokens, so that is what a client
gets to see: byte for byte what it would have seen.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from inference.dialects.errors import restated
from inference.dialects.json_spans import Span, UnreadableError, items, members, replaced

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
_IDS = "return_token_ids"
_LOGPROBS = "logprobs"
USAGE = "stream_options"
_INCLUDE = b'"include_usage"'
_ID_FIELDS = frozenset({b"prompt_token_ids", b"token_ids"})
_LOGPROB_FIELDS = frozenset({b"logprobs"})
#: What these ask for changes its text or its form with what we would add.
_LEFT_ALONE = ("echo", "use_beam_search", "prompt_logprobs")
#: Without log-probabilities the engine refuses these, and so it must be.
_NEED_LOGPROBS = ("top_logprobs", "logprob_token_ids")
#: A request above this is not parsed, an answer above this not held back.
_MAX_REQUEST_BYTES = 4 * 1024**2
MAX_BYTES = 32 * 1024**2
_MAX_ERROR_BYTES = 1024**2


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that asks the engine for more than its client did."""

    body: bytes
    #: Names of the request's fields that were added or changed.
    added: tuple[str, ...]
    #: Names of the answer's fields that the client did not ask for.
    hidden: frozenset[bytes]

    @property
    def hides_usage(self) -> bool:
        """Whether the event of a stream that tells its usage is not the client's."""
        return USAGE in self.added


def ask(path: str, body: bytes, *, tokens: bool = True, usage: bool = False) -> Asked | None:
    """The request that goes to the engine. None where it stays as it is."""
    if path not in (CHAT, COMPLETIONS) or len(body) > _MAX_REQUEST_BYTES or not (tokens or usage):
        return None
    try:
        request = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(request, dict) or any(request.get(name) for name in _LEFT_ALONE):
        return None
    wanted, hidden = _tokens_wanted(path, request) if tokens and request else ({}, frozenset())
    if usage and (options := _usage_wanted(body, request)) is not None:
        wanted[USAGE] = options
    edited = _with(body, request, wanted)
    return None if edited is None or not wanted else Asked(edited, tuple(wanted), hidden)


def _tokens_wanted(
    path: str, request: Mapping[str, Any]
) -> tuple[dict[str, bytes], frozenset[bytes]]:
    """The fields to set, and those of the answer that the client did not ask for."""
    wanted: dict[str, bytes] = {}
    hidden: frozenset[bytes] = frozenset()
    if request.get(_IDS) in (None, False):
        wanted[_IDS] = b"true"
        hidden |= _ID_FIELDS
    if _wants_no_logprobs(path, request):
        wanted[_LOGPROBS] = b"true" if path == CHAT else b"0"
        hidden |= _LOGPROB_FIELDS
    return wanted, hidden


def _usage_wanted(body: bytes, request: Mapping[str, Any]) -> bytes | None:
    """The options of a stream with its usage, all else in them as the client wrote it. None where
    the call is no stream, or its client asks itself, or they are not understood."""
    options = request.get(USAGE)
    if not request.get("stream") or not (options is None or isinstance(options, dict)):
        return None
    if not options:
        return b"{" + _INCLUDE + b":true}"
    if any(options.get(name) for name in ("include_usage", "continuous_usage_stats")):
        return None
    try:
        found = [span for span in members(body) if span.name == USAGE.encode()]
        written = body[found[-1].start : found[-1].end] if found else b"[]"
        inner = [span for span in members(written) if span.name == _INCLUDE[1:-1]]
    except UnreadableError:
        return None
    if inner:
        return replaced(written, inner, b"true")
    return b"{" + _INCLUDE + b":true," + written[written.index(b"{") + 1 :]


def _wants_no_logprobs(path: str, request: Mapping[str, Any]) -> bool:
    if any(request.get(name) for name in _NEED_LOGPROBS):
        return False
    value = request.get(_LOGPROBS)
    return value is None or (path == CHAT and value is False)


def _with(body: bytes, request: Mapping[str, Any], wanted: Mapping[str, bytes]) -> bytes | None:
    """The body with those values: changed in place where the name is there, else put in front."""
    new = b"".join(
        b'"%b":%b,' % (name.encode(), v) for name, v in wanted.items() if name not in request
    )
    try:
        for name, value in wanted.items():
            if name in request:
                spans = [span for span in members(body) if span.name == name.encode()]
                if not spans:  # its name is written with escapes
                    return None
                body = replaced(body, spans, value)
    except UnreadableError:
        return None
    at = body.index(b"{") + 1
    return body[:at] + new + body[at:]


def hide(text: bytes, hidden: frozenset[bytes], *, hides_usage: bool = False) -> bytes | None:
    """One JSON text of an answer with `null` in those fields.

    None where there would be no such text: the engine sends an empty delta only to carry tokens,
    and an event without a choice only to tell the usage. UnreadableError where it cannot be found
    out.
    """
    spans: list[Span] = []
    choices: list[Span] | None = None
    has_usage = False
    for span in members(text):
        if span.name in hidden:
            spans.append(span)
        elif span.name == b"choices":
            choices = items(text, span.start)
        elif span.name == b"usage":
            has_usage = text[span.start : span.end] != b"null"
    if choices == [] and has_usage and hides_usage:
        return None
    choices = choices or []
    num_empty = 0
    for choice in choices:
        fields = {span.name: span for span in members(text, choice.start)}
        spans += [span for name, span in fields.items() if name in hidden]
        num_empty += _is_empty(text, fields, hidden)
    if choices and num_empty == len(choices):
        return None
    return replaced(text, spans, b"null")


def _is_empty(text: bytes, fields: Mapping[bytes, Span], hidden: frozenset[bytes]) -> bool:
    """Whether a choice of a stream says nothing but what is hidden."""

    def value(name: bytes) -> bytes:
        span = fields.get(name)
        return b"null" if span is None else text[span.start : span.end]

    carries = any(value(name) != b"null" for name in hidden)
    return carries and value(b"delta") == b"{}" and value(b"finish_reason") == b"null"


class StreamView:
    """What a client sees of a stream of events. Each line is released as soon as it is whole."""

    is_stream = True

    def __init__(self, hidden: frozenset[bytes], *, hides_usage: bool = False) -> None:
        self._hidden = hidden
        self._hides_usage = hides_usage
        self._rest = b""
        self._drops_blank = False
        #: Something was shown as it came, since it could not be read.
        self.has_shown = False

    def feed(self, data: bytes) -> bytes:
        """What may be released now that these bytes came."""
        held = self._rest + data
        lines = held.split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > MAX_BYTES:
            lines, self._rest, self.has_shown = [*lines, self._rest], b"", True
            return b"\n".join(lines)
        return b"".join(self._line(line) for line in lines)

    def finish(self) -> bytes:
        """What is left when the stream has ended."""
        rest, self._rest = self._rest, b""
        return self._line(rest).removesuffix(b"\n") if rest else b""

    def _line(self, line: bytes) -> bytes:
        if self._drops_blank and not line.strip():
            self._drops_blank = False
            return b""
        start = line.find(b"{")
        if not line.startswith(b"data:") or start < 0:
            return line + b"\n"
        end = line.rindex(b"}") + 1 if b"}" in line else len(line)
        try:
            shown = hide(line[start:end], self._hidden, hides_usage=self._hides_usage)
        except UnreadableError:
            self.has_shown = True
            return line + b"\n"
        if shown is None:
            self._drops_blank = True
            return b""
        return line[:start] + shown + line[end:] + b"\n"


class WholeView:
    """What a client sees of an answer in one piece: nothing until all of it is there."""

    is_stream = False

    def __init__(self, hidden: frozenset[bytes]) -> None:
        self._hidden = hidden
        self._pieces: list[bytes] = []
        self.has_shown = False

    def feed(self, data: bytes) -> bytes:
        """Keep these bytes; nothing may be released yet."""
        self._pieces.append(data)
        return b""

    def finish(self) -> bytes:
        """The whole answer."""
        text = b"".join(self._pieces)
        try:
            shown = hide(text, self._hidden)
        except UnreadableError:
            shown = None
        self.has_shown = shown is None
        return text if shown is None else shown


class OpenView:
    """What a client sees of an answer that cannot be read on its way: all of it."""

    is_stream = True
    has_shown = True

    def feed(self, data: bytes) -> bytes:
        """The bytes as they are."""
        return data

    def finish(self) -> bytes:
        """Nothing is left."""
        return b""


class ErrorView(WholeView):
    """What a client of another dialect sees of an engine's error: the same in its own form."""

    def __init__(self, path: str, status: int) -> None:
        super().__init__(frozenset())
        self._path, self._status = path, status

    def finish(self) -> bytes:
        """The whole answer."""
        text = b"".join(self._pieces)
        return restated(self._path, self._status, text) or text


View = StreamView | WholeView | OpenView


def view_of_error(path: str, status: int, headers: Mapping[str, str]) -> View | None:
    """How the client sees an error of our own engine. None where it sees it as it is."""
    length, kind = headers.get("Content-Length", ""), headers.get("Content-Type", "")
    is_short = length.isdecimal() and int(length) <= _MAX_ERROR_BYTES
    is_read = is_short and kind.startswith("application/json") and "Content-Encoding" not in headers
    return ErrorView(path, status) if status >= 400 and is_read else None


def view_of(asked: Asked | None, status: int, headers: Mapping[str, str]) -> View | None:
    """How the client sees an answer with that head. None where nothing is to be hidden."""
    if asked is None or status != 200:
        return None
    if headers.get("Content-Encoding", "identity") != "identity":
        return OpenView() if asked.hidden else None
    kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return StreamView(asked.hidden, hides_usage=asked.hides_usage)
    if not asked.hidden:
        return None
    length = headers.get("Content-Length", "")
    if kind == "application/json" and length.isdecimal() and int(length) <= MAX_BYTES:
        return WholeView(asked.hidden)
    return OpenView()
