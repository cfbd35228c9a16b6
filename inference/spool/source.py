"""The reading side of one spool folder: which events are whole, which files may go.

An event is whole when its END (or its RECORD) was read; in the folder of a dead process what has
begun is whole too, cut off where the process died. A file goes when every event with a frame in
it is delivered. Since a file in the middle may go before an earlier one, delivered ids are noted
beside the file of their BEGIN first, or an adopter would take the rest for a crashed exchange.
"""

import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from inference.spool import frames
from inference.spool.folder import SpoolFolder
from inference.spool.frames import Frame, Kind, Torn
from inference.spool.writer import Spool

_ID_BYTES = 16


@dataclass(slots=True)
class Event:
    """The frames of one event, in order. `begins_in` is the number of the first one's file."""

    exchange_id: bytes
    begins_in: int
    frames: list[Frame] = field(default_factory=list)

    @property
    def num_bytes(self) -> int:
        """Payload bytes on the disk."""
        return sum(frame.num_bytes for frame in self.frames)

    @property
    def is_record(self) -> bool:
        """True for a whole event such as feedback, false for an exchange."""
        return self.frames[0].kind is Kind.RECORD


class Source:
    """Reads a folder. `live` is the spool that still writes into it, None for a dead process's.

    Used by the publisher's thread only.
    """

    def __init__(self, folder: SpoolFolder, live: Spool | None = None) -> None:
        self.folder = folder
        self._live = live
        self._segment = min(folder.segments(), default=0)
        self._offset = 0
        self._first = self._segment
        self._open: dict[bytes, Event] = {}
        self._pins: dict[int, set[bytes]] = defaultdict(set)
        self._files: dict[int, int] = {}
        self._delivered = self._read_notes() if live is None else set()
        self.num_torn = 0

    @property
    def is_adopted(self) -> bool:
        """True for the folder of a dead process."""
        return self._live is None

    @property
    def caught_up_at(self) -> tuple[int, int] | None:
        """The position read so far if nothing before it waits, else None."""
        waiting = self._open or any(self._pins.values())
        return None if waiting else (self._segment, self._offset)

    def read(self, max_events: int) -> list[Event]:
        """Read on; the events that became whole, at most `max_events` and those of one frame."""
        whole: list[Event] = []
        last, end = self._end()
        while len(whole) < max_events:
            limit = end if self._segment == last else self._size(self._segment)
            if self._offset < limit:
                self._scan(limit, whole, max_events)
            elif self._segment < last:
                self._close_file(self._segment)
                self._segment, self._offset = self._segment + 1, 0
            else:
                break
        else:
            return whole
        if self._live is None:
            whole.extend(self._cut_off())
        self._delete_free()
        return whole

    def _end(self) -> tuple[int, int]:
        if self._live is not None:
            return self._live.position
        sizes = self.folder.segments()
        last = max(sizes, default=self._segment)
        return last, sizes.get(last, 0)

    def _size(self, segment: int) -> int:
        try:
            return self.folder.segment_path(segment).stat().st_size
        except FileNotFoundError:
            return 0

    def _scan(self, limit: int, whole: list[Event], max_events: int) -> None:
        for frame in frames.scan(self._file(self._segment), self._segment, self._offset, limit):
            if isinstance(frame, Torn):
                self.num_torn += 1
                self._offset = limit
                return
            self._offset = frame.offset + frame.num_bytes
            event = self._add(frame)
            if event is not None:
                whole.append(event)
                if len(whole) >= max_events:
                    return

    def _add(self, frame: Frame) -> Event | None:
        """The event that this frame makes whole."""
        if frame.exchange_id in self._delivered:
            return None
        if frame.kind in (Kind.BEGIN, Kind.RECORD):
            self._open[frame.exchange_id] = Event(frame.exchange_id, frame.segment)
        event = self._open.get(frame.exchange_id)
        if event is None:  # its beginning was delivered and deleted
            return None
        event.frames.append(frame)
        self._pins[frame.segment].add(frame.exchange_id)
        if frame.kind in (Kind.END, Kind.RECORD):
            return self._open.pop(frame.exchange_id)
        return None

    def _cut_off(self) -> list[Event]:
        events = list(self._open.values())
        self._open.clear()
        return events

    def payload(self, frame: Frame) -> bytes:
        """The bytes of a frame, from the page cache as a rule."""
        return os.pread(self._file(frame.segment), frame.num_bytes, frame.offset)

    def _file(self, segment: int) -> int:
        if segment not in self._files:
            self._files[segment] = os.open(self.folder.segment_path(segment), os.O_RDONLY)
        return self._files[segment]

    def _close_file(self, segment: int) -> None:
        descriptor = self._files.pop(segment, None)
        if descriptor is not None:
            os.close(descriptor)

    def done(self, events: Iterable[Event]) -> None:
        """These are delivered. Notes them, then deletes the files that nothing waits in."""
        notes: dict[int, bytearray] = defaultdict(bytearray)
        for event in events:
            notes[event.begins_in] += event.exchange_id
            for segment in {frame.segment for frame in event.frames}:
                self._pins[segment].discard(event.exchange_id)
        for segment, ids in notes.items():
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            note = os.open(self._note_path(segment), flags, 0o600)
            os.write(note, ids)
            os.close(note)
        self._delete_free()

    def _delete_free(self) -> None:
        last = self._segment
        if self._live is not None and self._first == last:
            return
        for segment, size in self.folder.segments().items():
            passed = segment < last or (self._live is None and self._offset >= size)
            if segment > last or not passed or self._pins.get(segment):
                continue
            self._close_file(segment)
            self.folder.delete_segment(segment)
            self._note_path(segment).unlink(missing_ok=True)
            self._pins.pop(segment, None)
            if self._live is not None:
                self._live.trimmed(size)
        self._first = min(self.folder.segments(), default=last)

    def _note_path(self, segment: int) -> Path:
        return self.folder.segment_path(segment).with_suffix(".done")

    def _read_notes(self) -> set[bytes]:
        found: set[bytes] = set()
        for path in self.folder.path.glob("*.done"):
            data = path.read_bytes()
            found.update(data[i : i + _ID_BYTES] for i in range(0, len(data), _ID_BYTES))
        return found

    def is_finished(self) -> bool:
        """True when a dead process's folder holds nothing more."""
        return self._live is None and not self.folder.segments()

    def close(self) -> None:
        """Let go of files and lock; remove the folder if all of it is delivered."""
        self._live = None
        self._delete_free()
        for segment in list(self._files):
            self._close_file(segment)
        self.folder.release()
