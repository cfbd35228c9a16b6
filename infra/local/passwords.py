"""Passwords made on this machine: random, in files that only their owner can read."""

import os
import secrets
from pathlib import Path

_NUM_RANDOM_BYTES = 24


def ensure_password(path: Path) -> str:
    """The password in the file; a new random one when there is no file yet."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    password = secrets.token_urlsafe(_NUM_RANDOM_BYTES)
    with os.fdopen(handle, "w") as file:
        file.write(password + "\n")
        file.flush()
        os.fsync(file.fileno())
    return password
