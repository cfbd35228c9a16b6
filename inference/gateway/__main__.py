"""`python -m inference.gateway` starts the gateway as the settings say."""

import asyncio
import gc
import sys

from inference.gateway.app import serve
from schemas.errors import ConfigError
from schemas.settings import load_settings
from schemas.telemetry import configure_logging

#: How long a thread may hold the interpreter while another one waits for it. The publisher has
#: work of its own after each call; the next call must not wait for all of it.
_SWITCH_SECONDS = 0.0001


def main() -> int:
    """Run until SIGINT or SIGTERM; returns the exit status (2 for a wrong configuration)."""
    try:
        settings = load_settings()
        sys.setswitchinterval(_SWITCH_SECONDS)
        configure_logging("inference.gateway", settings.log_level)
        # What was made so far lives as long as the process: no collection has to look at it again.
        gc.collect()
        gc.freeze()
        return asyncio.run(serve(settings))
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
