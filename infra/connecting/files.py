"""Writes a client's settings file, and what undoes it.

The first time, the file is kept as it was. Undoing gives it back byte for byte where nobody else
has touched it since, and else takes only our values out.
"""

import base64
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from infra.connecting.clients import Client, File
from infra.connecting.editing import Values, added, removed
from schemas.errors import ConfigError

_PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class Memory:
    """What was written for a client. `before` is None where there was no file."""

    path: Path
    before: bytes | None
    after_digest: str
    values: Values


def settings_path(client: Client, file: File, environment: dict[str, str], home: Path) -> Path:
    """Where the client looks for its settings."""
    folder = environment.get(client.home_variable or "")
    return Path(folder) / Path(file.path).name if folder else home / file.path


def write(client: Client, path: Path, bases: dict[str, str], notes: Path) -> None:
    """Put the values into the file. ConfigError where it cannot be done without loss."""
    file = client.file
    if file is None:
        raise ConfigError(f"{client.title} has no settings file of its own. Use the setting above.")
    values = {where: bases[which] for where, which in file.values}
    memory = _recall(client, notes)
    if memory is not None and memory.path != path:
        raise ConfigError(f"{memory.path} was written before. First: headrace connect "
                          f"{client.name} --undo")  # fmt: skip
    before = _read(path)
    ours = memory.values if memory is not None else {}
    text = added((before or b"").decode(), file.form, values, ours)
    kept = memory.before if memory is not None else before
    _remember(client, notes, Memory(path, kept, _digest(text.encode()), values))
    _put(path, text.encode())


def undo(client: Client, notes: Path) -> Path:
    """Take the values out again; the file's path. ConfigError where nothing was written."""
    memory, file = _recall(client, notes), client.file
    if memory is None or file is None:
        raise ConfigError(f"headrace has written nothing for {client.title}, so nothing is undone.")
    now = _read(memory.path)
    if now is not None and _digest(now) == memory.after_digest:
        if memory.before is None:
            memory.path.unlink()
        else:
            _put(memory.path, memory.before)
    elif now is not None:
        _put(memory.path, removed(now.decode(), file.form, memory.values).encode())
    _note(client, notes).unlink()
    return memory.path


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}).") from error


def _put(path: Path, data: bytes) -> None:
    """Write in place, so that links and modes stay; a new file is private: the URL holds a key."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}).") from error


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _note(client: Client, notes: Path) -> Path:
    return notes / f"{client.name}.json"


def _remember(client: Client, notes: Path, memory: Memory) -> None:
    before = None if memory.before is None else base64.b64encode(memory.before).decode()
    value = {
        "path": str(memory.path), "before": before, "after_digest": memory.after_digest,
        "values": [[list(where), text] for where, text in memory.values.items()],
    }  # fmt: skip
    _put(_note(client, notes), json.dumps(value).encode())


def _recall(client: Client, notes: Path) -> Memory | None:
    stored = _read(_note(client, notes))
    if stored is None:
        return None
    value = json.loads(stored)
    before = None if value["before"] is None else base64.b64decode(value["before"])
    values = {tuple(where): text for where, text in value["values"]}
    return Memory(Path(value["path"]), before, value["after_digest"], values)
