"""A worker that kills itself with SIGKILL at a step of one update of a real engine.

DIES_AT=STEP DIES_OVER=VERSION python -m tests.integration.worker.dying_worker

It is `python -m inference.worker` up to the moment in which that version is staged.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from inference.worker.__main__ import main
from inference.worker.announce import Announcer
from inference.worker.client import EngineClient
from inference.worker.plan import Advance
from inference.worker.staging import Staging
from schemas.weights import shadow

#: Where it ends, in the order of an update.
STEPS = ("staging", "staged", "paused", "torn", "asked", "written", "labelled", "applied")
#: Tensors that the engine writes before it fails, so that its weights are neither old nor new.
_TORN_AFTER = 7


def die() -> None:
    """As the kernel ends a process that used too much memory: nothing is told or put right."""
    os.kill(os.getpid(), signal.SIGKILL)


class Death:
    """Armed once the version is staged that it is to die over."""

    def __init__(self, step: str, version: int) -> None:
        self.step, self.version, self.is_armed = step, version, False

    def arm(self, step: Any) -> None:
        self.is_armed = isinstance(step, Advance) and step.manifests[-1].version == self.version

    def is_at(self, step: str) -> bool:
        return self.is_armed and self.step == step

    def around(self, owner: Any, method: str, *, before: str = "", after: str = "") -> None:
        """Die before or after a call of this method."""
        call: Callable[..., Any] = getattr(owner, method)

        def dying(*arguments: Any, **options: Any) -> Any:
            if before and self.is_at(before):
                die()
            found = call(*arguments, **options)
            if after and self.is_at(after):
                die()
            return found

        setattr(owner, method, dying)


def prepare(death: Death) -> None:
    """Put the deaths where they belong."""
    stage, write = Staging.stage, EngineClient.write

    def armed(self: Staging, step: Any, *rest: Any) -> Any:
        death.arm(step)
        return stage(self, step, *rest)

    def torn(self: EngineClient, patch: Path, names: Sequence[str] | None) -> dict[str, bytes]:
        if death.is_at("asked"):
            send_and_die(self, patch, names)
        if death.is_at("torn"):
            try:
                return write(self, patch, names, fail_after=_TORN_AFTER)
            finally:
                die()
        return write(self, patch, names)

    Staging.stage, EngineClient.write = armed, torn  # type: ignore[method-assign, assignment]
    death.around(shadow.Shadow, "write", after="staging")
    death.around(Staging, "stage", after="staged")
    death.around(EngineClient, "hold", after="paused")
    death.around(EngineClient, "write", after="written")
    death.around(EngineClient, "label", after="labelled")
    death.around(Announcer, "acknowledge", before="applied")


def send_and_die(client: EngineClient, patch: Path, names: Sequence[str] | None) -> None:
    """The engine has the request to write, and nobody waits for its answer."""
    import http.client

    class Unheard(http.client.HTTPConnection):
        def getresponse(self) -> Any:
            die()

    http.client.HTTPConnection = Unheard  # type: ignore[misc]
    client.write(patch, names)


if __name__ == "__main__":
    prepare(Death(os.environ["DIES_AT"], int(os.environ["DIES_OVER"])))
    sys.exit(main())
