"""The keys that are good, followed from `control.keys.v1` in the background.

Only hashes are held, in memory and in the file that lets a gateway start while Kafka is away.
"""

import hashlib
import os
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import orjson
import structlog

from schemas import codec, topics
from schemas.atdp.internal import KeyRecord
from schemas.bus import Bus, Consumer
from schemas.bus.follower import Follower
from schemas.errors import PermanentError

_log = structlog.get_logger("keys")

CAPTURE = "capture"
FEEDBACK = "feedback:write"
EVENTS = "events:write"
TRAJECTORIES = "trajectories:read"
ADMIN = "admin"
SCOPES = (CAPTURE, FEEDBACK, EVENTS, TRAJECTORIES, ADMIN)

_POLL_SECONDS = 0.1


def key_hash(key: str) -> str:
    """What is stored of a key. Keys are long and random, so a plain hash cannot be guessed."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def has_scope(record: KeyRecord, scope: str) -> bool:
    """True if the key may do that; `admin` may do everything within its tenant."""
    return scope in record.scopes or ADMIN in record.scopes


class KeyBook:
    """The latest record of each key, by the key's hash."""

    def __init__(self, records: Iterable[KeyRecord] = ()) -> None:
        self._by_id = {record.key_id: record for record in records}
        self._by_hash = {record.key_hash: record for record in self._by_id.values()}

    def with_change(self, key_id: str, record: KeyRecord | None) -> "KeyBook":
        """A book in which `record` is what is known of that key, or the key is gone."""
        records = {**self._by_id}
        records.pop(key_id, None)
        if record is not None:
            records[key_id] = record
        return KeyBook(records.values())

    def find(self, key: str, now: datetime) -> KeyRecord | None:
        """The record of a key that is good now."""
        record = self._by_hash.get(key_hash(key))
        if record is None or (record.revoked_at is not None and record.revoked_at <= now):
            return None
        return record

    def records(self) -> tuple[KeyRecord, ...]:
        """All of them."""
        return tuple(self._by_id.values())


class KeyFollower(Follower):
    """A thread that keeps a `KeyBook` up to date and its copy on the disk."""

    def __init__(self, bus: Bus, cache: Path) -> None:
        super().__init__("key-follower")
        self._bus = bus
        self._cache = cache
        self.book = KeyBook(_load(cache))
        #: When the end of the topic was last seen (monotonic), 0 for never.
        self.seen_end_at = 0.0
        self._is_copied = True
        self._is_refused = False

    @property
    def is_ready(self) -> bool:
        """True once keys are known, from the topic or from the copy."""
        return self.seen_end_at > 0 or bool(self.book.records())

    def _follow(self) -> None:
        admin = self._bus.admin()
        first = {p: low for p, (low, _) in admin.watermarks(topics.KEYS).items()}
        admin.close()
        consumer = self._bus.consumer()
        try:
            consumer.assign({(topics.KEYS, p): offset for p, offset in first.items()})
            while not self.is_stopping:
                self._take(consumer)
        finally:
            consumer.close()

    def _take(self, consumer: Consumer) -> None:
        received = consumer.poll(500, _POLL_SECONDS)
        book = self.book
        for message in received:
            try:
                record = codec.decode(message.value) if message.value else None
            except PermanentError as error:
                _log.error("key_record_unreadable", offset=message.offset, reason=error.reason)
                continue
            if record is None or isinstance(record, KeyRecord):
                key_id = (message.key or b"").decode("utf-8", "replace")
                book = book.with_change(key_id, record)
        if received:
            self.book, self._is_copied = book, False
        elif consumer.at_end():  # a broker that is slow returns nothing too
            self.seen_end_at, self.waits_for = time.monotonic(), ""
        if not self._is_copied:
            self._copy()

    def _copy(self) -> None:
        """Keys are known without the copy; where the disk refuses it, the next poll tries again."""
        try:
            _save(self._cache, self.book)
        except OSError as error:
            if not self._is_refused:
                _log.warning("key_copy_waits", error=error.strerror)
            self._is_refused = True
            return
        self._is_copied, self._is_refused = True, False


def _load(path: Path) -> list[KeyRecord]:
    try:
        lines = path.read_bytes().splitlines()
        return [codec.validate(KeyRecord, orjson.loads(line)) for line in lines]
    except FileNotFoundError:
        return []
    except (PermanentError, orjson.JSONDecodeError):
        _log.warning("key_cache_unreadable", file=path.name)
        return []


def _save(path: Path, book: KeyBook) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_suffix(f".{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.writelines(codec.to_json(record) + b"\n" for record in book.records())
    temporary.replace(path)
