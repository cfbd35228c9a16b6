"""Both lanes of redaction in process, and a way to run events through them to the end."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from schemas import topics
from schemas.bus import Received
from schemas.bus.memory import MemoryBus
from schemas.settings import RedactionSettings
from schemas.store import BlobStore
from streams.redaction.aliases import AliasProcessor
from streams.redaction.processor import RedactionProcessor
from streams.redaction.retokenise import Tokenizer
from streams.redaction.tenants import Tenants
from streams.runtime import ReplayMark
from tests.unit.redaction_processor.captures import record
from tests.unit.runtime_harness import DictTable, events_of, lane_over, memory_bus, records_of

ROOT = b"r" * 32
#: Topics that may hold original text; every other one is searched for planted values.
PRIVATE = {t.name for t in topics.all_topics() if t.holds_original_text}


class Redaction:
    """Raw events go in with `send`; `restart` keeps only what the tables hold."""

    def __init__(
        self,
        folder: Path,
        mark: ReplayMark | None = None,
        tokenizers: Mapping[str, Tokenizer] | None = None,
    ) -> None:
        self.folder = folder
        self.tokenizers = tokenizers
        self.mark = mark or ReplayMark()
        self.bus: MemoryBus = memory_bus()
        self.blobs = BlobStore((folder / "blobs").as_uri())
        self.tables: tuple[Any, Any] = (DictTable(), DictTable())
        self._read: dict[str, int] = {topics.RAW_ALIASES: 0, topics.RAW_UNRESOLVED: 0}
        self._offset = 0
        self.restart()

    def restart(self) -> None:
        self.tenants = Tenants(ROOT, RedactionSettings(tier="regex"))
        raw = RedactionProcessor(
            self.tenants, self.blobs, self.mark, hold_seconds=0.0, tokenizers=self.tokenizers
        )
        aliases = AliasProcessor(self.tenants, self.mark)
        self.raw_lane = lane_over(self.bus, raw, self.folder, table=self.tables[0])
        self.alias_lane = lane_over(self.bus, aliases, self.folder, table=self.tables[1])

    async def send(self, *events: Any) -> None:
        """Handle the events one after the other, then what they wrote to the second lane."""
        for event in events:
            received = event if isinstance(event, Received) else record(event, self._offset)
            self._offset += 1
            await self.raw_lane.process([received])
        await self.drain()

    async def send_batch(self, records: Sequence[Received]) -> None:
        """Handle raw records as one batch, all or nothing."""
        await self.raw_lane.process(records)
        await self.drain()

    async def drain(self, *order: str) -> None:
        for topic in order or tuple(self._read):
            found = records_of(self.bus, topic)
            await self.alias_lane.process(found[self._read[topic] :])
            self._read[topic] = len(found)

    def events(self, topic: str) -> list[Any]:
        return events_of(self.bus, topic)

    def clean_bytes(self) -> bytes:
        """Every key and value of every topic that must hold no original text."""
        names = [t.name for t in topics.all_topics() if t.name not in PRIVATE]
        found = [r for name in names for r in records_of(self.bus, name)]
        return b"\n".join((r.key or b"") + b"\x00" + (r.value or b"") for r in found)
