"""The 200 recorded conversations, played by the real client without any session header.

One stack, one run of 20 conversations at a time, half of the calls streaming; the tests ask it
different questions, in any order.
"""

import asyncio
import json
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infra.demo.conversations import Conversation, load_trajectories
from infra.demo.places import (
    Found,
    look_at_logs,
    look_at_metrics,
    look_at_tables,
    look_at_topics,
)
from infra.demo.player import Player
from infra.demo.private_data import Planted
from infra.demo.settle import num_unread, settle
from infra.demo.stage import TENANT, Stage
from infra.demo.verify import Evidence, Verdict
from infra.local.control import ask
from infra.store import Reader, open_reader
from tests.e2e.conftest import stage_with

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

FILE = Path("trajectories") / "tau-bench-airline-gpt-4o.json"
SETTINGS = {"HEADRACE_ASSEMBLY__IDLE_SECONDS": "3", "HEADRACE_ASSEMBLY__TICK_SECONDS": "1"}
MAX_WAIT_SECONDS = 300.0


@dataclass(frozen=True)
class Run:
    """What was played and what came of it."""

    stage: Stage
    player: Player
    conversations: list[Conversation]
    evidence: Evidence
    verdict: Verdict
    num_closed_before_rewards: int


@pytest.fixture(scope="module")
def run(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    conversations = load_trajectories(shared_data / FILE)
    arguments = ["--trajectories", str(shared_data / FILE)]
    folder = tmp_path_factory.mktemp("real") / "stack"
    with stage_with(folder, arguments, SETTINGS) as stage, open_reader(folder) as reader:
        player = Player(
            stage.target, conversations, seed=1, concurrency=20, some_rewards_early=False
        )
        asyncio.run(player.play())
        wait_until(lambda: num_closed(reader) >= len(conversations))
        closed = num_closed(reader)
        asyncio.run(player.send_late_rewards())
        ask(folder, "stop-child", ["assembly"])
        asyncio.run(player.send_again(player.ledger.rewards))
        ask(folder, "start-child", ["assembly"])
        evidence, verdict = settle(reader, stage.bus, player.ledger, TENANT)
        yield Run(stage, player, conversations, evidence, verdict, closed)


@pytest.fixture
def reader(run: Run) -> Iterator[Reader]:
    with open_reader(run.stage.settings.data_dir) as opened:
        yield opened


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        pause.wait(0.5)


def num_closed(reader: Reader) -> int:
    rows = reader.rows("SELECT count() AS n FROM trajectories WHERE closed_at IS NOT NULL")
    return int(rows[0]["n"])


def test_every_call_of_the_ledger_is_one_row(run: Run, reader: Reader) -> None:
    calls = [call.response_id for call in run.player.ledger.calls]
    rows = [row["response_id"] for row in reader.rows("SELECT response_id FROM steps")]
    assert len(calls) == 2454
    assert sorted(rows) == sorted(calls)
    assert (run.verdict.num_lost, run.verdict.num_duplicated) == (0, 0)
    assert (run.evidence.num_dead_lettered, run.evidence.num_quarantined) == (0, 0)


def test_half_of_the_calls_streamed(run: Run) -> None:
    streamed = sum(call.streamed for call in run.player.ledger.calls)
    assert abs(streamed / len(run.player.ledger.calls) - 0.5) < 0.05


def test_two_hundred_trajectories_each_with_its_reward(run: Run, reader: Reader) -> None:
    assert run.num_closed_before_rewards == 200
    rows = reader.rows(
        "SELECT s.response_id AS response_id, t.reward AS reward, t.reward_status AS status "
        "FROM steps AS s JOIN trajectories AS t USING (tenant_id, trajectory_id)"
    )
    rewards = {row["response_id"]: (row["reward"], row["status"]) for row in rows}
    assert len(reader.rows("SELECT trajectory_id FROM trajectories")) == 200
    wanted = {talk.conversation_id: talk.reward for talk in run.conversations}
    for conversation_id, call in run.player.ledger.last_calls().items():
        reward, status = rewards[call.response_id]
        assert math.isclose(reward, wanted[conversation_id]), conversation_id
        assert status in ("final", "revised")


def test_a_reward_sent_again_after_a_restart_counts_once(run: Run, reader: Reader) -> None:
    (row,) = reader.rows("SELECT count() AS n, uniqExact(reward_id) AS ids FROM rewards")
    assert row["n"] == row["ids"] == run.player.ledger.num_rewards
    (counted,) = reader.rows(
        "SELECT sum(num_rewards) AS n, max(num_rewards) AS m FROM trajectories"
    )
    assert (counted["n"], counted["m"]) == (200, 1)


def test_messages_put_together_again_equal_what_was_sent(run: Run, reader: Reader) -> None:
    """Message by message, outside the spans that the row itself lists as redacted."""
    whole = _stored_messages(reader)
    for call in run.player.ledger.last_calls().values():
        stored = whole[call.response_id]
        original = [*call.sent, call.received]
        assert len(stored) == len(original)
        for (body, spans), message in zip(stored, original, strict=True):
            assert body == _with_spans(_plain(message), spans)


def test_tool_arguments_still_parse(run: Run, reader: Reader) -> None:
    num_calls = 0
    for row in reader.rows("SELECT output FROM steps"):
        for body in row["output"]:
            for call in json.loads(body).get("tool_calls") or []:
                json.loads(call["function"]["arguments"])
                num_calls += 1
    sent = sum(len(c.received.get("tool_calls") or []) for c in run.player.ledger.calls)
    assert num_calls == sent > 0


def test_no_email_and_no_date_of_birth_is_found_anywhere(run: Run, shared_data: Path) -> None:
    users = json.loads((shared_data / "pii" / "tau-bench-airline-users.json").read_text())
    found = Found(tuple(_gold(users)))
    data_dir = run.stage.settings.data_dir
    with open_reader(data_dir) as reader:
        assert look_at_tables(reader, found) > 2454
    assert look_at_topics(run.stage.bus, found) > 2454
    assert look_at_logs(data_dir, found) > 0
    assert look_at_metrics(run.stage.target.gateway_url, found) > 0
    assert found.by_kind == {}
    seen = Found(tuple(_gold(users)))  # the same search finds them in the original file
    seen.look("file", (shared_data / FILE).read_text())
    assert set(seen.by_kind) == {"EMAIL_ADDRESS", "DATE_OF_BIRTH"}


def test_nothing_is_left_unread(run: Run) -> None:
    assert num_unread(run.stage.bus) == 0


def _gold(users: dict[str, Any]) -> Iterator[Planted]:
    for user in users.values():
        yield Planted("EMAIL_ADDRESS", user["email"], "gold")
        for person in (user, *user["saved_passengers"]):
            if "dob" in person:
                yield Planted("DATE_OF_BIRTH", person["dob"], "gold")


Spans = list[dict[str, Any]]


def _stored_messages(reader: Reader) -> dict[str, list[tuple[Any, Spans]]]:
    """Response id of a trajectory's last step → its messages with the spans of each."""
    rows = reader.rows(
        "SELECT trajectory_id, response_id, new_messages, output, redactions FROM steps "
        "ORDER BY trajectory_id, step_index"
    )
    by_trajectory: dict[str, list[tuple[Any, Spans]]] = defaultdict(list)
    last: dict[str, str] = {}
    for row in rows:
        last[row["trajectory_id"]] = row["response_id"]
        for where in ("new_messages", "output"):
            for index, body in enumerate(row[where]):
                prefix = f"{where}/{index}/"
                spans = [s for s in map(_span, row["redactions"]) if s["path"].startswith(prefix)]
                relative = [{**s, "path": s["path"].removeprefix(prefix)} for s in spans]
                by_trajectory[row["trajectory_id"]].append((json.loads(body), relative))
    return {last[trajectory]: messages for trajectory, messages in by_trajectory.items()}


def _span(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    return dict(zip(("path", "kind", "start", "end", "placeholder"), value, strict=True))


def _plain(message: Any) -> Any:
    return json.loads(json.dumps(message))


def _with_spans(message: Any, spans: Spans) -> Any:
    """The message with the listed spans replaced, last first, leaf by leaf."""
    for span in sorted(spans, key=lambda s: -s["start"]):
        parent = message
        *above, leaf = [int(p) if p.isdecimal() else p for p in span["path"].split("/")]
        for part in above:
            parent = parent[part]
        text = parent[leaf]
        parent[leaf] = text[: span["start"]] + span["placeholder"] + text[span["end"] :]
    return message
