"""`python -m inference.gateway` starts the gateway as the settings say."""

import asyncio
import sys

from inference.gateway.app import serve
from schemas.errors import ConfigError
from schemas.settings import load_settings
from schemas.telemetry import configure_logging

_SWITCH_SECONDS = 0.0005


def main() -> int:
    """Run until SIGINT or SIGTERM; returns the exit status (2 for a wrong configuration)."""
    try:
        settings = load_settings()
        # The publisher's thread may hold the interpreter for that long while a call waits.
        sys.setswitchinterval(_SWITCH_SECONDS)
        configure_logging("inference.gateway", settings.log_level)
        return asyncio.run(serve(settings))
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
