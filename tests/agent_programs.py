"""Agent programs from the package indexes, installed once per user, and how each is run on a task.

`python -m tests.agent_programs` installs them into the cache (1.7 GB). Tests that run them skip
where they are not there.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from infra.local.uv import uv

#: What is installed: a program of the index of Node.js, or an environment of Python of its own.
NODE = ("@anthropic-ai/claude-code@2.1.197", "@openai/codex@0.171.0", "opencode-ai@1.18.33")
PYTHON = {"hermes": "hermes-agent==0.19.0", "mini": "mini-swe-agent==2.4.6"}
INSTALL = "python -m tests.agent_programs"


@dataclass(frozen=True)
class Program:
    """One agent. `command` and `environment` take the gateway's address with the key in it."""

    name: str
    executable: str
    #: The model that it is told to use; the dialect follows from it.
    command: Callable[[str, str], Sequence[str]]
    environment: Callable[[str], Mapping[str, str]] = lambda _: {}
    #: Files that it reads, by their path in its home.
    files: Callable[[str], Mapping[str, str]] = lambda _: {}
    #: It ends by a tool call of that command, not by an answer.
    ends_with: str | None = None
    sends_session: bool = field(default=False)


def _opencode(base: str) -> dict[str, str]:
    provider = {"openai": {"options": {"baseURL": f"{base}/v1", "apiKey": "sk-own"}}}
    config = {"provider": provider, "permission": {"bash": "allow"}, "autoupdate": False,
              "share": "disabled"}  # fmt: skip
    return {".config/opencode/opencode.json": json.dumps(config)}


def _hermes(base: str) -> dict[str, str]:
    config = {"model": {"provider": "custom", "base_url": f"{base}/v1", "default": "gpt-5"}}
    return {".hermes/config.yaml": json.dumps(config), ".hermes/.env": "OPENAI_API_KEY=sk-own\n"}


PROGRAMS = (
    Program(
        "claude-code", "node/node_modules/.bin/claude",
        lambda _, task: ("-p", task, "--model", "claude-sonnet-4-5", "--allowedTools", "Bash(*)"),
        lambda base: {
            "ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": "sk-own",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1",
        },
        sends_session=True,
    ),
    Program(
        "codex", "node/node_modules/.bin/codex",
        lambda base, task: (
            "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
            "-c", f"openai_base_url={base}/v1", "-m", "gpt-5", task,
        ),
        lambda _: {"CODEX_API_KEY": "sk-own"},
        sends_session=True,
    ),
    Program(
        "opencode", "node/node_modules/.bin/opencode",
        lambda _, task: ("run", "-m", "openai/gpt-5", task),
        lambda _: {"OPENCODE_DISABLE_MODELS_FETCH": "1"},
        _opencode, sends_session=True,
    ),
    Program("hermes", "hermes/bin/hermes", lambda _, task: ("-z", task, "--yolo"), files=_hermes),
    Program(
        "mini-swe-agent", "mini/bin/mini",
        lambda _, task: ("-m", "openai/gpt-5", "-t", task, "-y", "--exit-immediately"),
        lambda base: {
            "OPENAI_API_BASE": f"{base}/v1", "OPENAI_API_KEY": "sk-own", "MSWEA_CONFIGURED": "1",
            "MSWEA_COST_TRACKING": "ignore_errors", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
        ends_with="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
    ),
)  # fmt: skip


def folder() -> Path:
    """Where they are or will be: the name is a digest of what is installed."""
    digest = hashlib.sha256("\n".join([*NODE, *PYTHON.values()]).encode()).hexdigest()[:16]
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "headrace" / f"agents-{digest}"


def prepared(program: Program, base: str, home: Path) -> dict[str, str]:
    """Write its files; the environment to run it in, which reaches nothing but this machine."""
    for name, text in program.files(base).items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    nowhere = "http://127.0.0.1:1"
    return {
        "HOME": str(home), "PATH": os.environ["PATH"], "TERM": "dumb", "LANG": "C.UTF-8",
        "HTTPS_PROXY": nowhere, "HTTP_PROXY": nowhere, "NO_PROXY": "127.0.0.1,localhost",
        **program.environment(base),
    }  # fmt: skip


def main() -> int:
    """Install all of them, complete or not at all."""
    final = folder()
    if final.is_dir():
        sys.stdout.write(f"{final}\n")
        return 0
    final.parent.mkdir(parents=True, exist_ok=True)
    # Not moved afterwards: the scripts of an environment name its place.
    made = Path(tempfile.mkdtemp(prefix="agents-", dir=final.parent))
    with ExitStack() as undo:
        undo.callback(shutil.rmtree, made, ignore_errors=True)
        npm = shutil.which("npm") or "npm"
        subprocess.run([npm, "install", "--no-audit", "--no-fund", "--prefix", made / "node",
                        *NODE], check=True)  # fmt: skip
        for name, requirement in PYTHON.items():
            python = made / name / "bin" / "python"
            for arguments in (
                ["venv", "--python", sys.executable, str(made / name)],
                ["pip", "install", "--quiet", "--python", str(python), requirement],
            ):
                done = uv(arguments)
                if done.returncode != 0:
                    sys.stderr.write(done.stderr)
                    return 1
        final.symlink_to(made.name)
        undo.pop_all()
    sys.stdout.write(f"{final}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
