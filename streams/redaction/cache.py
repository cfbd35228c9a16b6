"""Findings, and what was made of them, by the digest of the text they were found in, so that a
history sent again is free.

Neither keys nor values hold text: a key is a keyed digest, a value is positions, kinds and
placeholders.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from streams.redaction.detect.contract import Span
from streams.redaction.placeholders import Replacement

Found = tuple[Span, ...] | tuple[Replacement, ...]
"""One or the other: whoever stores under a digest knows which."""

#: Measured with tracemalloc on CPython 3.11: key, tuple, dictionary entry; then each span, and
#: each replacement with its placeholder.
_ENTRY_BYTES = 250
_SPAN_BYTES = 150
_REPLACEMENT_BYTES = 250


@dataclass(slots=True)
class CacheCounters:
    """How often a digest was asked for and known, asked for and unknown, pushed out."""

    num_hits: int = 0
    num_misses: int = 0
    num_evicted: int = 0


class DigestCache:
    """The least recently used entries leave first; the estimated size never passes the limit."""

    def __init__(self, *, max_bytes: int = 64 * 1024 * 1024) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[bytes, Found] = OrderedDict()
        self._num_bytes = 0
        self.counters = CacheCounters()

    @property
    def num_bytes(self) -> int:
        """Estimated memory of all entries."""
        return self._num_bytes

    @property
    def num_entries(self) -> int:
        """How many digests are known."""
        return len(self._entries)

    def __contains__(self, digest: bytes) -> bool:
        """Whether something is stored under `digest`; counts as no question."""
        return digest in self._entries

    def get(self, digest: bytes) -> Found | None:
        """What is stored under `digest`, or None."""
        found = self._entries.get(digest)
        if found is None:
            self.counters.num_misses += 1
            return None
        self._entries.move_to_end(digest)
        self.counters.num_hits += 1
        return found

    def put(self, digest: bytes, found: Sequence[Span] | Sequence[Replacement]) -> None:
        """Store what was found. An entry larger than the whole cache is not kept."""
        kept = cast("Found", tuple(found))
        size = _size(kept)
        if size > self._max_bytes:
            return
        previous = self._entries.pop(digest, None)
        if previous is not None:
            self._num_bytes -= _size(previous)
        self._entries[digest] = kept
        self._num_bytes += size
        while self._num_bytes > self._max_bytes:
            _, evicted = self._entries.popitem(last=False)
            self._num_bytes -= _size(evicted)
            self.counters.num_evicted += 1


class Digester:
    """Keyed digests of texts under everything their findings depend on."""

    def __init__(
        self, *, tenant_key: bytes, policy_version: str, language: str, detector_version: str
    ) -> None:
        self._seed = hashlib.blake2b(
            key=hashlib.sha256(b"headrace/digest/" + tenant_key).digest(), digest_size=20
        )
        for part in (policy_version, language, detector_version):
            self._seed.update(_framed(part))

    def derived(self, digest: bytes, *parts: bytes) -> bytes:
        """20 bytes for what was made of a text with that digest and of everything in `parts`."""
        state = self._seed.copy()
        state.update(b"\x02" + digest)
        for part in parts:
            state.update(len(part).to_bytes(8) + part)
        return state.digest()

    def digest(self, text: str, context: str | None) -> bytes:
        """20 bytes that differ whenever text, context, or any of the seeds differ."""
        state = self._seed.copy()
        state.update(b"\x00" if context is None else b"\x01" + _framed(context))
        state.update(text.encode("utf-8", "surrogatepass"))
        return state.digest()


def _framed(part: str) -> bytes:
    encoded = part.encode("utf-8", "surrogatepass")
    return len(encoded).to_bytes(8) + encoded


def _size(found: Found) -> int:
    each = _SPAN_BYTES if found and isinstance(found[0], Span) else _REPLACEMENT_BYTES
    return _ENTRY_BYTES + each * len(found)
