"""`python -m trainer` learns a policy as the settings say."""

import signal
import sys
import threading
from pathlib import Path

from schemas import topics
from schemas.bus.kafka import KafkaBus
from schemas.errors import ConfigError, TransientError
from schemas.settings import load_settings
from schemas.telemetry import configure_logging
from trainer.relaunch import require_torch


def main() -> int:
    """Run until SIGINT or SIGTERM; 2 for a wrong configuration, 1 where Kafka stays away."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        settings = load_settings()
        python = settings.trainer.python or settings.worker.python
        site = settings.data_dir.absolute() / "trainer" / "site"
        require_torch(python, site, "trainer", settings.trainer.num_processes)
        from trainer.service import serve  # needs torch, which was just found

        configure_logging(topics.TRAINER, settings.log_level)
        ready = settings.data_dir / "run" / f"{topics.TRAINER}.ready"
        serve(settings, KafkaBus.from_settings(settings.kafka), stop, lambda: _touch(ready))
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except TransientError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _touch(path: Path) -> None:
    """Tell a supervisor that the policy is published and batches are read."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch()


if __name__ == "__main__":
    sys.exit(main())
