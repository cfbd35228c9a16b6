"""Claim-check blobs: what is too large for a record lies here, addressed by its content."""

from schemas.store.blobs import BlobStore, sync_path
from schemas.store.sweeping import Swept, sweep

__all__ = ["BlobStore", "Swept", "sweep", "sync_path"]
