"""The reading side of one spool folder: which events are whole, which files may go.

An event is whole when its END (or its RECORD) was read; in the folder of a dead process what has
begun is whole too, cut off where the process died. A file goes when every event with a frame in
it is delivered. Since a file in the middle may go before an earlier one, delivered ids are noted
beside the file of their BEGIN first, or an adopter would take the rest for a crashed exchange.

Notes need room on the disk. Where it refuses one, the ids stay in memory and are noted later;
meanwhile a file still goes once no event needs a note for that, so that a full disk gets room
again. A process that dies before the note delivers those events once more, under the same ids.
"""

import errno
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from inference.spool import frames
from inference.spool.blocks import SpoolFile
from inference.spool.folder import SpoolFolder
from inference.spool.frames import Frame, Kind, Torn
from inference.spool.writer import Spool, SpoolWriteError

_ID_BYTES = 16
#: Delivered events remembered while the disk refuses notes. Those beyond are not noted, which
#: only matters to a process that dies: it delivers them once more.
_MAX_UNNOTED = 100_000


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


@dataclass(frozen=True, slots=True)
class _Span:
    """The files in which a delivered event lies."""

    begins_in: int
    segments: frozenset[int]


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
        self._undelivered: set[bytes] = set()
        self._unnoted: dict[bytes, _Span] = {}
        self._pins: dict[int, set[bytes]] = defaultdict(set)
        self._files: dict[int, SpoolFile] = {}
        self._delivered = self._read_notes() if live is None else set()
        self.num_torn = 0
        #: Whole events read so far.
        self.num_events = 0

    @property
    def caught_up_at(self) -> tuple[int, int] | None:
        """The position read so far if nothing before it waits, else None."""
        return None if self._undelivered else (self._segment, self._offset)

    @property
    def num_unnoted(self) -> int:
        """Delivered events that the disk has not let us note."""
        return len(self._unnoted)

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
        file = self._file(self._segment)
        file.end = limit
        for frame in frames.scan(file.read, self._segment, self._offset, limit):
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
            self._undelivered.add(frame.exchange_id)
        event = self._open.get(frame.exchange_id)
        if event is None:  # its beginning was delivered and deleted
            return None
        event.frames.append(frame)
        self._pins[frame.segment].add(frame.exchange_id)
        if frame.kind in (Kind.END, Kind.RECORD):
            self.num_events += 1
            return self._open.pop(frame.exchange_id)
        return None

    def _cut_off(self) -> list[Event]:
        events = list(self._open.values())
        self._open.clear()
        return events

    def payload(self, frame: Frame) -> bytes:
        """The bytes of a frame, from the page cache as a rule."""
        return self._file(frame.segment).read_again(frame.num_bytes, frame.offset)

    def _file(self, segment: int) -> SpoolFile:
        file = self._files.get(segment)
        if file is None:
            file = self._files[segment] = SpoolFile(self.folder.segment_path(segment))
        return file

    def _close_file(self, segment: int) -> None:
        file = self._files.pop(segment, None)
        if file is not None:
            file.close()

    def done(self, events: Iterable[Event]) -> None:
        """These are delivered. `tidy` makes it last."""
        for event in events:
            self._undelivered.discard(event.exchange_id)
            span = _Span(event.begins_in, frozenset(frame.segment for frame in event.frames))
            if len(self._unnoted) >= _MAX_UNNOTED and len(span.segments) == 1:
                self._unpin(event.exchange_id, span)
            else:
                self._unnoted[event.exchange_id] = span

    def tidy(self) -> None:
        """Note what is delivered, then delete the files that nothing waits in.

        SpoolWriteError where the disk refuses: nothing is lost by that, call it again later.
        """
        refused = self._note_delivered()
        refused = self._delete_free() or refused
        if refused is not None:
            raise SpoolWriteError(refused.errno) from refused

    def _note_delivered(self) -> OSError | None:
        by_file: dict[int, list[bytes]] = defaultdict(list)
        for exchange_id, span in self._unnoted.items():
            by_file[span.begins_in].append(exchange_id)
        for segment, exchange_ids in by_file.items():
            try:
                self._note(segment, b"".join(exchange_ids))
            except OSError as error:
                return error
            for exchange_id in exchange_ids:
                self._unpin(exchange_id, self._unnoted.pop(exchange_id))
        return None

    def _note(self, segment: int, ids: bytes) -> None:
        disk = self.folder.disk
        note = disk.open_append(self._note_path(segment))
        try:
            size = os.fstat(note).st_size
            if size % _ID_BYTES:  # the disk took only a part of what came before
                disk.cut(note, size - size % _ID_BYTES)
            if disk.write(note, ids) != len(ids):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            disk.sync(note)
            if size == 0:
                disk.sync_folder(self.folder.path)
        finally:
            disk.close(note)

    def _unpin(self, exchange_id: bytes, span: _Span) -> None:
        for segment in span.segments & self._pins.keys():
            self._pins[segment].discard(exchange_id)

    def _delete_free(self) -> OSError | None:
        """In order of their numbers: an event whose BEGIN is gone needs no note."""
        last = self._segment
        if self._live is not None and self._first == last:
            return None
        for segment, size in self.folder.segments().items():
            passed = segment < last or (self._live is None and self._offset >= size)
            if segment > last or not passed or self._waits_in(segment):
                continue
            self._close_file(segment)
            try:
                self.folder.delete_segment(segment)
                self._forget_file(segment, size)
                self.folder.disk.remove(self._note_path(segment))
            except OSError as error:
                return error
        self._first = min(self.folder.segments(), default=last)
        return None

    def _waits_in(self, segment: int) -> bool:
        """True while the file holds what is not delivered, or what an adopter would mistake."""
        for exchange_id in self._pins.get(segment, ()):
            span = self._unnoted.get(exchange_id)
            if span is None or span.begins_in != segment:
                return True
        return False

    def _forget_file(self, segment: int, size: int) -> None:
        for exchange_id in list(self._pins.pop(segment, ())):
            self._unpin(exchange_id, self._unnoted.pop(exchange_id))
        if self._live is not None:
            self._live.trimmed(size)

    def _note_path(self, segment: int) -> Path:
        return self.folder.segment_path(segment).with_suffix(".done")

    def _read_notes(self) -> set[bytes]:
        found: set[bytes] = set()
        for path in self.folder.path.glob("*.done"):
            data = path.read_bytes()
            whole = len(data) - len(data) % _ID_BYTES
            found.update(data[i : i + _ID_BYTES] for i in range(0, whole, _ID_BYTES))
        return found

    def is_finished(self) -> bool:
        """True when a dead process's folder holds nothing more."""
        return self._live is None and not self.folder.segments()

    def close(self) -> None:
        """Let go of files and lock; remove the folder if all of it is delivered.

        What the disk refuses to delete stays for the next process.
        """
        self._live = None
        self._note_delivered()
        self._delete_free()
        for segment in list(self._files):
            self._close_file(segment)
        self.folder.release()
