"""The stage of the demo: a stack in a folder of its own, the recorded model, two keys."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from pydantic import BaseModel

from infra.cli.keys import make_key, publish_key
from infra.demo.phases import Progress
from infra.demo.player import Target
from infra.local.launch import find_settings, launch, shut_down
from infra.local.ports import alternative_to, free_ports, is_free
from infra.local.processes import start_tethered, stop_process
from infra.local.stack import Ports
from infra.local.state import is_owned
from schemas.bus.kafka import KafkaBus
from schemas.errors import ConfigError, TransientError
from schemas.settings import Settings, load_settings

TENANT = "demo"
_MARKER = "this-folder-belongs-to-headrace-demo"
_READY_SECONDS = 60.0
_POLL_SECONDS = 0.1
_REFUSES_THE_BODY = (400, 422)


@dataclass(frozen=True)
class Stage:
    """What the demo plays on. `settings` find every part of the running stack."""

    settings: Settings
    bus: KafkaBus
    target: Target


def clear_folder(data_dir: Path) -> None:
    """Make the folder of the demo, empty. What an earlier demo left there is ended and removed.

    ConfigError for a folder that holds anything but a demo.
    """
    if data_dir.exists() and any(data_dir.iterdir()) and not (data_dir / _MARKER).exists():
        raise ConfigError(
            f"{data_dir} holds something that no demo put there. Name another --data-dir."
        )
    if is_owned(data_dir):
        shut_down(data_dir)
    shutil.rmtree(data_dir, ignore_errors=True)
    data_dir.mkdir(parents=True, mode=0o700)
    (data_dir / _MARKER).touch()


@contextmanager
def staged(
    data_dir: Path,
    upstream_arguments: list[str],
    *,
    keep: bool,
    progress: Progress,
    model: str = "infra.demo.upstream",
    ports: Ports | None = None,
) -> Iterator[Stage]:
    """The stage for the length of the block. With `keep` the stack stays up after a block that
    succeeded; after one that failed it is always ended. The recorded model ends either way.

    `model` is the module that serves the recorded replies; without `ports` free ones are taken.
    """
    clear_folder(data_dir)
    (upstream_port,) = free_ports(1)
    log = data_dir / "recorded-model.log"
    with recorded_model(upstream_port, upstream_arguments, log, model):
        succeeded = False
        try:
            yield _launched(data_dir, upstream_port, progress, ports)
            succeeded = True
        finally:
            if not (keep and succeeded):
                shut_down(data_dir)


@contextmanager
def recorded_model(
    port: int, arguments: list[str], log: Path, module: str = "infra.demo.upstream"
) -> Iterator[str]:
    """The upstream in a process of its own; it ends with the block, or with this process."""
    command = [sys.executable, "-m", module, "--port", str(port), *arguments]
    with log.open("wb") as output:
        process = start_tethered(command, log=output)
        try:
            _wait_for_model(f"http://127.0.0.1:{port}/v1/models", process, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            stop_process(process)


def _launched(data_dir: Path, upstream_port: int, progress: Progress, ports: Ports | None) -> Stage:
    config = data_dir / "headrace.toml"
    config.write_text(f'[gateway.upstream]\nurl = "http://127.0.0.1:{upstream_port}"\n')
    # The supervisor and its children read the same file; they find it through the environment.
    os.environ["HEADRACE_CONFIG"] = str(config)
    settings = load_settings(data_dir=data_dir)
    progress.begin("starting Kafka, ClickHouse, gateway and processors", None)
    launch(settings, ports or free_stack_ports(settings), lambda _child: None)
    progress.end()
    settings = find_settings(data_dir)
    url = f"http://{settings.gateway.host}:{settings.gateway.port}"
    return stage_of(settings, url, progress)


def stage_of(settings: Settings, gateway_url: str, progress: Progress) -> Stage:
    """A stage on a deployment that runs: two new keys, known to the gateway. The URL ends before
    `/v1`."""
    progress.begin("making keys", None)
    bus = KafkaBus.from_settings(settings.kafka)
    agent_key, agent_record = make_key(TENANT, ("capture",), agent_id="demo-agent")
    feedback_key, feedback_record = make_key(TENANT, ("feedback:write",), rater_id="demo-rater")
    for record in (agent_record, feedback_record):
        publish_key(bus, record)
    _wait_for_key(gateway_url, feedback_key)
    progress.end()
    return Stage(settings, bus, Target(gateway_url, agent_key, feedback_key))


def free_stack_ports(settings: Settings) -> Ports:
    """The usual ports where they are free, else others close by; ports that were set stay."""
    usual = Ports.from_settings(settings)
    taken: set[int] = set()

    def choose(port: int, section: BaseModel | None = None) -> int:
        is_set = section is not None and "port" in section.model_fields_set
        chosen = port if is_set or is_free(port) else alternative_to(port, avoid=frozenset(taken))
        taken.add(chosen)
        return chosen

    return Ports(
        kafka=choose(usual.kafka),
        kafka_controller=choose(usual.kafka_controller),
        clickhouse=choose(usual.clickhouse, settings.clickhouse),
        gateway=choose(usual.gateway, settings.gateway),
        worker=choose(usual.worker, settings.worker),
    )


def _wait_for_model(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while _status(url, {}) != 200:
        if process.poll() is not None or time.monotonic() > deadline:
            said = log.read_text(errors="replace").strip().splitlines()
            raise ConfigError(said[-1] if said else "The recorded model did not start.")
        time.sleep(_POLL_SECONDS)


def _wait_for_key(gateway_url: str, feedback_key: str) -> None:
    """Wait until the gateway knows both keys: it follows one partition, and this one came last.

    An empty rating is refused without a trace; a call would be captured as a step.
    """
    deadline = time.monotonic() + _READY_SECONDS
    headers = {"x-headrace-key": feedback_key, "content-type": "application/json"}
    while _status(f"{gateway_url}/v1/feedback", headers, b"{}") not in _REFUSES_THE_BODY:
        if time.monotonic() > deadline:
            raise TransientError(
                "The gateway does not accept the demo's key. `headrace logs gateway` shows why."
            )
        time.sleep(_POLL_SECONDS)


def _status(url: str, headers: dict[str, str], body: bytes | None = None) -> int:
    """The HTTP status, 0 where nobody answers."""
    try:
        request = Request(url, data=body, headers=headers)  # noqa: S310  # our own URL
        with urlopen(request, timeout=5.0) as answer:  # noqa: S310  # our own URL
            return int(answer.status)
    except HTTPError as error:
        return error.code
    except (URLError, OSError):
        return 0
