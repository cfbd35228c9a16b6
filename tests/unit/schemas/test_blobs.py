"""Claim checks: addressed by content, a tenant's own, refused when altered."""

import hashlib
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import PermanentError, Reason, TransientError
from schemas.store import BlobStore


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
