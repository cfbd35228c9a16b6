"""`python -m inference.worker` serves a policy as the settings say."""

import signal
import sys
import threading

from inference.worker.service import serve
from schemas.bus.kafka import KafkaBus
from schemas.errors import ConfigError, TransientError
from schemas.settings import load_settings
from schemas.telemetry import configure_logging


def main() -> int:
    """Run until SIGINT or SIGTERM; returns the exit status (2 for a wrong configuration)."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        settings = load_settings()
        configure_logging("inference.worker", settings.log_level)
        serve(settings, KafkaBus.from_settings(settings.kafka), stop)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except TransientError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
