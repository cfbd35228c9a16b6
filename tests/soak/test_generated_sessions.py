"""A thousand generated sessions over the whole path: nothing planted that has a form is anywhere.

Real Kafka, gateway, redaction, assembly, batching, ClickHouse; the accurate tier, which is the
default. `HEADRACE_TEST_SESSIONS` makes it fewer.
"""

import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.bench.redaction.sessions import CERTAIN, session
from infra.demo.conversations import load_trajectories
from infra.demo.places import (
    Found,
    look_at_logs,
    look_at_metrics,
    look_at_tables,
    look_at_topics,
)
from infra.demo.player import Player
from infra.demo.private_data import Planted
from infra.demo.settle import settle
from infra.demo.stage import TENANT, Stage
from infra.store import open_reader
from tests.e2e.conftest import stage_with
from tests.soak.trial import ports_of_its_own

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(3600)]

NUM_SESSIONS = int(os.environ.get("HEADRACE_TEST_SESSIONS", "1000"))
SETTINGS = {
    "HEADRACE_ASSEMBLY__IDLE_SECONDS": "5",
    "HEADRACE_ASSEMBLY__TICK_SECONDS": "1",
    "HEADRACE_TRAINING_ELIGIBLE_TENANTS": '["demo"]',
}
#: Folders of the stack that hold original text or the broker's and the store's own files, whose
#: contents are read as topics and tables.
PRIVATE_FOLDERS = {"spool", "blobs", "kafka", "clickhouse", "redaction", "secrets", "quarantine"}


def written(folder: Path) -> tuple[Path, tuple[Planted, ...]]:
    """A file of sessions as recordings are written, and all that is planted in them."""
    made = [session(seed) for seed in range(NUM_SESSIONS)]
    records = [
        {"task_id": number, "trial": 0, "reward": number % 2, "traj": each.messages}
        for number, each in enumerate(made)
    ]
    path = folder / "sessions.json"
    path.write_text(json.dumps(records))
    planted = {item: None for each in made for item in each.planted}
    return path, tuple(planted)


def other_files(data_dir: Path) -> Iterator[Path]:
    """Files of the stack that no other look reads and that may hold no original text."""
    for file in sorted(data_dir.rglob("*")):
        is_private = not PRIVATE_FOLDERS.isdisjoint(file.relative_to(data_dir).parts)
        if file.is_file() and not is_private:
            yield file


def look_everywhere(stage: Stage, found: Found) -> dict[str, int]:
    """How much of each kind of place was looked at."""
    data_dir = stage.settings.data_dir
    with open_reader(data_dir) as reader:
        looked = {"rows": look_at_tables(reader, found)}
    looked["records"] = look_at_topics(stage.bus, found)
    looked["logs"] = look_at_logs(data_dir, found)
    looked["metrics"] = look_at_metrics(stage.target.gateway_url, found)
    looked["files"] = 0
    for file in other_files(data_dir):
        found.look(
            f"file {file.relative_to(data_dir)}", file.read_bytes().decode("utf-8", "replace")
        )
        looked["files"] += 1
    return looked


def test_nothing_planted_in_a_thousand_sessions_is_found_downstream(tmp_path: Path) -> None:
    path, planted = written(tmp_path)
    found = Found(planted)
    arguments = ["--trajectories", str(path)]
    folder = tmp_path / "stack"
    times = {"began": time.monotonic()}
    with stage_with(folder, arguments, SETTINGS, ports=ports_of_its_own()) as stage:
        conversations = load_trajectories(path)
        player = Player(stage.target, conversations, seed=1, concurrency=8)
        times["started"] = time.monotonic()
        asyncio.run(player.play())
        asyncio.run(player.send_late_rewards())
        times["played"] = time.monotonic()
        with open_reader(folder) as reader:
            evidence, verdict = settle(reader, stage.bus, player.ledger, TENANT)
        times["settled"] = time.monotonic()
        looked = look_everywhere(stage, found)
        times["looked"] = time.monotonic()
    certain = {kind: number for kind, number in found.by_kind.items() if kind in CERTAIN}
    others = [item for item in found.places if item.kind not in CERTAIN]
    kinds = Counter(item.kind for item in planted)
    sys.stdout.write(json.dumps({
        "sessions": NUM_SESSIONS, "calls": len(player.ledger.calls), "planted": kinds,
        "looked at": looked, "left": certain,
        "names and addresses left": Counter(item.kind for item in others),
        "seconds until": {name: round(at - times["began"]) for name, at in times.items()},
    }, indent=1) + "\n")  # fmt: skip
    for item, places in [*found.places.items()][:20]:
        sys.stdout.write(f"left: {item} in {sorted(places)}\n")
    assert (verdict.num_lost, verdict.num_duplicated) == (0, 0)
    assert (evidence.num_dead_lettered, evidence.num_quarantined) == (0, 0)
    assert min(kinds[kind] for kind in CERTAIN) >= NUM_SESSIONS // 20, "a kind is hardly planted"
    assert min(looked.values()) > 0
    assert certain == {}
    assert len(others) <= 0.02 * sum(kinds[kind] for kind in ("PERSON", "STREET_ADDRESS"))
    seen = Found(planted)  # the same search finds them in the original file
    seen.look("file", path.read_text())
    assert set(seen.by_kind) == set(kinds)
