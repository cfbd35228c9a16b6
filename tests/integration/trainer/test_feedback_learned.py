"""From `POST /v1/feedback` to weights: a demonstration and a preference, all real between them.

    call ─▶ gateway ─▶ redaction ─▶ assembly ─▶ batching ─▶ trainer ─▶ versions
    feedback ─┘
Each signal comes twice, about two calls; what was learned of the first shows in the loss of the
second.
"""

import asyncio
import json
import math
import sys
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest

from infra.demo.learning.course import Board
from schemas import topics
from schemas.bus.access import KafkaAccess
from schemas.bus.kafka import KafkaBus
from schemas.settings import load_settings
from schemas.weights.versions import read_history
from tests.integration.gateway.harness import CHAT, Connection, Running, ScriptedUpstream, whole
from tests.integration.gateway.harness import running as gateway_running
from tests.services import running
from tests.tiny_model import first_version, write_model

pytestmark = pytest.mark.integration

POLICY = "main"
TIMEOUT_SECONDS = 120.0
PROCESSES = ("streams.redaction", "streams.assembly", "streams.batching", "trainer")
PROOF = (b"x-headrace-policy: main", b"x-headrace-policy-version: 1",
         b"x-headrace-weights-root: " + b"ab" * 32)  # fmt: skip


async def engine(connection: Connection) -> None:
    """An engine that answers `no`: in the tokens of the tiny model a byte is a token."""
    prompt, answer = list(b"user: may I\nassistant>"), list(b"no")
    tokens = [{"token": chr(t), "logprob": -1.5, "bytes": [t], "top_logprobs": []} for t in answer]
    choice = {
        "index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "no"},
        "token_ids": answer, "logprobs": {"content": tokens},
    }  # fmt: skip
    body = {
        "id": f"chatcmpl-{connection.number}", "object": "chat.completion", "model": "m",
        "choices": [choice], "prompt_token_ids": prompt,
    }  # fmt: skip
    await connection.send(whole(json.dumps(body).encode(), *PROOF))


def environment(servers: str, prefix: str, folder: Path, python: Path) -> dict[str, str]:
    return {
        "HEADRACE_DATA_DIR": str(folder),
        "HEADRACE_KAFKA__BOOTSTRAP_SERVERS": servers,
        "HEADRACE_KAFKA__TOPIC_PREFIX": prefix,
        "HEADRACE_KAFKA__NUM_PARTITIONS": "1",
        "HEADRACE_WORKER_NAME": "test",
        "HEADRACE_REDACTION__TIER": "regex",
        "HEADRACE_ASSEMBLY__TICK_SECONDS": "0.3",
        "HEADRACE_ASSEMBLY__SETTLE_SECONDS": "0.2",
        "HEADRACE_BATCHING__BATCH_SEQUENCES": "1",
        "HEADRACE_TRAINER__POLICY": POLICY,
        "HEADRACE_TRAINER__MODEL": str(folder / "model"),
        "HEADRACE_TRAINER__PYTHON": str(python),
        "HEADRACE_TRAINER__LEARNING_RATE": "1e-3",
        "HEADRACE_TRAINER__MIN_TRAJECTORIES": "1",
        "OMP_NUM_THREADS": "1",
    }


async def _ask(gateway: Running, number: int) -> str:
    """One call of a trajectory of its own; the id of its response."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "may I"}]})
    named = {"x-headrace-trajectory-id": f"t-{number}"}
    async with gateway.post(CHAT, body, **named) as answer:
        assert answer.status == 200
        return str((await answer.json())["id"])


async def _rate(gateway: Running, responses: list[str]) -> None:
    kinds = ("demonstration", "preference")
    items = [
        {"target": {"response_id": response}, "name": "corrected", "kind": kinds[number % 2],
         "text": "yes, you may", "final": True}
        for number, response in enumerate(responses)
    ]  # fmt: skip
    async with gateway.post("/v1/feedback", json.dumps(items)) as answer:
        assert answer.status < 300, await answer.text()


async def _steps(
    board: Board, number: int, logs: list[Path], bus: KafkaBus
) -> list[dict[str, float]]:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while len(found := board.lines()) < number:
        assert time.monotonic() < deadline, _state(logs, bus)
        await asyncio.sleep(0.1)
    return found


def _state(logs: list[Path], bus: KafkaBus) -> str:
    """How far what was sent has come, and what was said on the way."""
    path = (topics.RAW_EVENTS, topics.STEPS, topics.REWARDS, topics.SAMPLES, topics.DECISIONS,
            topics.MICROBATCHES)  # fmt: skip
    admin = bus.admin()
    ends = {where: end for where, (_, end) in admin.extents(path).items()}
    admin.close()
    return "\n".join([str(ends), *(log.read_text()[-1500:] for log in logs)])


async def test_a_corrected_answer_and_a_better_one_change_the_weights(
    kafka: str, engine_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = f"feedback-{uuid.uuid4().hex[:8]}."
    bus = KafkaBus(KafkaAccess(kafka, prefix=prefix))
    admin = bus.admin()
    admin.create_topics(list(topics.all_topics()), 1, 1)
    admin.close()
    write_model(tmp_path / "model", first_version())
    for name, value in environment(kafka, prefix, tmp_path, engine_python).items():
        monkeypatch.setenv(name, value)
    upstream = ScriptedUpstream(engine)
    with ExitStack() as stack:
        async with gateway_running(
            tmp_path, bus, upstream, may_be_learned_from=True, asks_tokens=True
        ) as gateway:
            monkeypatch.setenv("HEADRACE_TRAINING_ELIGIBLE_TENANTS", json.dumps([gateway.tenant]))
            logs = [tmp_path / f"{name}.log" for name in PROCESSES]
            for name, log in zip(PROCESSES, logs, strict=True):
                stack.enter_context(running([sys.executable, "-m", name], log))
            await _rate(gateway, [await _ask(gateway, number) for number in range(4)])
            board = Board(tmp_path / "trainer" / POLICY / "steps.jsonl")
            steps = await _steps(board, 4, logs, bus)
    assert load_settings().trainer.dpo_beta == 0.1
    assert not [step for step in steps if "stopped" in step]
    shown = [step["loss"] for step in steps if step["num_sequences"] == 1]
    pairs = [step["loss"] for step in steps if step["num_pairs"] == 1]
    assert (len(shown), len(pairs)) == (2, 2)
    assert shown[1] < shown[0]  # the corrected answer is likelier than it was
    assert pairs[1] < pairs[0]  # the margin of the better one over the given one grew
    assert pairs[0] < math.log(2) + 0.05
    roots = {v: m.root for v, m in read_history(bus, POLICY).versions.items()}
    assert len(set(roots.values())) == len(roots) == 5
