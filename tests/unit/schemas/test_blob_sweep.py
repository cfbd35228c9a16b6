"""Old blobs go; one that is put again stays, whoever sweeps meanwhile."""

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from schemas import topics
from schemas.errors import PermanentError
from schemas.ids import is_tenant_id
from schemas.settings import GatewaySettings, Settings
from schemas.store import BlobStore, Swept, sweep

DAY = 24 * 3600.0


def store(folder: Path) -> BlobStore:
    return BlobStore(folder.as_uri())


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def make_old(folder: Path, days: float) -> None:
    then = time.time() - days * DAY
    for path in files(folder):
        os.utime(path, (then, then))


def test_blobs_go_by_their_age(tmp_path: Path) -> None:
    blobs = store(tmp_path)
    old = blobs.put("acme", b"old text")
    make_old(tmp_path, 16)
    new = blobs.put("acme", b"new")
    assert sweep(tmp_path.as_uri(), 15 * DAY) == Swept(1, len(b"old text"))
    assert blobs.get("acme", new) == b"new"
    with pytest.raises(PermanentError):
        blobs.get("acme", old)
    assert sweep(tmp_path.as_uri(), 15 * DAY) == Swept()


def test_a_blob_that_is_put_again_is_new(tmp_path: Path) -> None:
    blobs = store(tmp_path)
    blobs.put("acme", b"text")
    make_old(tmp_path, 16)
    uri = blobs.put("acme", b"text")
    assert sweep(tmp_path.as_uri(), 15 * DAY) == Swept()
    assert blobs.get("acme", uri) == b"text"


def test_what_a_dead_writer_left_goes_too(tmp_path: Path) -> None:
    """Half a blob, under a name that nobody asks for."""
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "half.4711").write_bytes(b"ha")
    make_old(tmp_path, 16)
    assert sweep(tmp_path.as_uri(), 15 * DAY) == Swept(1, 2)


def test_what_a_dead_sweep_left_is_looked_at_again(tmp_path: Path) -> None:
    blobs = store(tmp_path)
    uri = blobs.put("acme", b"text")
    (path,) = files(tmp_path)
    path.rename(path.with_name(path.name + ".leaving"))
    assert sweep(tmp_path.as_uri(), 15 * DAY) == Swept()
    assert blobs.get("acme", uri) == b"text"


def test_a_blob_put_while_it_is_deleted_is_there_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The put comes after the last look at the age, when the old one has lost its name."""
    blobs = store(tmp_path)
    uri = blobs.put("acme", b"text")
    make_old(tmp_path, 16)
    unlink = Path.unlink

    def put_then_unlink(path: Path) -> None:
        blobs.put("acme", b"text")
        unlink(path)

    monkeypatch.setattr(Path, "unlink", put_then_unlink)
    assert sweep(tmp_path.as_uri(), 15 * DAY).num_blobs == 1
    assert blobs.get("acme", uri) == b"text"


def test_a_blob_put_just_before_it_loses_its_name_gets_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = store(tmp_path)
    uri = blobs.put("acme", b"text")
    make_old(tmp_path, 16)
    rename = Path.rename

    def put_then_rename(path: Path, target: Path) -> Path:
        if target.name.endswith(".leaving"):
            blobs.put("acme", b"text")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", put_then_rename)
    assert sweep(tmp_path.as_uri(), 15 * DAY) == Swept()
    assert blobs.get("acme", uri) == b"text"


def test_puts_and_sweeps_side_by_side_lose_nothing(tmp_path: Path) -> None:
    """Two sweeps at once, and all blobs grow old again and again."""
    blobs = store(tmp_path)
    ended = threading.Event()
    failures: list[OSError] = []

    def sweep_on() -> None:
        while not ended.is_set():
            try:
                sweep(tmp_path.as_uri(), 15 * DAY)
            except OSError as error:
                failures.append(error)

    sweepers = [threading.Thread(target=sweep_on) for _ in range(2)]
    for sweeper in sweepers:
        sweeper.start()
    for number in range(200):
        blobs.put("acme", b"%d" % (number % 5))
        with suppress(FileNotFoundError):
            make_old(tmp_path, 16 if number % 3 else 0)
        uri = blobs.put("acme", b"%d" % (number % 5))
    ended.set()
    for sweeper in sweepers:
        sweeper.join()
    sweep(tmp_path.as_uri(), 15 * DAY)  # gives back what was leaving
    assert failures == []
    assert blobs.get("acme", uri) == b"%d" % (199 % 5)


def test_buckets_are_left_to_their_own_rules() -> None:
    blobs = BlobStore("memory://swept")
    uri = blobs.put("acme", b"text")
    assert sweep("memory://swept", -DAY) == Swept()
    assert blobs.get("acme", uri) == b"text"


def test_a_folder_that_is_not_there_yet_holds_nothing(tmp_path: Path) -> None:
    assert sweep((tmp_path / "none").as_uri(), DAY) == Swept()


def test_a_blob_outlives_every_record_that_names_it() -> None:
    kept = [t.retention_hours / 24 for t in topics.TOPICS if t.holds_original_text]
    assert GatewaySettings().blob_days >= max(kept) + 1


def test_no_tenant_can_share_the_folder_of_original_text(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    folder = settings.original_blobs.removeprefix(settings.blobs).strip("/")
    assert folder
    assert not is_tenant_id(folder)
