"""LoRA adapters: published whole, since a step changes nearly all of their few elements.

An adapter is a version of the policy. It lies on the weights of another version, its base, which it
names with their root; its own root covers that one and both of its files.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from schemas.atdp.weights import ManifestKind, WeightsManifest
from schemas.errors import ConfigError, PermanentError
from schemas.store import BlobStore
from schemas.weights.checkpoints import read_shard
from schemas.weights.dtypes import are_finite
from schemas.weights.refusals import Refusal, RefusedError
from schemas.weights.tensors import Tensor
from schemas.weights.versions import BLOB_OWNER

CODEC = "peft/1"
_WEIGHTS_FILE, _CONFIG_FILE = "adapter_model.safetensors", "adapter_config.json"
_MAX_CONFIG_BYTES = 1024**2
_KINDS = (".lora_A.weight", ".lora_B.weight")


@dataclass(frozen=True, slots=True)
class Adapter:
    """The two files of an adapter, as PEFT saves them."""

    weights: bytes
    config: bytes

    def tensors(self) -> dict[str, Tensor]:
        """What is in it. RefusedError for what is no LoRA adapter, or has no finite values."""
        _require_config(self.config)
        tensors = read_shard(self.weights)
        for name, tensor in tensors.items():
            if not name.endswith(_KINDS) or len(tensor.spec.shape) != 2:
                raise RefusedError(Refusal.WRONG_LAYOUT, name[:100])
            if not are_finite(tensor.spec.dtype, tensor.bits):
                raise RefusedError(Refusal.NOT_FINITE, name[:100])
        if not tensors:
            raise RefusedError(Refusal.WRONG_LAYOUT, "no tensors")
        return tensors

    def root(self, base_root: str) -> str:
        """SHA-256 over the root of the base and the digests of both files, hex."""
        parts = [CODEC, base_root, *(hashlib.sha256(d).hexdigest() for d in self.files)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    @property
    def files(self) -> tuple[bytes, bytes]:
        """In the order of a manifest's blobs."""
        return self.weights, self.config

    def write(self, folder: Path) -> Path:
        """Both files in a folder, as an engine reads them."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / _WEIGHTS_FILE).write_bytes(self.weights)
        (folder / _CONFIG_FILE).write_bytes(self.config)
        return folder


def is_adapter(folder: Path) -> bool:
    """Whether the folder holds an adapter and no whole model."""
    return (folder / _CONFIG_FILE).is_file()


def read_adapter(folder: Path) -> Adapter:
    """The adapter in a folder that PEFT saved. ConfigError where it is not there, or is none."""
    try:
        adapter = Adapter(
            (folder / _WEIGHTS_FILE).read_bytes(), (folder / _CONFIG_FILE).read_bytes()
        )
        adapter.tensors()
    except OSError as error:
        raise ConfigError(
            f"{folder} holds no adapter that can be read ({error.strerror}). Save it with PEFT as "
            f"{_WEIGHTS_FILE} and {_CONFIG_FILE}."
        ) from None
    except RefusedError as error:
        raise ConfigError(f"The adapter in {folder} cannot be published. {error}") from None
    return adapter


def fetch_adapter(blobs: BlobStore, manifest: WeightsManifest) -> Adapter:
    """The adapter of a manifest, proved. RefusedError says what is wrong with it."""
    where = f"version {manifest.version}"
    if manifest.kind is not ManifestKind.ADAPTER or manifest.codec != CODEC:
        raise RefusedError(Refusal.UNKNOWN_CODEC, where)
    if len(manifest.blobs) != 2 or manifest.from_root is None:
        raise RefusedError(Refusal.CORRUPT, where)
    try:
        adapter = Adapter(*(blobs.get(BLOB_OWNER, blob.uri) for blob in manifest.blobs))
    except PermanentError as error:
        raise RefusedError(Refusal.BLOB_MISSING, where) from error
    adapter.tensors()
    if adapter.root(manifest.from_root) != manifest.root:
        raise RefusedError(Refusal.WRONG_ROOT, where)
    return adapter


def _require_config(config: bytes) -> None:
    try:
        found = json.loads(config) if len(config) <= _MAX_CONFIG_BYTES else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("peft_type") != "LORA":
        raise RefusedError(Refusal.WRONG_LAYOUT, _CONFIG_FILE)
