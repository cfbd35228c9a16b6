"""Findings by the digest of the text they were found in, so that a history sent again is free.

Neither keys nor values hold text: a key is a keyed digest, a value is positions and kinds.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from streams.redaction.detect.contract import Span

#: Measured with tracemalloc on CPython 3.11: key, tuple, dictionary entry; then each span.
_ENTRY_BYTES = 250
_SPAN_BYTES = 150


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
        self._entries: OrderedDict[bytes, tuple[Span, ...]] = OrderedDict()
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

    def get(self, digest: bytes) -> tuple[Span, ...] | None:
        """The findings stored under `digest`, or None."""
        spans = self._entries.get(digest)
        if spans is None:
            self.counters.num_misses += 1
            return None
        self._entries.move_to_end(digest)
        self.counters.num_hits += 1
        return spans

    def put(self, digest: bytes, spans: Sequence[Span]) -> None:
        """Store findings. An entry larger than the whole cache is not kept."""
        size = _size(spans)
        if size > self._max_bytes:
            return
        previous = self._entries.pop(digest, None)
        if previous is not None:
            self._num_bytes -= _size(previous)
        self._entries[digest] = tuple(spans)
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

    def digest(self, text: str, context: str | None) -> bytes:
        """20 bytes that differ whenever text, context, or any of the seeds differ."""
        state = self._seed.copy()
        state.update(b"\x00" if context is None else b"\x01" + _framed(context))
        state.update(text.encode("utf-8", "surrogatepass"))
        return state.digest()


def _framed(part: str) -> bytes:
    encoded = part.encode("utf-8", "surrogatepass")
    return len(encoded).to_bytes(8) + encoded


def _size(spans: Sequence[Span]) -> int:
    return _ENTRY_BYTES + _SPAN_BYTES * len(spans)
