"""Claim-check blobs: what is too large for a record lies here, addressed by its content."""

from schemas.store.blobs import BlobStore, sync_path

__all__ = ["BlobStore", "sync_path"]
