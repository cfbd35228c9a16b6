"""Other proxies, as their own documents say to run them, each in a cached place of its own.

LiteLLM's proxy comes from the Python index, Portkey's gateway from that of Node.js.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from infra.bench.upstream import MODEL
from infra.local.locks import in_turn
from infra.local.uv import MAX_SECONDS, finished, last_words, uv
from schemas.errors import ConfigError

LITELLM = "litellm[proxy]==1.108.7"
PORTKEY = "@portkey-ai/gateway@1.15.2"
_KEY = "sk-bench"
#: What LiteLLM's page on production says, without a database: a process for each core, its mode,
#: few logs, no logs of spending.
LITELLM_CONFIG = """\
model_list:
  - model_name: {model}
    litellm_params: {{model: openai/{model}, api_base: "{upstream}/v1", api_key: none}}
litellm_settings: {{request_timeout: 600, set_verbose: false, json_logs: true, telemetry: false}}
general_settings: {{master_key: {key}, disable_spend_logs: true, disable_error_logs: true}}
"""


@dataclass(frozen=True)
class Rival:
    """A proxy that can be started, and how a client speaks to it."""

    name: str
    command: Sequence[str]
    headers: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)


def litellm(folder: Path, upstream: str, port: int) -> Rival:
    """LiteLLM's proxy. ConfigError where it cannot be installed."""
    program = _cached("litellm", LITELLM, Path("bin/litellm"), _with_uv)
    config = folder / "litellm.yaml"
    config.write_text(LITELLM_CONFIG.format(model=MODEL, upstream=upstream, key=_KEY))
    command = [
        str(program), "--config", str(config), "--host", "127.0.0.1", "--port", str(port),
        "--num_workers", str(os.cpu_count() or 1), "--timeout_worker_healthcheck", "120",
    ]  # fmt: skip
    environment = {"LITELLM_MODE": "PRODUCTION", "LITELLM_LOG": "ERROR",
                   "LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # fmt: skip
    return Rival("LiteLLM", command, {"authorization": f"Bearer {_KEY}"}, environment)


def portkey(_folder: Path, upstream: str, port: int) -> Rival:
    """Portkey's gateway. ConfigError where it cannot be installed."""
    script = Path("node_modules/@portkey-ai/gateway/build/start-server.js")
    program = _cached("portkey", PORTKEY, script, _with_npm)
    headers = {"authorization": f"Bearer {_KEY}", "x-portkey-provider": "openai",
               "x-portkey-custom-host": f"{upstream}/v1"}  # fmt: skip
    command = [shutil.which("node") or "node", str(program), f"--port={port}", "--headless"]
    return Rival("Portkey", command, headers, {"NODE_ENV": "production"})


def _with_uv(folder: Path, requirement: str) -> str | None:
    """What went wrong, if anything."""
    python = folder / "bin" / "python"
    for arguments in (
        ["venv", "--quiet", "--relocatable", "--python", sys.executable, str(folder)],
        ["pip", "install", "--quiet", "--python", str(python), requirement],
    ):
        done = uv(arguments)
        if done.returncode != 0:
            return last_words(done)
    return None


def _with_npm(folder: Path, requirement: str) -> str | None:
    """What went wrong, if anything."""
    npm = shutil.which("npm")
    if npm is None:
        return "npm is not there."
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), requirement]
    done = finished(command, os.environ)
    return None if done.returncode == 0 else last_words(done)


def _cached(
    name: str, requirement: str, program: Path, install: Callable[[Path, str], str | None]
) -> Path:
    """The program, installed complete under a name that follows from what is installed."""
    digest = hashlib.sha256(requirement.encode()).hexdigest()[:16]
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    final = Path(base) / "headrace" / f"rival-{name}-{digest}"
    if (final / program).is_file():
        return final / program
    final.parent.mkdir(parents=True, exist_ok=True)
    with (
        in_turn(final.with_suffix(".lock"), name, MAX_SECONDS, lambda _: None),
        tempfile.TemporaryDirectory(prefix=".rival-", dir=final.parent) as folder,
    ):
        if (final / program).is_file():  # another process made it meanwhile
            return final / program
        problem = install(Path(folder) / "made", requirement)
        if problem is not None:
            raise ConfigError(f"{name} cannot be installed: {problem} Allow the package index.")
        (Path(folder) / "made").rename(final)
    return final / program
