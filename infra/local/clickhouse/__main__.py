"""python -m infra.local.clickhouse --data-dir D --port 8123

Serves one data directory until SIGTERM or SIGINT. Passwords are made on the first start.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
from pathlib import Path

from aiohttp import web

from infra.local.clickhouse.app import ClickHouseFront
from infra.local.clickhouse.engine import Engine
from infra.local.clickhouse.users import READ_ONLY_USER, READ_WRITE_USER, Users
from infra.local.passwords import ensure_password
from infra.local.ports import require_free
from schemas.errors import ConfigError
from schemas.telemetry import configure_logging

_MAX_HEADER_BYTES = 1024 * 1024
_GRACE_SECONDS = 5.0


def parse_options(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m infra.local.clickhouse")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8123)
    parser.add_argument("--password-file", type=Path, help="default: DATA_DIR/password")
    parser.add_argument("--readonly-password-file", type=Path, help="default: DATA_DIR/password-ro")
    parser.add_argument("--max-body-bytes", type=int, default=1024**3)
    return parser.parse_args(arguments)


async def serve(options: argparse.Namespace) -> None:
    """Open the engine, then listen, until a signal comes."""
    data_dir = options.data_dir.absolute()
    users = Users(
        {
            READ_WRITE_USER: ensure_password(options.password_file or data_dir / "password"),
            READ_ONLY_USER: ensure_password(
                options.readonly_password_file or data_dir / "password-ro"
            ),
        }
    )
    require_free(options.port, what="ClickHouse", option="--port", host=options.host)
    engine = Engine(data_dir)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    with tempfile.TemporaryDirectory(prefix="bodies-", dir=data_dir) as directory:
        front = ClickHouseFront(engine, users, Path(directory), options.max_body_bytes)
        # Bodies are decoded by us: several frames in a row, and LZ4, which aiohttp does not know.
        runner = web.AppRunner(
            front.make_app(),
            access_log=None,
            auto_decompress=False,
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
            shutdown_timeout=_GRACE_SECONDS,
        )
        await runner.setup()
        await web.TCPSite(runner, options.host, options.port).start()
        await stopped.wait()
        await runner.cleanup()
    engine.close()


def main(arguments: list[str]) -> int:
    """Run the server; 2 when it cannot start as configured."""
    configure_logging("clickhouse")
    try:
        asyncio.run(serve(parse_options(arguments)))
    except ConfigError as error:
        print(error, file=sys.stderr)  # noqa: T201  # the process is a program of its own
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
