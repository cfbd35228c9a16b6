"""`python -m inference.gateway [--workers N]` starts the gateway as the settings say."""

import argparse
import asyncio
import gc
import sys

from inference.fleet.supervisor import Fleet, hold_port
from inference.gateway.app import GRACE_SECONDS, serve
from schemas.errors import ConfigError
from schemas.settings import GatewaySettings, Settings, load_settings
from schemas.telemetry import configure_logging

#: How long a thread may hold the interpreter while another one waits for it. The publisher has
#: work of its own after each call; the next call must not wait for all of it.
_SWITCH_SECONDS = 0.0001


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM; returns the exit status (2 for a wrong configuration)."""
    parser = argparse.ArgumentParser(prog="python -m inference.gateway", description=__doc__)
    parser.add_argument("--workers", type=int, choices=range(1, 65), metavar="N", help="processes")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    try:
        settings = _settings(given.workers)
        configure_logging("inference.gateway", settings.log_level)
        if settings.gateway.workers > 1 and given.worker is None:
            return _several(settings.gateway)
        sys.setswitchinterval(_SWITCH_SECONDS)
        # What was made so far lives as long as the process: no collection has to look at it again.
        gc.collect()
        gc.freeze()
        return asyncio.run(serve(settings, worker=given.worker))
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _settings(num_workers: int | None) -> Settings:
    """Those of file and environment, with that number of processes."""
    settings = load_settings()
    if num_workers is None:
        return settings
    gateway = settings.gateway.model_copy(update={"workers": num_workers})
    return settings.model_copy(update={"gateway": gateway})


def _several(gateway: GatewaySettings) -> int:
    async def run() -> int:
        with hold_port(gateway.host, gateway.port) as held:
            port = held.getsockname()[1]
            grace_seconds = gateway.drain_seconds + GRACE_SECONDS
            return await Fleet(gateway.workers, port, grace_seconds).run()

    return asyncio.run(run())


if __name__ == "__main__":
    sys.exit(main())
