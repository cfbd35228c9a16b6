"""python -m infra.local --data-dir D: run the stack until SIGTERM. `headrace up` starts this."""

import argparse
import asyncio
import sys
from pathlib import Path

from infra.local.serving import ensure_served
from infra.local.stack import Ports, make_plan, prepare_data_dir
from infra.local.state import ChildState, StackState
from infra.local.supervisor import Supervisor
from schemas.errors import HeadraceError
from schemas.settings import load_settings


def main(arguments: list[str]) -> int:
    """0 after a stop, 2 when the stack cannot start; the last line then says why."""
    parser = argparse.ArgumentParser(prog="python -m infra.local")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--kafka-port", type=int)
    parser.add_argument("--clickhouse-port", type=int)
    parser.add_argument("--gateway-port", type=int)
    parser.add_argument("--worker-port", type=int)
    parser.add_argument("--with", action="append", default=[],
                        choices=["model", "learning"], dest="extras")  # fmt: skip
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args(arguments)
    try:
        asyncio.run(_run(options))
    except HeadraceError as error:
        _say(str(error))
        return 2
    return 0


async def _run(options: argparse.Namespace) -> None:
    settings = load_settings(**({"data_dir": options.data_dir} if options.data_dir else {}))
    ports = Ports.from_settings(
        settings,
        kafka=options.kafka_port,
        clickhouse=options.clickhouse_port,
        gateway=options.gateway_port,
        worker=options.worker_port,
    )
    learns = "learning" in options.extras
    served = ensure_served(settings, None, _say, learns=learns) if options.extras else None
    prepare_data_dir(settings)
    supervisor = Supervisor(make_plan(settings, ports, options.only, served), _report)
    await supervisor.run(_report_ready)


def _report(child: ChildState) -> None:
    _say(f"{child.since} {child.name} {child.status}{f': {child.reason}' if child.reason else ''}")


def _report_ready(state: StackState) -> None:
    _say(f"ready: {', '.join(f'{name} {url}' for name, url in state.urls.items())}")


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201  # its output is the supervisor's log


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
