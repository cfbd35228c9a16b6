"""`python -m controlplane.promotion` decides as the settings say."""

import signal
import sys
from pathlib import Path

from controlplane.promotion.process import Promotion
from schemas import topics
from schemas.bus.kafka import KafkaBus
from schemas.errors import ConfigError
from schemas.secrets import load_weights_key
from schemas.settings import load_settings
from schemas.telemetry import configure_logging


def main() -> int:
    """Run until SIGINT or SIGTERM; 2 for a wrong configuration and for a second process."""
    try:
        settings = load_settings()
        configure_logging(topics.PROMOTION, settings.log_level)
        ready = settings.data_dir / "run" / f"{topics.PROMOTION}.ready"
        promotion = Promotion(
            KafkaBus.from_settings(settings.kafka),
            settings.promotion,
            key=load_weights_key(settings.weights_key_file),
            on_ready=lambda: _touch(ready),
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: promotion.stop())
        promotion.run()
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _touch(path: Path) -> None:
    """Tell a supervisor that everything is read."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch()


if __name__ == "__main__":
    sys.exit(main())
