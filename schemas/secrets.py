"""One root secret a deployment, one derived key per tenant and purpose.

The root secret is generated once, stored with mode 0600, and never leaves its file.
Every process that must compute the same digest (gateway, redaction) reads the same file.
"""

import hashlib
import hmac
import os
from pathlib import Path

from schemas.errors import ConfigError

ROOT_BYTES = 32


def create_root_secret(path: Path) -> None:
    """Write a new root secret unless the file exists. Durable before it returns."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(handle, "wb") as file:
        file.write(os.urandom(ROOT_BYTES))
        file.flush()
        os.fsync(file.fileno())


def load_root_secret(path: Path) -> bytes:
    """Read the root secret; a ConfigError says how to make one."""
    try:
        secret = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"The root secret cannot be read from {path}. Run `headrace up` once to create it, "
            "or set HEADRACE_SECRET_FILE to the file that the other services use."
        ) from error
    if len(secret) < ROOT_BYTES:
        raise ConfigError(_too_short(f"The root secret in {path}"))
    return secret


def load_weights_key(path: Path | None) -> bytes | None:
    """Read the key that signs manifests of weights; None where no file is set."""
    if path is None:
        return None
    try:
        key = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"weights_key_file {path} cannot be read. `headrace up` makes one, and so does "
            f"`head -c {ROOT_BYTES} /dev/urandom`; all processes of a deployment read the same."
        ) from error
    if len(key) < ROOT_BYTES:
        raise ConfigError(_too_short(f"weights_key_file {path}"))
    return key


def _too_short(what: str) -> str:
    return (
        f"{what} is shorter than {ROOT_BYTES} bytes. Copy it anew from where the other services "
        "have it. Where nothing was made with it yet (a first start that was killed leaves an "
        "empty file), remove it and run `headrace up` again."
    )


def tenant_key(root: bytes, tenant_id: str, purpose: str) -> bytes:
    """The 32-byte key of one tenant for one purpose (HKDF-expand with one block, RFC 5869)."""
    return hmac.new(root, f"{purpose}\0{tenant_id}\x01".encode(), hashlib.sha256).digest()
