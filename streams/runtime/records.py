"""Record batches whose header names need not be text.

A producer may write any bytes as the name of a header. aiokafka decodes them strictly inside its
fetcher, so one such record would end every worker that reads the partition, again and again. Here
a batch that cannot be read that way is read once more, with U+FFFD for what is no UTF-8.
"""

from collections.abc import Iterator
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import MemoryRecords


class LenientRecords:
    """What aiokafka's fetcher makes of fetched bytes, batch by batch."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self._records = MemoryRecords(data)
        self._num_taken = 0

    def size_in_bytes(self) -> int:
        """Bytes fetched."""
        return int(self._records.size_in_bytes())

    def has_next(self) -> bool:
        """Whether another whole batch was fetched."""
        return bool(self._records.has_next())

    def next_batch(self) -> Any:
        """The next batch, None after the last one."""
        batch = self._records.next_batch()
        self._num_taken += 1
        return None if batch is None else _Batch(batch, self._data, self._num_taken - 1)


class _Batch:
    """One batch; all but its records is aiokafka's."""

    def __init__(self, batch: Any, data: Any, number: int) -> None:
        self._batch = batch
        self._data = data
        self._number = number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        """The fetcher takes the one record of a transaction's end by itself."""
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        num_read = 0
        try:
            for record in self._batch:
                num_read += 1
                yield record
        except UnicodeDecodeError:
            yield from self._read_again(num_read)

    def _read_again(self, num_read: int) -> Iterator[Any]:
        batch = _DefaultRecordBatchPy(_nth_batch(self._data, self._number))
        batch._maybe_uncompress()
        batch._buffer = _LenientBuffer(batch._buffer)
        for number, record in enumerate(batch):
            if number >= num_read:
                yield record


def _nth_batch(data: bytes, number: int) -> bytes:
    """The bytes of one batch: offset (8 bytes), length of the rest (4 bytes), the rest."""
    position = 0
    for _ in range(number + 1):
        start = position
        position = start + 12 + int.from_bytes(data[start + 8 : start + 12], "big")
    return bytes(data[start:position])


class _LenientBuffer(bytearray):
    def __getitem__(self, part: Any) -> Any:
        found: Any = super().__getitem__(part)
        return _LenientText(found) if isinstance(part, slice) else found


class _LenientText(bytes):
    def decode(self, encoding: str = "utf-8", errors: str = "replace") -> str:  # noqa: ARG002
        return super().decode(encoding, "replace")


def install() -> None:
    """Let aiokafka's fetcher read with these."""
    fetcher.MemoryRecords = LenientRecords
