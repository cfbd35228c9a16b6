"""Old blobs go; one that is put again stays, whoever sweeps meanwhile."""

import os
import threading
import time
from pathlib import Path

import fsspec
import pytest
from pydantic import ValidationError

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


def test_a_renewed_blob_is_new(tmp_path: Path) -> None:
    blobs = store(tmp_path)
    uri = blobs.put("acme", b"text")
    make_old(tmp_path, 16)
    blobs.renew("acme", uri)
    assert sweep(tmp_path.as_uri(), 15 * DAY) == Swept()
    for owner in ("acme", "globex"):  # one that is gone, and one of somebody else
        make_old(tmp_path, 16)
        sweep(tmp_path.as_uri(), 15 * DAY)
        with pytest.raises(PermanentError):
            blobs.renew(owner, uri)


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
    path.rename(path.with_name(path.name + ".5f.leaving"))
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


def test_two_sweeps_of_one_blob_do_not_take_what_is_put_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both find it old; the other one takes its name, it is put anew, and this one takes that."""
    blobs = store(tmp_path)
    uri = blobs.put("acme", b"text")
    make_old(tmp_path, 16)
    has_the_name, may_delete = threading.Event(), threading.Event()
    rename, unlink = Path.rename, Path.unlink
    found: list[Swept] = []
    other = threading.Thread(target=lambda: found.append(sweep(tmp_path.as_uri(), 15 * DAY)))

    def slow_rename(path: Path, target: Path) -> Path:
        if threading.current_thread() is other or may_delete.is_set():
            return rename(path, target)
        other.start()
        assert has_the_name.wait(30.0)
        blobs.put("acme", b"text")
        taken = rename(path, target)
        may_delete.set()
        return taken

    def slow_unlink(path: Path) -> None:
        has_the_name.set()
        may_delete.wait(30.0)
        unlink(path)

    monkeypatch.setattr(Path, "rename", slow_rename)
    monkeypatch.setattr(Path, "unlink", slow_unlink)
    assert sweep(tmp_path.as_uri(), 15 * DAY) == Swept()
    other.join(30.0)
    assert found == [Swept(1, len(b"text"))]
    assert blobs.get("acme", uri) == b"text"


def test_a_file_that_the_disk_refuses_does_not_keep_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = store(tmp_path)
    for number in range(4):
        blobs.put("acme", b"%d" % number)
    make_old(tmp_path, 16)
    kept, rename = files(tmp_path)[0], Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path == kept:
            raise PermissionError(13, "refused")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    assert sweep(tmp_path.as_uri(), 15 * DAY) == Swept(3, 3, 1)
    assert files(tmp_path) == [kept]


def test_buckets_are_left_to_their_own_rules() -> None:
    blobs = BlobStore("memory://swept")
    uri = blobs.put("acme", b"text")
    assert sweep("memory://swept", -DAY) == Swept()
    assert blobs.get("acme", uri) == b"text"


@pytest.mark.parametrize("renews", [True, False])
def test_in_a_bucket_only_what_goes_by_its_age_is_written_again(renews: bool) -> None:
    blobs = BlobStore(f"memory://renewed-{renews}", renews=renews)
    owner, _, digest = blobs.put("acme", b"text").removeprefix("sha256:").partition("/")
    path = f"/renewed-{renews}/{owner}/{digest[:2]}/{digest}"
    bucket = fsspec.filesystem("memory")
    bucket.pipe_file(path, b"as it was")
    blobs.put("acme", b"text")
    assert bucket.cat_file(path) == (b"text" if renews else b"as it was")


@pytest.mark.parametrize(
    "uri", ["memory://", "file:///", "s3://bucket/blobs/", "s3://bucket/blobs"]
)
def test_the_folder_of_original_text_lies_in_the_same_store(uri: str) -> None:
    found = Settings(blob_uri=uri).original_blobs
    assert found.startswith(uri.removesuffix("/") + "/")
    assert found.partition("://")[0] == uri.partition("://")[0]


def test_a_folder_that_is_not_there_yet_holds_nothing(tmp_path: Path) -> None:
    assert sweep((tmp_path / "none").as_uri(), DAY) == Swept()


def test_a_blob_outlives_every_record_that_names_it() -> None:
    """On the raw topic, in quarantine, and then as a new one; a file of the log goes as a whole,
    and Kafka begins a new one after seven days at the latest."""
    days = {topic.name: topic.retention_hours / 24 for topic in topics.TOPICS}
    way = (topics.RAW_EVENTS, topics.QUARANTINE)
    assert GatewaySettings().blob_days >= sum(days[name] + 7 for name in way)
    with pytest.raises(ValidationError):
        GatewaySettings(blob_days=sum(days[name] for name in way))


def test_no_tenant_can_share_the_folder_of_original_text(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    folder = settings.original_blobs.removeprefix(settings.blobs).strip("/")
    assert folder
    assert not is_tenant_id(folder)
