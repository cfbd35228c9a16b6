"""What real clients sent becomes steps of the right kind, each in its place."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from multidict import CIMultiDict

from inference.capture import headers, route
from inference.capture.identity import identify
from schemas import topics
from schemas.atdp.types import Exchange, Header, Outcome, Step, StepKind
from schemas.bus import Received
from schemas.codec import encode
from tests.model_answers import SSE_TYPE, answer, said_nothing_more
from tests.recorded_clients import Sent, answered, runs
from tests.unit.redaction_processor.captures import START
from tests.unit.redaction_processor.test_lineage import ROOT, make_lane
from tests.unit.runtime_harness import ManualClock, events_of, memory_bus

#: For each run: what each of its requests became, in order. `<n>` is a step that goes on from the
#: n-th request, `root` one that begins; `aside` asks for no decision; `=<n>` is an attempt of the
#: n-th request. A branch stands behind a colon, `sub` for that of a subagent.
EXPECTED = {
    "anthropic-python": "root root aside root aside",
    "claude-agent-sdk": "root 0 1",
    "claude-code-continue": "aside root 1 aside 2",
    "claude-code-newauth": "aside root 1",
    "claude-code-reasoning": "aside root 1",
    "claude-code-retry": "aside =3 =3 root 3",
    "claude-code-subagent": "aside root 1:sub 2:sub 1",
    "codex-openai-base": "root 0",
    "codex-parallel": "root 0",
    "codex-reasoning": "root 0",
    "codex-truncated": "=1 root 1",
    "hermes-agent-parallel": "aside root aside 1",
    "hermes-agent-reasoning": "aside root aside 1",
    "hermes-agent-resume": "aside root aside 1 aside 3 aside",
    "hermes-agent-retry": "aside =3 =3 root aside 3",
    "hermes-agent-truncated": "aside =2 root aside 2",
    "litellm": "root root root root root root root",
    "mini-swe-agent": "root 0",
    "openai-agents": "root 0 root 2 root 4 root 6 root root",
    "openai-python": "root 0 root root root root aside root",
    "opencode-parallel": "root:beside root 1",
    "opencode-reasoning": "root 0",
    "opencode-subagent": "root:beside root 1:sub 2:sub 1",
    "opencode-truncated": "root 0",
    "qwen-code": "root 0",
    "qwen-code-reasoning": "root 0",
    "qwen-code-truncated": "root",
    "smolagents": "root 0 root",
}
#: Trajectories of the runs that were several conversations.
SEVERAL = {
    "anthropic-python": 3,
    "litellm": 7,
    "openai-agents": 6,
    "openai-python": 6,
    "smolagents": 2,
}
#: Gaps that no recorded call may have.
_NOT_UNDERSTOOD = {"dialect_not_parsed", "request_not_parsed", "response_not_parsed"}


@dataclass(frozen=True)
class Placed:
    """A run in words, and its trajectories."""

    words: str
    trajectories: frozenset[str]
    steps: tuple[Step, ...]


def exchange_of(run: list[Sent], index: int, name: str) -> tuple[Exchange, bytes]:
    """A request as the gateway records it, and its key."""
    sent = run[index]
    path, _, query = sent.path.partition("?")
    identity = identify("acme", ROOT, route.split(path), CIMultiDict(sent.headers), sent.data)
    said = answered(run, index) or said_nothing_more(path)
    content_type, body = answer(path, sent.body or {}, said, f"{name}-{index}")
    if sent.is_asked_again:
        content_type, body = SSE_TYPE, b""
    started = START + timedelta(seconds=index)
    exchange = Exchange(
        event_id=f"event-{name}-{index}",
        tenant_id="acme",
        step_id=f"{name}-{index}",
        trajectory_id=identity.trajectory_id,
        trajectory_source=identity.trajectory_source,
        agent_id=identity.agent_id,
        method=sent.method,
        path=path,
        query=query,
        request_headers=headers.for_record(list(sent.headers)),
        request_body=sent.data,
        response_headers=(Header(name="content-type", value=content_type),),
        response_body=body if sent.method == "POST" else b"",
        status=502 if sent.is_asked_again else 200,
        outcome=Outcome.UPSTREAM_ERROR if sent.is_asked_again else Outcome.COMPLETE,
        started_at=started,
        ended_at=started + timedelta(milliseconds=500),
    )
    return exchange, identity.kafka_key


async def place(run: list[Sent], name: str, folder: Path) -> Placed:
    """Handle a run as redaction does, with the time between its calls."""
    bus, clock = memory_bus(), ManualClock(START)
    lane = make_lane(bus, folder, clock=clock)
    for index in range(len(run)):
        exchange, key = exchange_of(run, index, name)
        await lane.process([Received(topics.RAW_EVENTS, 0, index, key, encode(exchange))])
        clock.advance(timedelta(seconds=1))
    for _ in run:
        clock.advance(timedelta(seconds=10))
        await lane.process([])
    steps = {step.event_id: step for step in events_of(bus, topics.STEPS)}
    ordered = [steps[f"event-{name}-{index}"] for index in range(len(run))]
    numbers = {step.step_id: number for number, step in enumerate(ordered)}
    words = " ".join(word_of(step, numbers) for step in ordered)
    ids = frozenset(step.trajectory_id for step in ordered if step.trajectory_id)
    return Placed(words, ids, tuple(ordered))


def word_of(step: Step, numbers: dict[str, int]) -> str:
    lineage = step.lineage
    if step.kind is not StepKind.MODEL_CALL:
        return "aside"
    if lineage.attempt_of is not None:
        return f"={numbers[lineage.attempt_of]}"
    parent = lineage.parent_step_id
    word = "root" if parent is None else str(numbers[parent])
    branch = "sub" if lineage.subagent_id is not None else lineage.branch
    assert lineage.subagent_id in (None, lineage.branch), "a subagent is a branch"
    return f"{word}:{branch}" if branch else word


@pytest.fixture(scope="module")
def recorded(shared_data: Path) -> dict[str, list[Sent]]:
    found = runs(shared_data / "requests")
    return {name: [s for s in run if not s.is_upgrade] for name, run in found.items()}


@pytest.mark.parametrize("name", EXPECTED)
async def test_each_call_of_a_client_finds_its_place(
    recorded: dict[str, list[Sent]], name: str, tmp_path: Path
) -> None:
    placed = await place(recorded[name], name, tmp_path)
    assert placed.words == EXPECTED[name]
    assert not _NOT_UNDERSTOOD & {gap.reason for step in placed.steps for gap in step.gaps}
    assert len(placed.trajectories) == SEVERAL.get(name, 1)
