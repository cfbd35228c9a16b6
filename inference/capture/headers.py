"""Which HTTP headers travel on, and which are kept with a captured call."""

from collections.abc import Iterable

from schemas.atdp.types import Header

Pairs = list[tuple[str, str]]

OURS = "x-headrace-"
_HOP_BY_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
    "te", "trailer", "trailers", "transfer-encoding", "upgrade",
})  # fmt: skip
#: Set by our own HTTP client: the upstream's host, the length of the same bytes; a body that was
#: already read needs no permission to be sent.
_SET_BY_CLIENT = frozenset({"host", "content-length", "expect"})
_SECRET = frozenset({
    "authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "set-cookie",
    "proxy-authorization", f"{OURS}key",
})  # fmt: skip


def _named_by_connection(pairs: Iterable[tuple[str, str]]) -> set[str]:
    values = [value for name, value in pairs if name.lower() == "connection"]
    return {token.strip().lower() for value in values for token in value.split(",")}


def for_upstream(pairs: Pairs, api_key: str | None, *, passes_credential: bool = True) -> Pairs:
    """The client's headers as the upstream gets them; its own credential put in if configured,
    else the client's, unless that does not pass."""
    dropped = _HOP_BY_HOP | _SET_BY_CLIENT | _named_by_connection(pairs)
    if api_key is not None or not passes_credential:
        dropped |= _SECRET
    kept = [(n, v) for n, v in pairs if n.lower() not in dropped and not _is_ours(n)]
    if api_key is not None:
        # Anthropic's API reads one, every other API the other; each ignores what it does not read.
        kept += [("Authorization", f"Bearer {api_key}"), ("x-api-key", api_key)]
    return kept


def unencoded(pairs: Pairs) -> Pairs:
    """The client's headers, asking for an answer that can be read on its way."""
    kept = [(n, v) for n, v in pairs if n.lower() != "accept-encoding"]
    return [*kept, ("Accept-Encoding", "identity")]


def for_client(pairs: Pairs, num_bytes: int | None = None) -> Pairs:
    """The upstream's headers as the client gets them, of a body of that length if it is another."""
    dropped = _HOP_BY_HOP | _named_by_connection(pairs)
    if num_bytes is not None:
        length = str(num_bytes)
        pairs = [(n, length if n.lower() == "content-length" else v) for n, v in pairs]
    return [(n, _plain(v)) for n, v in pairs if n.lower() not in dropped and not _is_ours(n)]


def for_record(pairs: Pairs) -> tuple[Header, ...]:
    """What is kept: no credential, no cookie. Bytes that are no UTF-8 become U+FFFD."""
    return tuple(
        Header(name=n.lower(), value=_plain(v)) for n, v in pairs if n.lower() not in _SECRET
    )


def is_text(pairs: Pairs) -> bool:
    """False where a header holds bytes that are no UTF-8 and so cannot be sent on unchanged."""
    return all(_plain(v) == v for _, v in pairs)


def _plain(text: str) -> str:
    return text.encode("utf-8", "replace").decode() if not text.isascii() else text


def _is_ours(name: str) -> bool:
    return name.lower().startswith(OURS)
