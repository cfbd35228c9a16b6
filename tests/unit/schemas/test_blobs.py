"""Claim checks: addressed by content, a tenant's own, refused when altered."""

import hashlib
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import PermanentError, Reason, TransientError
from schemas.store import BlobStore, sync_path


def store(folder: Path) -> BlobStore:
    return BlobStore(folder.absolute().as_uri())


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def refused(blobs: BlobStore, tenant: str, uri: str) -> None:
    with pytest.raises(PermanentError) as caught:
        blobs.get(tenant, uri)
    assert caught.value.reason is Reason.BLOB_MISSING


def test_the_address_is_the_content(tmp_path: Path) -> None:
    blobs = store(tmp_path)
    uri = blobs.put("acme", b"text")
    assert uri == f"sha256:acme/{hashlib.sha256(b'text').hexdigest()}"
    assert blobs.put("acme", b"text") == uri
    assert len(files(tmp_path)) == 1
    assert blobs.get("acme", uri) == b"text"
    assert stat.S_IMODE(files(tmp_path)[0].stat().st_mode) == 0o600


@given(st.binary(max_size=2_000))
def test_any_bytes_come_back(data: bytes) -> None:
    blobs = BlobStore("memory://blobs")
    assert blobs.get("acme", blobs.put("acme", data)) == data


def test_another_tenant_cannot_name_it(tmp_path: Path) -> None:
    blobs = store(tmp_path)
    uri = blobs.put("acme", b"text")
    refused(blobs, "other", uri)
    refused(blobs, "other", uri.replace("acme", "other"))
    assert blobs.put("other", b"text") != uri
    assert len(files(tmp_path)) == 2


def test_an_altered_or_shortened_blob_is_refused(tmp_path: Path) -> None:
    blobs = store(tmp_path)
    uri = blobs.put("acme", b"text")
    files(tmp_path)[0].write_bytes(b"tex")
    refused(blobs, "acme", uri)
    files(tmp_path)[0].unlink()
    refused(blobs, "acme", uri)


@pytest.mark.parametrize(
    "uri",
    ["", "sha256:", "sha256:acme/", "sha256:acme/../secret", f"sha256:acme/{'z' * 64}",
     f"md5:acme/{'a' * 64}", f"sha256:acme/{'a' * 63}", f"/etc/{'a' * 64}"],
)  # fmt: skip
def test_what_is_no_address_is_refused(uri: str, tmp_path: Path) -> None:
    refused(store(tmp_path), "acme", uri)


def test_a_store_that_cannot_be_written_is_transient(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    with pytest.raises(TransientError, match="refused a write"):
        store(blocked).put("acme", b"text")


def test_with_sync_a_blob_and_its_folders_are_on_the_disk(tmp_path: Path) -> None:
    synced: list[str] = []
    blobs = BlobStore((tmp_path / "blobs").absolute().as_uri(), sync=synced.append)
    blobs.put("acme", b"text")
    digest = hashlib.sha256(b"text").hexdigest()
    where = tmp_path / "blobs" / "acme" / digest[:2] / digest
    chain = [str(where), *(str(folder) for folder in list(where.parents)[:4])]
    assert chain[-1] == str(tmp_path)
    assert len(synced) == 6
    assert synced[0].startswith(f"{where}."), "the content before the name"
    assert synced[1:] == chain
    synced.clear()
    blobs.put("acme", b"text")
    assert synced == chain, "whoever wrote it may have died before"


def test_a_refused_sync_is_transient_and_leaves_no_half_blob(tmp_path: Path) -> None:
    def refuse(_path: str) -> None:
        raise OSError("no room")

    blobs = BlobStore(tmp_path.absolute().as_uri(), sync=refuse)
    with pytest.raises(TransientError, match="refused a write"):
        blobs.put("acme", b"text")
    assert files(tmp_path) == []


def test_the_real_sync_takes_files_and_folders(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path.absolute().as_uri(), sync=sync_path)
    assert blobs.get("acme", blobs.put("acme", b"text")) == b"text"
    with pytest.raises(FileNotFoundError):
        sync_path(str(tmp_path / "absent"))
