"""Bringing an adapter into the engine beside what it serves, before it answers anybody."""

import secrets
import shutil
from pathlib import Path
from typing import Protocol

from inference.worker.update import EngineError, Fault, UpdateFailedError
from schemas.atdp.weights import ManifestKind, VersionRef
from schemas.store import BlobStore
from schemas.weights.adapters import Adapter, fetch_adapter
from schemas.weights.manifests import History, digests_in
from schemas.weights.refusals import Refusal, RefusedError


class AdapterEngine(Protocol):
    """What is asked of an engine. Each call may raise EngineError."""

    def is_healthy(self) -> bool: ...

    def load_adapter(self, name: str, folder: Path) -> dict[str, bytes]: ...

    def unload_adapter(self, name: str) -> None: ...


class Adapters:
    """The adapters of one engine: at most the one that is served and the next one."""

    def __init__(self, engine: AdapterEngine, blobs: BlobStore, folder: Path) -> None:
        self._engine, self._blobs, self._folder = engine, blobs, folder
        #: Root of the version → name in the engine.
        self._loaded: dict[str, str] = {}
        self._served: str | None = None

    def forget(self) -> None:
        """The engine is a fresh one: it has none."""
        self._loaded.clear()
        self._served = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def bring(self, target: VersionRef, history: History) -> str | None:
        """Load and prove the adapter of a version; its name, None for a version without one.

        Nobody is answered with it yet. RefusedError and UpdateFailedError leave the engine as it
        was.
        """
        manifest = history.versions.get(target.version)
        if manifest is None or manifest.kind is not ManifestKind.ADAPTER:
            return None
        adapter, digests = fetch_adapter(self._blobs, manifest), digests_in(manifest)
        if target.root not in self._loaded:
            self._drop_all({self._served, target.root})
            # Nobody shall guess it: until it is served, its answers would carry another's label.
            name = secrets.token_hex(16)
            self._load(name, self._written(name, adapter), digests)
            self._loaded[target.root] = name
        return self._loaded[target.root]

    def _written(self, name: str, adapter: Adapter) -> Path:
        try:
            return adapter.write(self._folder / name)
        except OSError:
            shutil.rmtree(self._folder / name, ignore_errors=True)
            raise UpdateFailedError(Fault.NO_ROOM) from None

    def _load(self, name: str, folder: Path, digests: dict[str, bytes]) -> None:
        try:
            found = self._engine.load_adapter(name, folder)
        except EngineError:
            if not self._engine.is_healthy():
                raise
            found = {}
        if not found or found != digests:
            self._drop(name)
            raise RefusedError(Refusal.ADAPTER_REFUSED)

    def keep_only(self, target: VersionRef) -> None:
        """This is served from now on: let the engine forget all others."""
        self._served = target.root
        self._drop_all({target.root})

    def _drop_all(self, kept: set[str | None]) -> None:
        for root in [root for root in self._loaded if root not in kept]:
            self._drop(self._loaded.pop(root))

    def _drop(self, name: str) -> None:
        try:
            self._engine.unload_adapter(name)
        except EngineError:
            return  # it was not there, or the engine is gone with all that it had
        finally:
            shutil.rmtree(self._folder / name, ignore_errors=True)
