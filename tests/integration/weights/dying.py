"""A publisher that is killed at a chosen step, for `test_killed_publishers`.

Every call that leaves the process counts as two steps: before it and after it. Run as
`python -m tests.integration.weights.dying SERVERS PREFIX BLOBS MODELS VERSION STEP`.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from schemas.bus.access import KafkaAccess
from schemas.bus.kafka import KafkaBus
from schemas.store import BlobStore
from schemas.weights.checkpoints import read_shard
from schemas.weights.publish import Publisher
from schemas.weights.tensors import Tensors
from schemas.weights.versions import restore

POLICY = "main"
_WATCHED = {"producer", "transactions", "send", "flush", "begin", "commit", "put"}


class Clock:
    """Counts steps and ends the process at the chosen one, or never for -1."""

    def __init__(self, last: int, die: Callable[[], None] | None = None) -> None:
        self._last, self._die, self.num_steps = last, die or _kill, 0

    def tick(self, sent: Any = None) -> None:
        if self.num_steps == self._last:
            if sent is not None:  # what was queued has left the process, as far as it may
                sent.flush(5.0)
            self._die()
        self.num_steps += 1


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Watched:
    """Passes every call on and ticks around those that leave the process."""

    def __init__(self, inner: Any, clock: Clock) -> None:
        self._inner, self._clock = inner, clock

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._around(found, name) if name in _WATCHED else found

    def _around(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def watched(*args: Any, **options: Any) -> Any:
            self._clock.tick()
            result = call(*args, **options)
            raw = getattr(self._inner, "_producer", None)
            self._clock.tick(raw if name == "send" else None)
            return Watched(result, self._clock) if name in {"producer", "transactions"} else result

        return watched


def model(folder: Path, version: int) -> Tensors:
    """The weights that a version shall have."""
    return read_shard((folder / f"{version}.safetensors").read_bytes())


def publish(bus: Any, blobs: Any, folder: Path, version: int) -> None:
    """What a trainer does after a restart: publish the version unless it is there."""
    publisher = Publisher(bus, blobs, POLICY)
    newest = publisher.history.newest
    if newest is not None and newest.version >= version:
        publisher.close()
        return
    if newest is not None:
        publisher.start_from(newest.version, restore(bus, blobs, publisher.history, newest.version))
    publisher.publish(model(folder, version))
    publisher.close()


def main(arguments: list[str]) -> None:
    """Publish, die at the step, or print the number of steps."""
    servers, prefix, blob_uri, folder, version, step = arguments
    clock = Clock(int(step))
    bus = Watched(KafkaBus(KafkaAccess(servers, prefix=prefix)), clock)
    publish(bus, Watched(BlobStore(blob_uri), clock), Path(folder), int(version))
    sys.stdout.write(f"{clock.num_steps}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
