"""A replay that has begun and not ended leaves a note, so that nobody takes half for the whole.

    note written ─▶ groups stopped ─▶ reset and wiped ─▶ groups started ─▶ note removed

Who finds the note while no replay runs knows that one was cut short. The processors are not started
again behind the user's back then: tables that were wiped in part would be served as if whole.
"""

import json
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from infra.local.locks import is_locked, locked
from infra.local.state import run_dir
from infra.replay.plan import Start
from schemas.errors import ConfigError
from schemas.topics import GROUPS


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for."""

    groups: tuple[str, ...] = GROUPS
    start: Start = field(default_factory=Start)
    keep_tables: bool = False

    @property
    def is_whole(self) -> bool:
        """Everything the log holds goes through every group again."""
        return self.groups == GROUPS and self.start.is_beginning

    @property
    def arguments(self) -> str:
        """The options of `headrace replay` that ask for it."""
        words = [] if self.groups == GROUPS else [g.rpartition(".")[2] for g in self.groups]
        if self.start.at is not None:
            words += ["--from-time", self.start.at.isoformat()]
        for (topic, partition), offset in self.start.offsets.items():
            words += ["--from-offset", f"{topic}:{partition}:{offset}"]
        return " ".join([*words, *(["--keep-tables"] if self.keep_tables else [])])


def settled(asked: Order, unfinished: Order | None) -> Order:
    """What to do: without options the unfinished replay is finished, with the options it had.

    ConfigError for another replay that would leave undone what the unfinished one has begun.
    """
    if unfinished is None or asked == unfinished or (asked.is_whole and asked.keep_tables):
        return asked
    if asked == Order():
        return unfinished
    options = f" (`{unfinished.arguments}`)" if unfinished.arguments else ""
    raise ConfigError(
        f"An earlier replay{options} was cut short. Run `headrace replay` without options to "
        "finish it, then run this one."
    )


def sentence(data_dir: Path, option: str = "") -> str | None:
    """What `headrace status` says of a replay under way or cut short, None where there is none.

    `option` names the data directory in the command, where it is not the default one.
    """
    if read_note(data_dir) is None:
        return None
    if is_replaying(data_dir):
        return "A replay is running; the tables are not whole until it ends."
    return (
        "A replay was cut short, so processors may stand still and tables may not be whole: run "
        f"`headrace replay{option}` to finish it."
    )


def exclusive(data_dir: Path) -> AbstractContextManager[None]:
    """No other replay on this data directory for the length of the block, or ConfigError."""
    return locked(
        _lock_file(data_dir),
        "Another replay is running here. Wait until it ends; `headrace status` shows it.",
    )


def is_replaying(data_dir: Path) -> bool:
    """True while a replay runs on this data directory."""
    return is_locked(_lock_file(data_dir))


def read_note(data_dir: Path) -> Order | None:
    """The replay that has begun and not ended."""
    try:
        plain = json.loads(_note(data_dir).read_text())
    except FileNotFoundError:
        return None
    except json.JSONDecodeError:
        raise ConfigError(
            f"{_note(data_dir)} is damaged. Remove it and run `headrace replay`, which processes "
            "everything again."
        ) from None
    at = plain["at"]
    return Order(
        groups=tuple(plain["groups"]),
        start=Start(
            at=None if at is None else datetime.fromisoformat(at),
            offsets={(topic, partition): offset for topic, partition, offset in plain["offsets"]},
        ),
        keep_tables=plain["keep_tables"],
    )


def write_note(data_dir: Path, order: Order) -> None:
    """Durable before it returns, whole or not there at all."""
    start = order.start
    plain = {
        "groups": order.groups,
        "at": None if start.at is None else start.at.isoformat(),
        "offsets": [[topic, partition, n] for (topic, partition), n in start.offsets.items()],
        "keep_tables": order.keep_tables,
    }
    path = _note(data_dir)
    fresh = path.with_suffix(".new")
    with fresh.open("w") as file:
        json.dump(plain, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def remove_note(data_dir: Path) -> None:
    """The replay has ended."""
    _note(data_dir).unlink(missing_ok=True)


def _note(data_dir: Path) -> Path:
    return run_dir(data_dir) / "replay.json"


def _lock_file(data_dir: Path) -> Path:
    return run_dir(data_dir) / "replay.lock"
