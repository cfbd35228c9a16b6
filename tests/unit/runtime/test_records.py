"""A header whose name is no text hides neither its record nor the ones around it."""

import pytest
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from aiokafka.record.memory_records import MemoryRecords

from streams.runtime.consumer import Consumer
from streams.runtime.records import LenientRecords

NO_COMPRESSION, GZIP = 0, 1


class NoText(str):
    """A header name that is written as other bytes than text."""

    def encode(self, _encoding: str = "", _errors: str = "") -> bytes:
        return b"\xff\xfe"


def batch(compression: int, *names: str, first_offset: int = 0) -> bytes:
    """One record for each header name."""
    builder = _DefaultRecordBatchBuilderPy(2, compression, 0, -1, -1, -1, 1 << 20)
    for number, name in enumerate(names):
        builder.append(number, 1_000, b"key", b"value-%d" % number, [(name, b"header")])
    data = bytearray(builder.build())
    data[:8] = first_offset.to_bytes(8, "big")
    return bytes(data)


@pytest.mark.parametrize("compression", [NO_COMPRESSION, GZIP])
def test_a_header_name_that_is_no_text_is_replaced(compression: int) -> None:
    data = batch(compression, "good") + batch(
        compression, "before", NoText("x"), "after", first_offset=1
    )
    with pytest.raises(UnicodeDecodeError):
        read(MemoryRecords(data))
    found = read(LenientRecords(data))
    assert [(r.offset, r.value) for r in found] == [
        (0, b"value-0"), (1, b"value-0"), (2, b"value-1"), (3, b"value-2"),
    ]  # fmt: skip
    names = [name for record in found for name, _ in record.headers]
    assert names == ["good", "before", "\ufffd\ufffd", "after"]
    assert all(value == b"header" for record in found for _, value in record.headers)


def read(records: object) -> list[object]:
    """All records of all batches, as the fetcher asks for them."""
    found: list[object] = []
    while records.has_next():  # type: ignore[attr-defined]
        next_batch = records.next_batch()  # type: ignore[attr-defined]
        assert next_batch.validate_crc()
        assert not next_batch.is_control_batch
        found += list(next_batch)
    return found


def test_faust_reads_with_it() -> None:
    assert Consumer.__module__ == "streams.runtime.consumer"
    assert fetcher.MemoryRecords is LenientRecords
    assert LenientRecords(batch(NO_COMPRESSION, "a")).size_in_bytes() > 0
