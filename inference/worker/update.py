"""One update of a running engine: hold, write, prove, label, let go. All or nothing.

hold or pause ─▶ drop cache ─▶ write ─▶ prove ─▶ move the label ─▶ release and resume (always)
                                  └─ failed ─▶ write the old values ─▶ prove ─▶ …
                                                                └─ failed ─▶ QuarantineEngine
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol

from inference.worker.engine import patch_file
from inference.worker.engine.middleware import Label
from inference.worker.engine.patch_file import Values
from schemas.weights.shadow import Patch, Shadow

PauseMode = Literal["wait", "keep"]
#: Bytes of tensors that are digested in the engine before each label moves.
CHECK_BYTES = 64 * 1024**2
_CACHE_SECONDS = 10.0
_POLL_SECONDS = 0.005


class EngineError(Exception):
    """The engine is away, or answered with an error. Whether it did half of it is not known."""


class Fault(StrEnum):
    """What an engine did wrong: a closed list, beside that of refusals."""

    ENGINE_FAILED = "engine_failed"
    ENGINE_DIFFERS = "engine_differs"
    ENGINE_BUSY = "engine_busy"
    #: The disk refused the patch file or an adapter's. Nothing was asked of the engine.
    NO_ROOM = "no_room"


class UpdateFailedError(Exception):
    """The engine did not take the update and serves what it served before, proved."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.value)
        self.fault = fault


class EngineLostError(Exception):
    """What the engine's weights are is not known. It serves nothing until it is started anew."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.value)
        self.fault = fault


class Engine(Protocol):
    """What an update asks of an engine. Each call may raise EngineError."""

    def hold(self, seconds: float, *, drain: bool = True) -> bool: ...

    def release(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def drop_cache(self, *, running: bool) -> bool: ...

    def write(self, patch: Path, names: Sequence[str] | None) -> dict[str, bytes]: ...

    def digests(self, names: Sequence[str] | None = None) -> dict[str, bytes]: ...

    def progress(self) -> dict[str, int]: ...

    def label(
        self, label: Mapping[str, object], progress: dict[str, int] | None = None
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds in which no request ran."""

    pause_ms: float


class Updater:
    """Moves an engine from one proved state to another. For one thread."""

    def __init__(
        self,
        engine: Engine,
        file: Path,
        mode: PauseMode,
        wait_seconds: float,
        check_bytes: int = CHECK_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._file, self._mode = engine, file, mode
        self._wait_seconds, self._check_bytes = wait_seconds, check_bytes
        self._clock = clock
        self._resting_since = 0.0
        self._label = Label(refusal="starting")
        self._random = random.Random()  # noqa: S311 - which tensors are looked at is no secret

    def update(
        self, patch: Patch, before: Mapping[str, bytes], shadow: Shadow, label: Label
    ) -> Timing:
        """Write a patch that the shadow has taken already, and prove it.

        `before` are the digests that the engine has now. UpdateFailedError when it serves on what
        it served, and EngineLostError when that cannot be proved. The caller takes the shadow back.
        """
        try:
            patch_file.write(self._file, _values(patch))
        except OSError:
            raise UpdateFailedError(Fault.NO_ROOM) from None
        with self._stopped():
            try:
                names = self._sample(patch, shadow)
                _require_same(names, self._engine.write(self._file, names), shadow)
                self._move_label(label)
            except EngineError:
                self._take_back(patch, before, Fault.ENGINE_FAILED)
            except DiffersError:
                self._take_back(patch, before, Fault.ENGINE_DIFFERS)
        return Timing(1000 * (self._clock() - self._resting_since))

    def relabel(self, shadow: Shadow, label: Label) -> Timing:
        """Prove all tensors of the engine and move the label. EngineLostError when they differ."""
        with self._stopped():
            try:
                if self._engine.digests() != dict(shadow.digests):
                    raise EngineLostError(Fault.ENGINE_DIFFERS)
                self._move_label(label)
            except EngineError:
                raise EngineLostError(Fault.ENGINE_FAILED) from None
        return Timing(1000 * (self._clock() - self._resting_since))

    @contextmanager
    def _stopped(self) -> Iterator[None]:
        """No request computes inside. UpdateFailedError when the engine does not come to rest.

        Unless it is known what the weights are, those who wait are refused, and those who stand
        still go on no more.
        """
        try:
            if not self._engine.hold(self._wait_seconds, drain=self._mode == "wait"):
                raise UpdateFailedError(Fault.ENGINE_BUSY)
            is_known = False
            try:
                if self._mode == "keep":
                    self._engine.pause()  # answered when the step that is computed has ended
                self._resting_since = self._clock()
                self._empty_cache()
                yield
                is_known = True
            except UpdateFailedError:
                is_known = True
                raise
            finally:
                self._let_go(is_known=is_known)
        except EngineError:
            raise EngineLostError(Fault.ENGINE_FAILED) from None

    def _let_go(self, *, is_known: bool) -> None:
        if not is_known:
            self._engine.label(asdict(Label(refusal="the worker starts its engine anew")))
        elif self._mode == "keep":
            self._engine.resume()
        self._engine.release()

    def _empty_cache(self) -> None:
        """What was computed with other weights must answer nobody. It also proves that all rest."""
        deadline = self._clock() + _CACHE_SECONDS
        while not self._engine.drop_cache(running=self._mode == "keep"):
            if self._clock() > deadline:
                raise UpdateFailedError(Fault.ENGINE_BUSY)
            time.sleep(_POLL_SECONDS)

    def _sample(self, patch: Patch, shadow: Shadow) -> list[str]:
        """Changed tensors, and a few others, as many as may be looked at in a pause."""
        changed = list(patch.changes)
        others = [name for name in shadow.layout if name not in patch.changes]
        self._random.shuffle(changed)
        self._random.shuffle(others)
        left = self._check_bytes
        names: list[str] = []
        for name in [*changed, *others]:
            left -= shadow.layout[name].num_bytes
            if left < 0 and names:
                break
            names.append(name)
        return names

    def _move_label(self, label: Label) -> None:
        self._engine.label(asdict(label), self._progress())
        self._label = label

    def _progress(self) -> dict[str, int] | None:
        return self._engine.progress() if self._mode == "keep" else None

    def _take_back(self, patch: Patch, before: Mapping[str, bytes], fault: Fault) -> None:
        """Write the old values, whatever of the new ones is there, and prove every tensor."""
        try:
            patch_file.write(self._file, _values(patch.inverse()))
            is_back = self._engine.write(self._file, None) == dict(before)
            # The engine may have moved its label although the answer to that did not come.
            self._engine.label(asdict(self._label), self._progress())
        except (EngineError, OSError):
            is_back = False
        if not is_back:
            raise EngineLostError(fault)
        raise UpdateFailedError(fault)


class DiffersError(Exception):
    """A tensor of the engine is not what the shadow has."""


def _require_same(names: Sequence[str], found: Mapping[str, bytes], shadow: Shadow) -> None:
    if any(found.get(name) != shadow.digests[name] for name in names):
        raise DiffersError


def _values(patch: Patch) -> dict[str, Values]:
    return {name: Values(change.positions, change.new) for name, change in patch.changes.items()}
