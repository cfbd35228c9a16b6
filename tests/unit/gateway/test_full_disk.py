"""A disk that is full: nothing stops for ever, nothing is lost, and what is missing is said."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from inference.spool import Spool, SpoolWriteError
from inference.spool.disk import Disk
from inference.spool.folder import SpoolFolder
from inference.spool.frames import Kind
from inference.spool.source import Source
from schemas.atdp.types import Outcome
from tests.unit.gateway.full_disk import RefusingDisk, SmallDisk, Station

MIB = 1024**2
REPOSITORY = Path(__file__).parents[3]


def an_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def make(root: Path, disk: Disk, max_bytes: int = 64 * MIB) -> tuple[Spool, Source]:
    spool = Spool(root, max_bytes=max_bytes, disk=disk)
    return spool, Source(spool.folder, spool)


def adopted_after_death(spool: Spool) -> Source:
    """What another process finds when this one is killed."""
    spool.close()
    os.close(spool.folder._lock)
    folder = SpoolFolder.adopt(spool.folder.path, Disk())
    assert folder is not None
    return Source(folder)


@contextmanager
def working(station: Station) -> Iterator[Station]:
    station.publisher.start()
    try:
        yield station
    finally:
        station.close()


def test_a_half_frame_that_could_not_be_cut_is_cut_before_the_next(tmp_path: Path) -> None:
    disk = RefusingDisk()
    spool, _ = make(tmp_path, disk)
    spool.begin(Kind.BEGIN, an_id(1), b"begin")
    disk.refuses = {"write", "cut"}
    for _ in range(2):
        with pytest.raises(SpoolWriteError):
            spool.append(Kind.CHUNK, an_id(1), b"x" * 1000)
    spool.roll_if_read(spool.position)
    disk.refuses = set()
    spool.append(Kind.END, an_id(1), b"end")
    adopted = adopted_after_death(spool)
    (event,) = adopted.read(10)
    assert [f.kind for f in event.frames] == [Kind.BEGIN, Kind.END]
    assert adopted.num_torn == 0
    adopted.close()


def three_files(root: Path, disk: Disk) -> tuple[Spool, Source]:
    """Event 1 stays open in the first of several files, event 2 lies in all of them and is done."""
    spool, source = make(root, disk)
    spool.begin(Kind.BEGIN, an_id(1), b"stays open")
    spool.begin(Kind.BEGIN, an_id(2), b"begin")
    for _ in range(3):
        spool.append(Kind.CHUNK, an_id(2), b"x" * 8 * MIB)
    spool.append(Kind.END, an_id(2), b"end")
    source.done(source.read(10))
    return spool, source


def test_without_its_note_an_event_keeps_all_its_files(tmp_path: Path) -> None:
    disk = RefusingDisk("write")
    disk.refuses = set()
    spool, source = three_files(tmp_path, disk)
    disk.refuses = {"write"}
    with pytest.raises(SpoolWriteError):
        source.tidy()
    assert sorted(spool.folder.segments()) == [0, 1, 2, 3]
    assert source.num_unnoted == 1
    adopted = adopted_after_death(spool)
    again = adopted.read(10)
    assert [e.exchange_id for e in again] == [an_id(2), an_id(1)]
    assert len(again[0].frames) == 5, "whole, not a twin that was cut off"
    adopted.close()


def test_notes_are_written_once_there_is_room(tmp_path: Path) -> None:
    disk = RefusingDisk()
    spool, source = three_files(tmp_path, disk)
    disk.refuses = {"write"}
    for _ in range(2):
        with pytest.raises(SpoolWriteError):
            source.tidy()
    note = spool.folder.segment_path(0).with_suffix(".done")
    assert note.stat().st_size % 16 == 8, "the disk took half of a note"
    disk.refuses = set()
    source.tidy()
    assert source.num_unnoted == 0
    assert sorted(spool.folder.segments()) == [0, 3]
    adopted = adopted_after_death(spool)
    assert [e.exchange_id for e in adopted.read(10)] == [an_id(1)]
    adopted.close()


def test_files_go_without_notes_so_that_a_full_disk_gets_room(tmp_path: Path) -> None:
    disk = RefusingDisk()
    spool, source = make(tmp_path, disk)
    for number in range(20):
        spool.begin(Kind.BEGIN, an_id(number), b"x" * MIB)
        spool.append(Kind.END, an_id(number), b"end")
    assert len(spool.folder.segments()) == 3
    source.done(source.read(100))
    assert source.caught_up_at == spool.position
    disk.refuses = {"write", "cut", "sync"}
    with pytest.raises(SpoolWriteError):
        source.tidy()
    assert sorted(spool.folder.segments()) == [2]
    assert spool.backlog_bytes < 5 * MIB
    spool.roll_if_read(spool.position)
    source.read(1)
    with pytest.raises(SpoolWriteError):
        source.tidy()
    assert (source.num_unnoted, spool.backlog_bytes) == (0, 0)
    source.tidy()  # nothing is left to note
    spool.close()
    source.close()
    assert not spool.folder.path.exists()


def test_a_file_that_cannot_be_removed_waits(tmp_path: Path) -> None:
    disk = RefusingDisk()
    spool, source = make(tmp_path, disk)
    for number in range(9):
        spool.begin(Kind.RECORD, an_id(number), b"x" * MIB)
    source.done(source.read(100))
    disk.refuses = {"remove"}
    with pytest.raises(SpoolWriteError):
        source.tidy()
    assert spool.backlog_bytes > 8 * MIB
    disk.refuses = set()
    source.tidy()
    assert spool.backlog_bytes < 2 * MIB
    spool.close()


@pytest.mark.parametrize("when_full", ["shed", "block"])
def test_a_call_whose_chunk_is_refused_ends_as_what_is_known(
    tmp_path: Path, when_full: str
) -> None:
    disk = SmallDisk(tmp_path, 200_000)
    chunks = [b"a" * 1_000, b"b" * 300_000, b"c" * 1_000]
    with working(Station(tmp_path, disk, when_full)) as station:
        station.call(chunks)
        station.until(station.delivered)
        outcomes = station.check_ledger()
        (exchange,) = station.bus.exchanges()
        assert exchange.response_body == chunks[0], "nothing after the hole"
        assert (exchange.status, exchange.error_class) == (200, "spool_write_failed")
        assert exchange.ended_at is not None
        assert station.refused("chunk") == 1
        shed = station.metrics.registry.get_sample_value("headrace_gateway_shed_total")
    expected = Outcome.GATEWAY_CRASHED if when_full == "shed" else Outcome.UPSTREAM_ERROR
    assert outcomes == {expected: 1}
    assert shed == (1.0 if when_full == "shed" else 0.0)


def test_a_refused_head_is_kept_with_the_end(tmp_path: Path) -> None:
    disk = RefusingDisk()
    with working(Station(tmp_path, disk)) as station:

        def refuse_head(_number: int) -> None:
            disk.refuses = set()

        begin = station.recorder.begin

        def begin_then_refuse(*arguments: object) -> object:
            capture = begin(*arguments)  # type: ignore[arg-type]
            disk.refuses = {"write"}
            return capture

        station.recorder.begin = begin_then_refuse  # type: ignore[method-assign, assignment]
        station.call([b"body"], before_chunk=refuse_head)
        station.until(station.delivered)
        (exchange,) = station.bus.exchanges()
        assert (exchange.status, exchange.response_body) == (200, b"")
        assert exchange.outcome is Outcome.GATEWAY_CRASHED
        assert exchange.first_byte_at is not None


def test_an_end_that_is_refused_is_written_when_there_is_room(tmp_path: Path) -> None:
    disk = RefusingDisk()
    with working(Station(tmp_path, disk)) as station:

        def fill(number: int) -> None:
            if number == 1:
                disk.refuses = {"write"}

        station.call([b"whole", b""], before_chunk=fill)
        station.call([b"begins while an END is owed"])
        station.housekeeping()
        assert (station.recorder.num_owed, len(station.ledger)) == (1, 1)
        assert station.refused("begin") == 1
        assert station.refused("end") >= 2
        assert station.bus.exchanges() == []
        disk.refuses = set()
        station.call([b"next"])
        station.until(station.delivered)
        assert station.recorder.num_owed == 0
        assert len(station.ledger) == 2
        station.check_ledger()


def test_an_end_owed_when_the_process_dies_leaves_a_call_cut_off(tmp_path: Path) -> None:
    disk = RefusingDisk()
    station = Station(tmp_path, disk)

    def fill(number: int) -> None:
        disk.refuses = {"write"} if number else set()

    station.call([b"whole", b""], before_chunk=fill)
    assert station.recorder.num_owed == 1
    adopted = adopted_after_death(station.spool)
    (event,) = adopted.read(10)
    assert [f.kind for f in event.frames] == [Kind.BEGIN, Kind.HEAD, Kind.CHUNK]
    adopted.close()


def test_a_full_disk_empties_when_kafka_is_back(tmp_path: Path) -> None:
    """The spool itself fills the disk; no hand is needed, and the ledger comes out whole."""
    disk = SmallDisk(tmp_path, 20 * MIB)
    with working(Station(tmp_path, disk)) as station:
        station.bus.is_away = True
        while not station.refused("chunk") or not station.refused("begin"):
            station.call([b"x" * 100_000] * 7)
        assert disk.room_bytes < 100_000
        for _ in range(5):
            station.call([b"shed"])
        station.until(lambda: station.publisher.num_waiting > 0)
        station.bus.is_away = False
        station.until(station.delivered)
        station.until(lambda: station.housekeeping() or disk.room_bytes > 19 * MIB)
        station.call([b"after"])
        station.until(station.delivered)
        outcomes = station.check_ledger()
        assert station.recorder.num_owed == 0
    assert outcomes[Outcome.GATEWAY_CRASHED] >= 1
    assert outcomes[Outcome.COMPLETE] >= 20


def test_a_disk_that_others_filled_stops_no_delivery(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path, 20 * MIB)
    station = Station(tmp_path, disk)
    station.call([b"x" * 9 * MIB])  # fills the first file
    station.call([b"x" * 1_000])
    with working(station):

        def fill(number: int) -> None:
            disk.capacity_bytes = 0 if number else disk.capacity_bytes

        open_call = station.call([b"known", b"refused"], before_chunk=fill)
        assert open_call in station.ledger
        station.until(lambda: len(station.bus.exchanges()) == 2)
        station.until(lambda: station.refused("note") > 0)
        station.until(lambda: station.spool.backlog_bytes < 9 * MIB)
        assert station.recorder.num_owed == 1
        disk.capacity_bytes = 20 * MIB
        station.until(station.delivered)
        station.check_ledger()


def test_what_needs_no_blob_passes_what_waits_for_one(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("a file where the folder should be")
    with working(Station(tmp_path, Disk(), max_record_bytes=300_000)) as station:
        large = station.call([b"x" * 200_000])
        small = [station.call([b"small"]) for _ in range(5)]
        station.until(lambda: len(station.bus.exchanges()) == 5)
        assert [e.step_id for e in station.bus.exchanges()] == small
        assert station.refused("blob") >= 1
        assert station.publisher.num_waiting == 1
        (tmp_path / "blobs").unlink()
        station.until(station.delivered)
        last = station.bus.exchanges()[-1]
        assert (last.step_id, last.outcome) == (large, Outcome.COMPLETE)
        assert last.response_body_uri is not None


def test_a_file_size_limit_of_the_system(tmp_path: Path) -> None:
    """The kernel refuses (EFBIG) in a process of its own; the ledger comes out whole."""
    script = Path(__file__).with_name("full_disk_child.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, timeout=60, check=False,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    found = orjson.loads(done.stdout.splitlines()[-1])
    assert found["outcomes"]["complete"] >= 2
    assert found["outcomes"]["gateway_crashed"] >= 1
    assert found["refused"]["chunk"] >= 1
    assert found["refused"]["begin"] >= 1


def test_what_fsync_syncs_at_a_call_and_at_a_new_file(tmp_path: Path) -> None:
    disk = RefusingDisk()
    spool, source = make(tmp_path / "spool", disk)
    name = spool.folder.path.name
    assert disk.synced == ["spool/", f"{tmp_path.name}/", f"{name}/"]
    disk.synced.clear()
    spool.begin(Kind.RECORD, an_id(1), b"x")
    assert disk.synced == ["00000000.seg"]
    disk.synced.clear()
    source.done(source.read(1))
    source.tidy()
    assert disk.synced == ["00000000.done", f"{name}/"]
    disk.synced.clear()
    spool.roll_if_read(spool.position)
    assert disk.synced == [f"{name}/"]
    spool.close()


def test_a_file_whose_name_cannot_be_synced_is_not_used(tmp_path: Path) -> None:
    disk = RefusingDisk()
    spool, _ = make(tmp_path, disk)
    disk.refuses = {"sync_folder"}
    spool.begin(Kind.RECORD, an_id(1), b"x" * 9 * MIB)
    assert spool.position[0] == 0
    disk.refuses = set()
    spool.begin(Kind.RECORD, an_id(2), b"y")
    assert spool.position == (1, 0)
    adopted = adopted_after_death(spool)
    assert [e.exchange_id for e in adopted.read(10)] == [an_id(1), an_id(2)]
    adopted.close()


def test_the_real_disk_syncs_only_when_told(tmp_path: Path) -> None:
    spool, _ = make(tmp_path / "synced", Disk(fsync=True))
    spool.begin(Kind.RECORD, an_id(1), b"x")
    assert spool.folder.segment_path(0).stat().st_size == spool.position[1]
    spool.close()
    Disk(fsync=False).sync_folder(tmp_path / "absent")
    with pytest.raises(FileNotFoundError):
        Disk(fsync=True).sync_folder(tmp_path / "absent")
