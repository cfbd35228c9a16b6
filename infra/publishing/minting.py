"""Ids and times for what a file leaves out: a function of its content, never of the moment.

Publishing a file again, or one that has grown, therefore makes the same ids for the same content.
The digests are keyed where the deployment's secret is at hand: a plain hash of a short text can
be guessed.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import orjson

from schemas.ids import keyed_digest


@dataclass(slots=True)
class Mint:
    """Makes ids for one tenant and one reading of a file.

    `base_time` stands in for times the file does not tell. The same content twice in a file is
    two things: `occurrence` numbers them.
    """

    tenant_id: str
    key: bytes
    base_time: datetime
    training_eligible: bool = False
    _seen: Counter[str] = field(default_factory=Counter)

    def content_id(self, kind: str, content: Any) -> str:
        """An id of this content; the second time it occurs it gets another one."""
        digest = self.derived_id(kind, canonical(content))
        self._seen[digest] += 1
        count = self._seen[digest]
        return digest if count == 1 else self.derived_id(kind, digest, str(count))

    def derived_id(self, kind: str, *parts: str) -> str:
        """An id that depends on the parts alone."""
        return keyed_digest(self.key, kind, self.tenant_id, *parts)

    def time(self, index: int) -> datetime:
        """A time for the event at that place, so that order by time is the order in the file."""
        return self.base_time + timedelta(milliseconds=index)


def canonical(value: Any) -> str:
    """JSON text that does not depend on the order of keys."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
