"""The stage of the demos with a model of their own: a stack that serves it, in its own folder."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.demo.phases import Silent
from infra.demo.stage import Stage, clear_folder, free_stack_ports, stage_of
from infra.local.launch import find_settings, launch, shut_down
from infra.local.serving import Served
from infra.local.stack import Ports
from schemas.settings import load_settings

Say = Callable[[str, str], None]
"""Shows a line: what it is about, and what there is to say."""


@contextmanager
def serving(
    data_dir: Path,
    served: Served,
    say: Say,
    *,
    keep: bool,
    ports: Ports | None = None,
    settings: str | None = None,
) -> Iterator[Stage]:
    """A stack that serves, and learns, for the length of the block; with `keep` it stays after a
    block that succeeded. `settings` is the text of its own `headrace.toml`.
    """
    clear_folder(data_dir)
    if settings is not None:
        config = data_dir / "headrace.toml"
        config.write_text(settings)
        # The supervisor and its children read the same file; they find it through the environment.
        os.environ["HEADRACE_CONFIG"] = str(config)
    given = load_settings(data_dir=data_dir)
    say("stack", "starting Kafka, ClickHouse, gateway, processors and vLLM (a minute or so)")
    started, succeeded = time.monotonic(), False
    try:
        launch(given, ports or free_stack_ports(given), lambda _child: None, (), served)
        say("stack", f"ready after {time.monotonic() - started:.0f} s")
        found = find_settings(data_dir)
        url = f"http://{found.gateway.host}:{found.gateway.port}"
        yield stage_of(found, url, Silent())
        succeeded = True
    finally:
        if not (keep and succeeded):
            shut_down(data_dir)
