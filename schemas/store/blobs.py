"""Content-addressed blobs over fsspec: local folders, object stores, memory."""

import contextlib
import hashlib
import os
import posixpath
from collections.abc import Callable
from typing import Any

import fsspec

from schemas.errors import PermanentError, Reason, TransientError


def sync_path(path: str) -> None:
    """What is in this file or folder survives a loss of power when this returns."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class BlobStore:
    """Blobs under one URI. Blobs of a tenant lie in a folder of their own.

    `sync` is called with each file and folder that has to be on the disk before a blob counts as
    stored; None leaves that to the system. Stores other than local folders see to it themselves.
    """

    def __init__(
        self, uri: str, sync: Callable[[str], None] | None = None, *, renews: bool = False
    ) -> None:
        """`renews` for blobs that go by their age: a bucket knows only when one was written, so
        there the same bytes are written again."""
        self._renews = renews
        self._fs, self._root = fsspec.core.url_to_fs(uri, auto_mkdir=False)
        self._protocol = fsspec.core.split_protocol(uri)[0] or "file"
        self._sync = sync if self._protocol == "file" else None

    def put(self, tenant_id: str, data: bytes) -> str:
        """Store `data` and return its URI. Writing the same bytes twice is harmless.

        The blob is complete under its name before the URI is returned.
        """
        digest = hashlib.sha256(data).hexdigest()
        path = posixpath.join(self._root, tenant_id, digest[:2], digest)
        try:
            if not self._is_there(path):
                self._write(path, data)
            self._make_durable(path)
        except OSError as error:
            raise TransientError(
                f"The blob store refused a write: {type(error).__name__}"
            ) from error
        return f"sha256:{tenant_id}/{digest}"

    def _is_there(self, path: str) -> bool:
        """A blob that is put again counts as new, or its sweep came too early."""
        if self._protocol != "file":
            return not self._renews and bool(self._fs.exists(path))
        try:
            os.utime(path)
        except FileNotFoundError:
            return False
        return True

    def _write(self, path: str, data: bytes) -> None:
        self._fs.makedirs(posixpath.dirname(path), exist_ok=True)
        temporary = f"{path}.{os.getpid()}"
        if self._protocol == "file":  # private before the first byte of it is there
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        try:
            with self._fs.open(temporary, "wb") as file:
                file.write(data)
            if self._sync is not None:  # or the name might outlive the content
                self._sync(temporary)
            self._fs.mv(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):  # half a blob must not fill a full disk
                self._fs.rm_file(temporary)
            raise

    def _make_durable(self, path: str) -> None:
        """Also of a blob that was there: whoever wrote it may have died before this."""
        if self._sync is None:
            return
        self._sync(path)
        folder = path
        while folder != posixpath.dirname(self._root):
            folder = posixpath.dirname(folder)
            self._sync(folder)

    def get(self, tenant_id: str, uri: str) -> bytes:
        """The bytes of a URI that `put` returned for this tenant.

        PermanentError(BLOB_MISSING) when it is gone, altered or another tenant's.
        """
        scheme, _, rest = uri.partition(":")
        owner, _, digest = rest.partition("/")
        if scheme != "sha256" or owner != tenant_id or not _is_digest(digest):
            raise PermanentError(Reason.BLOB_MISSING)
        path = posixpath.join(self._root, owner, digest[:2], digest)
        try:
            data: Any = self._fs.cat_file(path)
        except FileNotFoundError:
            raise PermanentError(Reason.BLOB_MISSING) from None
        except OSError as error:
            raise TransientError(
                f"The blob store refused a read: {type(error).__name__}"
            ) from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise PermanentError(Reason.BLOB_MISSING)
        return bytes(data)

    def renew(self, tenant_id: str, uri: str) -> None:
        """Let a blob that goes by its age stay as long as a new one. Fails as `get` and `put` do.

        One that is swept meanwhile is there again.
        """
        self.put(tenant_id, self.get(tenant_id, uri))


def _is_digest(text: str) -> bool:
    return len(text) == 64 and all(c in "0123456789abcdef" for c in text)
