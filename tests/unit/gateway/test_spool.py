"""The spool: what is appended comes out whole, whatever dies where."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.spool import Spool, SpoolFullError, frames
from inference.spool.blocks import SpoolFile
from inference.spool.disk import Disk
from inference.spool.folder import SpoolFolder, others
from inference.spool.frames import Kind, Torn
from inference.spool.source import Source

MIB = 1024**2


def make_spool(root: Path, max_bytes: int = MIB) -> Spool:
    return Spool(root, max_bytes=max_bytes, disk=Disk())


def an_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def die(spool: Spool) -> Path:
    """What a killed process leaves: its files, and a lock that is free."""
    path = spool.folder.path
    spool.close()
    os.close(spool.folder._lock)
    return path


def adopt(path: Path) -> Source:
    folder = SpoolFolder.adopt(path, Disk())
    assert folder is not None
    return Source(folder)


@settings(max_examples=60, deadline=None)
@given(
    payloads=st.lists(st.binary(max_size=300), min_size=1, max_size=8),
    cut=st.integers(0, 10_000),
    block_bytes=st.integers(1, 1_000),
)
def test_a_file_cut_anywhere_gives_whole_frames_only(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes], cut: int, block_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "file"
    data = b"".join(frames.header(Kind.CHUNK, an_id(1), p) + p for p in payloads)
    path.write_bytes(data[: cut % (len(data) + 1)])
    file = SpoolFile(path, block_bytes)
    size = file.end = path.stat().st_size
    found = list(frames.scan(file.read, 0, 0, size))
    whole = [frame for frame in found if not isinstance(frame, Torn)]
    read = [file.read_again(frame.num_bytes, frame.offset) for frame in whole]
    file.close()
    assert read == payloads[: len(read)]
    lengths = [len(frames.header(Kind.CHUNK, an_id(1), p)) + len(p) for p in payloads]
    is_boundary = size in [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    assert any(isinstance(f, Torn) for f in found) is not is_boundary


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    data = bytearray(frames.header(Kind.CHUNK, an_id(1), b"hello") + b"hello")
    data[-1] ^= 1
    (tmp_path / "file").write_bytes(data)
    file = SpoolFile(tmp_path / "file")
    file.end = len(data)
    assert list(frames.scan(file.read, 0, 0, len(data))) == [Torn(0, 0)]
    file.close()


def test_what_lies_behind_the_end_is_not_read_in_advance(tmp_path: Path) -> None:
    """The writer may cut it and write something else there."""
    (tmp_path / "file").write_bytes(b"whole" + b"half")
    file = SpoolFile(tmp_path / "file")
    file.end = len(b"whole")
    assert file.read(2, 0) == b"wh"
    (tmp_path / "file").write_bytes(b"whole" + b"other")
    file.end = len(b"wholeother")
    assert (file.read(3, 2), file.read(5, 5)) == (b"ole", b"other")
    file.close()


def test_interleaved_events_become_whole_in_order_of_their_end(tmp_path: Path) -> None:
    spool = make_spool(tmp_path)
    source = Source(spool.folder, spool)
    spool.begin(Kind.BEGIN, an_id(1), b"a")
    spool.begin(Kind.BEGIN, an_id(2), b"b")
    spool.append(Kind.CHUNK, an_id(1), b"a1")
    assert source.read(10) == []
    spool.append(Kind.END, an_id(2), b"b!")
    spool.append(Kind.END, an_id(1), b"a!")
    events = source.read(10)
    contents = [[source.payload(f) for f in e.frames] for e in events]
    assert contents == [[b"b", b"b!"], [b"a", b"a1", b"a!"]]
    source.done(events)
    source.tidy()
    spool.close()
    source.close()
    assert not spool.folder.path.exists()


def test_an_adopter_gets_what_was_not_delivered_and_what_was_cut_off(tmp_path: Path) -> None:
    spool = make_spool(tmp_path, max_bytes=4 * MIB)
    source = Source(spool.folder, spool)
    for number in range(3):
        spool.begin(Kind.BEGIN, an_id(number), b"begin")
        spool.append(Kind.CHUNK, an_id(number), b"chunk")
    spool.append(Kind.END, an_id(0), b"end")
    spool.append(Kind.END, an_id(1), b"end")
    delivered = source.read(1)
    source.done(delivered)
    source.tidy()
    adopted = adopt(die(spool))
    assert [e.exchange_id for e in adopted.read(10)] == [an_id(1), an_id(2)]
    adopted.close()


def test_a_middle_file_that_is_gone_makes_no_crashed_twin(tmp_path: Path) -> None:
    """An event that lies in three files is delivered while the first is still needed."""
    spool = make_spool(tmp_path, max_bytes=64 * MIB)
    source = Source(spool.folder, spool)
    spool.begin(Kind.BEGIN, an_id(1), b"stays open")
    spool.begin(Kind.BEGIN, an_id(2), b"begin")
    for _ in range(3):
        spool.append(Kind.CHUNK, an_id(2), b"x" * 8 * MIB)
    spool.append(Kind.END, an_id(2), b"end")
    source.done(source.read(10))
    source.tidy()
    assert 1 not in spool.folder.segments(), "the middle files went"
    adopted = adopt(die(spool))
    assert [e.exchange_id for e in adopted.read(10)] == [an_id(1)]
    adopted.close()


def test_a_living_spool_is_not_adopted(tmp_path: Path) -> None:
    spool = make_spool(tmp_path)
    assert others(tmp_path, None) == [spool.folder.path]
    assert SpoolFolder.adopt(spool.folder.path, Disk()) is None
    spool.close()


def test_what_may_begin_is_limited_and_what_has_begun_may_end(tmp_path: Path) -> None:
    spool = make_spool(tmp_path)
    source = Source(spool.folder, spool)
    spool.begin(Kind.BEGIN, an_id(1), b"x" * (MIB - 100))
    with pytest.raises(SpoolFullError):
        spool.begin(Kind.BEGIN, an_id(2), b"y" * 100)
    spool.append(Kind.END, an_id(1), b"z" * 200)
    source.done(source.read(10))
    source.tidy()
    spool.begin(Kind.RECORD, an_id(3), b"room again")
    assert spool.backlog_bytes < 1000
    spool.close()


def test_files_are_private(tmp_path: Path) -> None:
    spool = make_spool(tmp_path / "spool")
    source = Source(spool.folder, spool)
    spool.begin(Kind.RECORD, an_id(1), b"x")
    source.done(source.read(1))
    source.tidy()
    modes = {p.name: oct(p.stat().st_mode & 0o777) for p in spool.folder.path.iterdir()}
    assert set(modes) == {"lock", "00000000.seg", "00000000.done"}
    assert set(modes.values()) == {"0o600"}
    assert oct(spool.folder.path.stat().st_mode & 0o777) == "0o700"
    spool.close()


def test_a_delivered_file_goes_when_nothing_follows(tmp_path: Path) -> None:
    spool = make_spool(tmp_path)
    source = Source(spool.folder, spool)
    spool.begin(Kind.RECORD, an_id(1), b"private")
    source.done(source.read(1))
    source.tidy()
    position = source.caught_up_at
    assert position == spool.position
    assert position is not None
    spool.roll_if_read(position)
    source.read(1)
    source.tidy()
    assert spool.backlog_bytes == 0
    assert not any(b"private" in p.read_bytes() for p in spool.folder.path.iterdir())
    spool.close()


def test_a_refused_write_leaves_no_half_frame(tmp_path: Path) -> None:
    """A file-size limit of the process is the disk that is full."""
    import resource
    import signal

    from inference.spool import SpoolWriteError

    spool = make_spool(tmp_path)
    spool.begin(Kind.BEGIN, an_id(1), b"ok")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(SpoolWriteError):
            spool.append(Kind.CHUNK, an_id(1), b"x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    spool.append(Kind.END, an_id(1), b"end")
    adopted = adopt(die(spool))
    (event,) = adopted.read(10)
    assert [f.kind for f in event.frames] == [Kind.BEGIN, Kind.END]
    assert adopted.num_torn == 0
    adopted.close()


def test_it_is_full_while_what_it_refused_finds_no_room(tmp_path: Path) -> None:
    """A call of the usual size is refused long before the last byte is taken."""
    spool = make_spool(tmp_path)
    spool.begin(Kind.RECORD, b"0" * 16, b"x" * (MIB - 10_000))
    assert not spool.is_full
    with pytest.raises(SpoolFullError):
        spool.begin(Kind.RECORD, b"1" * 16, b"x" * 16_000)
    assert spool.is_full
    spool.begin(Kind.RECORD, b"2" * 16, b"x" * 1_000)  # a small one still fits
    assert spool.is_full
    spool.trimmed(MIB // 2)
    assert not spool.is_full
    spool.close()
