"""Notices an `Idempotency-Key` that comes with two different bodies."""

import hashlib
from collections import OrderedDict


class KeyWindow:
    """Remembers the body's digest of the last `max_keys` keys. What is older is not compared."""

    def __init__(self, max_keys: int = 20_000) -> None:
        self._max_keys = max_keys
        self._digests: OrderedDict[bytes, bytes] = OrderedDict()

    def is_other_body(self, tenant_id: str, key: str, body: bytes) -> bool:
        """True if this key came before with another body; remembers it otherwise."""
        digest = hashlib.sha256(body).digest()
        # A key may be as long as a header: what is remembered of it is not.
        named = hashlib.sha256(f"{tenant_id}/{key}".encode("utf-8", "surrogatepass")).digest()
        known = self._digests.get(named)
        if known is not None and known != digest:
            return True
        self._digests[named] = digest
        self._digests.move_to_end(named)
        if len(self._digests) > self._max_keys:
            self._digests.popitem(last=False)
        return False
