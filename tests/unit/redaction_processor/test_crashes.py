"""A process that dies between two steps of durability handles the same records again.

Whatever had been written by then, the second processing says what the first one said.
"""

import copy
from pathlib import Path
from typing import Any

import pytest

from schemas import topics
from schemas.atdp.types import Exchange, Feedback, FeedbackTarget
from tests.unit.redaction_processor.captures import START, calls_of, exchange, record
from tests.unit.redaction_processor.parts import Redaction
from tests.unit.runtime_harness import DictTable

MAIL = "jane.roe@example.com"
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": f"I am {MAIL}"}, {"role": "assistant", "content": "hello"},
    {"role": "user", "content": "again"}, {"role": "assistant", "content": "hello"},
    {"role": "user", "content": "again"}, {"role": "assistant", "content": "hello"},
]  # fmt: skip


def feedback(name: str, **target: str) -> Feedback:
    return Feedback(
        reward_id=name, tenant_id="acme", target=FeedbackTarget(**target), name="resolved",
        value=1.0, occurred_at=START, received_at=START,
    )  # fmt: skip


def story() -> list[Exchange | Feedback]:
    """Two equal conversations, attempts under one key, feedback before and after its step."""
    first, second = calls_of(MESSAGES, "a"), calls_of(MESSAGES, "b")
    attempts = [
        exchange(MESSAGES[:1], MESSAGES[1], f"try-{n}", idempotency_key="k", step_id="step-try")
        for n in range(2)
    ]
    return [
        feedback("early", step_id="step-a-3"), first[0], second[0], *attempts, first[1],
        feedback("late", response_id="chatcmpl-a-3"), second[1], first[2], second[2],
    ]  # fmt: skip


def said(redaction: Redaction) -> list[tuple[str, Any]]:
    names = (topics.STEPS, topics.REWARDS, topics.RAW_ALIASES)
    return [(name, event) for name in names for event in redaction.events(name)]


@pytest.mark.parametrize("dies_at", range(10))
async def test_dying_before_state_is_written_repeats_the_same_words(
    redaction: Redaction, dies_at: int
) -> None:
    received = [record(event, offset) for offset, event in enumerate(story())]
    await redaction.send(*received[:dies_at])
    before = copy.deepcopy(redaction.tables)
    await redaction.send(received[dies_at])
    once = said(redaction)
    for table, old in zip(redaction.tables, before, strict=True):
        table.rows = old.rows
    redaction.restart()
    await redaction.send(received[dies_at])
    assert all(entry in once for entry in said(redaction) if entry[0] != topics.REWARDS)
    await redaction.send(*received[dies_at + 1 :])
    steps = redaction.events(topics.STEPS)
    assert {
        len({repr(s) for s in steps if s.step_id == i}) for i in {s.step_id for s in steps}
    } == {1}
    matched = {r.reward_id: r.step_id for r in redaction.events(topics.REWARDS) if r.trajectory_id}
    assert matched == {"early": "step-a-3", "late": "step-a-3"}


class Logged(DictTable):
    """A table that remembers its changelog."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, bytes | None]] = []

    def apply(self, key: str, value: bytes | None) -> None:
        self.log.append((key, value))
        super().apply(key, value)


@pytest.mark.parametrize("batch_size", [1, 3, 20])
async def test_dying_between_two_rows_of_the_changelog_decides_the_same(
    tmp_path: Path, batch_size: int
) -> None:
    received = [record(event, offset) for offset, event in enumerate(story())]
    whole = Redaction(tmp_path)
    whole.tables = (Logged(), Logged())
    whole.restart()
    ends = [0]
    for start in range(0, len(received), batch_size):
        await whole.send_batch(received[start : start + batch_size])
        ends.append(len(whole.tables[0].log))
    expected = {s.step_id: s for s in whole.events(topics.STEPS)}
    for num_rows in range(len(whole.tables[0].log) + 1):
        died = Redaction(tmp_path)
        for key, value in whole.tables[0].log[:num_rows]:
            died.tables[0].apply(key, value)
        num_batches = sum(end <= num_rows for end in ends) - 1
        for start in range(num_batches * batch_size, len(received), batch_size):
            await died.send_batch(received[start : start + batch_size])
        for step in died.events(topics.STEPS):
            assert step.trajectory_id == expected[step.step_id].trajectory_id, num_rows
            assert step.observation == expected[step.step_id].observation
            assert step.gaps == expected[step.step_id].gaps
