"""Every example of docs/publish.md, run as it stands there; redaction passes its event on."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from schemas import topics
from tests.integration.gateway.harness import (
    Connection,
    ScriptedUpstream,
    new_key,
    running,
    whole,
)
from tests.integration.publishing.deployment import TIMEOUT_SECONDS, Deployment

pytestmark = pytest.mark.integration
REPOSITORY = Path(__file__).resolve().parents[3]
_DOCUMENT = (REPOSITORY / "docs" / "publish.md").read_text()
_FENCE = re.compile(r"^```(?P<name>[a-z]+ [a-z]+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
EXAMPLES = {found["name"]: found["text"] for found in _FENCE.finditer(_DOCUMENT)}


def _run(command: list[str], **environment: str) -> None:
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout


def _example(name: str, deployment: Deployment) -> str:
    return EXAMPLES[name].replace("127.0.0.1:9092", deployment.bootstrap_servers)


def _step_of(
    deployment: Deployment, starts: dict[tuple[str, int], int], trajectory_id: str, tenant: str
) -> Any:
    def is_ours(event: Any) -> bool:
        return bool((event.tenant_id, event.trajectory_id) == (tenant, trajectory_id))

    events = deployment.read_until(starts, lambda seen: any(map(is_ours, seen)))
    return next(filter(is_ours, events))


def test_no_example_goes_untested() -> None:
    assert set(EXAMPLES) == {
        "json messages", "json atdp", "sh kcat", "python json", "python avro", "sh curl",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["json", "avro"])
def test_the_python_scripts(deployment: Deployment, name: str) -> None:
    starts = deployment.ends(topics.STEPS)
    _run([sys.executable, "-c", _example(f"python {name}", deployment)])
    step = _step_of(deployment, starts, f"from-{name}", "acme")
    assert step.step_id == f"{name}-1"


@pytest.mark.parametrize(
    ("name", "trajectory_id"), [("messages", "refund-7"), ("atdp", "refund-8")]
)
def test_the_files_for_headrace_publish(
    deployment: Deployment, tmp_path: Path, name: str, trajectory_id: str
) -> None:
    file = tmp_path / "conversations.jsonl"
    file.write_text(EXAMPLES[f"json {name}"])
    starts = deployment.ends(topics.STEPS, topics.REWARDS)
    done = deployment.headrace("publish", str(file), "--tenant", "acme", "--json")
    assert done.returncode == 0, done.stderr
    assert f'"format": "{name}"' in done.stdout
    rewards = [
        event
        for event in deployment.read_until(
            starts, lambda seen: {type(e).__name__ for e in seen} >= {"Step", "Reward"}
        )
        if type(event).__name__ == "Reward"
    ]
    assert [(r.trajectory_id, r.value) for r in rewards] == [(trajectory_id, 1.0)]


def test_kcat(deployment: Deployment) -> None:
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed (Debian package kcat)")
    starts = deployment.ends(topics.STEPS)
    _run(["sh", "-c", _example("sh kcat", deployment)])
    assert _step_of(deployment, starts, "from-kcat", "acme").step_id == "kcat-1"


async def _nothing(connection: Connection) -> None:
    await connection.send(whole(b"{}"))


async def test_curl(deployment: Deployment, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    upstream = ScriptedUpstream(_nothing)
    async with running(tmp_path, deployment.bootstrap_servers, upstream) as gateway:
        tenant, key = new_key(gateway.bus, "events:write")
        starts = deployment.ends(topics.STEPS)
        command = EXAMPLES["sh curl"].replace("http://127.0.0.1:8400", gateway.url)
        await asyncio.to_thread(_run, ["sh", "-c", command], HEADRACE_KEY=key)
        step = await asyncio.to_thread(_step_of, deployment, starts, "from-curl", tenant)
    assert step.step_id == "curl-1"
