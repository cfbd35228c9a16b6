"""An engine's leftovers: in one folder, reachable by a short name, gone at the next start."""

import socket
from pathlib import Path

from inference.worker.scratch import Scratch

NAME = "0123456789abcdef0123456789abcdef0123"


def deep(folder: Path) -> Path:
    """Too deep for the name of a socket."""
    return folder / ("d" * 60) / ("e" * 60)


def test_a_socket_fits_in_a_deep_folder(tmp_path: Path) -> None:
    folder = deep(tmp_path)
    scratch = Scratch(folder)
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(scratch.path / NAME))
        server.listen()
        client.connect(str(scratch.path / NAME))
    assert [entry.name for entry in folder.iterdir()] == [NAME]
    scratch.close()
    assert list(folder.iterdir()) == []


def test_what_a_killed_engine_left_goes_at_the_next_start(tmp_path: Path) -> None:
    folder = deep(tmp_path)
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "file").touch()
    (folder / "link").symlink_to(tmp_path)
    scratch = Scratch(folder)
    assert list(folder.iterdir()) == []
    scratch.close()
    scratch.close()
    assert tmp_path.is_dir()
