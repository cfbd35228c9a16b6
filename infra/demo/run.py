"""The demo from the first call to the last checksum, on a stage that is already up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.demo.checksums import Checksum, checksums
from infra.demo.conversations import Conversation
from infra.demo.ledger import Call, Ledger
from infra.demo.phases import Progress
from infra.demo.places import (
    Found,
    look_at_logs,
    look_at_metrics,
    look_at_tables,
    look_at_topics,
)
from infra.demo.player import Player
from infra.demo.settle import settle
from infra.demo.stage import TENANT, Stage
from infra.demo.verify import Evidence, Verdict
from infra.demo.visibility import VisibilityPoller, percentile
from infra.store import open_reader


@dataclass(frozen=True)
class Looked:
    """How much was searched for leaks."""

    num_records: int
    num_rows: int
    num_logs: int
    num_metric_lines: int


@dataclass(frozen=True)
class Played:
    """All that the demo found out."""

    ledger: Ledger
    evidence: Evidence
    verdict: Verdict
    found: Found
    looked: Looked
    visible_p95_seconds: float | None
    before: tuple[Checksum, ...]
    after: tuple[Checksum, ...]
    play_seconds: float
    must_not_leak: frozenset[str]

    @property
    def replay_checksum_equal(self) -> bool:
        """Whether the tables hold the same after the replay."""
        return self.before == self.after and all(item.num_rows > 0 for item in self.before)

    def numbers(self, seconds: float) -> dict[str, Any]:
        """The line of `--json`. Names and order are fixed: users and checks rely on them."""
        p95 = self.visible_p95_seconds
        return {
            "calls": len(self.ledger.calls),
            "steps": self.evidence.num_steps,
            "lost": self.verdict.num_lost,
            "duplicated": self.verdict.num_duplicated,
            "dead_lettered": self.evidence.num_dead_lettered,
            "quarantined": self.evidence.num_quarantined,
            "rewards_sent": self.ledger.num_rewards,
            "rewards_joined": self.verdict.num_rewards_joined,
            "unmatched": self.verdict.num_unmatched,
            "planted": self.ledger.num_planted,
            "leaked": self.found.num_leaked,
            "leaked_by_kind": self.found.by_kind,
            "visible_p95_seconds": None if p95 is None else round(p95, 3),
            "replay_checksum_equal": self.replay_checksum_equal,
            "seconds": round(seconds, 1),
        }


@dataclass(frozen=True)
class Script:
    """What is played and how."""

    conversations: Sequence[Conversation]
    seed: int
    concurrency: int
    #: Kinds of which not one value may be found later; of the others as few as can be.
    must_not_leak: frozenset[str]


Report = Callable[[str, int, int], None]
Replay = Callable[[Path, Report], object]
"""Resets redaction, assembly and sink of the stack in that folder and runs them from the start
into wiped tables; returns when they caught up. Reports stage, records done, records in all."""


def play(stage: Stage, script: Script, replay: Replay, progress: Progress) -> Played:
    """Calls, rewards, comparison, search for leaks, replay, comparison again."""
    data_dir = stage.settings.data_dir
    started = time.monotonic()
    poller = VisibilityPoller(lambda: open_reader(data_dir))
    poller.start()
    try:
        ledger = _played(stage, script, poller, progress)
        play_seconds = time.monotonic() - started
        with open_reader(data_dir) as reader:
            num_expected = len(ledger.calls) + ledger.num_rewards
            progress.begin("waiting for rows and rewards", num_expected)
            evidence, verdict = settle(reader, stage.bus, ledger, TENANT, progress.remaining)
            progress.end()
    finally:
        poller.stop()
    with open_reader(data_dir) as reader:
        found, looked = _searched(stage, ledger, progress)
        before = checksums(reader)
        replay(data_dir, stages_of(progress))
        progress.end()
        progress.begin("waiting for the replayed rows", num_expected)
        settle(reader, stage.bus, ledger, TENANT, progress.remaining)
        progress.end()
        after = checksums(reader)
    p95 = percentile(poller.seconds, 0.95)
    return Played(
        ledger=ledger,
        evidence=evidence,
        verdict=verdict,
        found=found,
        looked=looked,
        visible_p95_seconds=p95,
        before=before,
        after=after,
        play_seconds=play_seconds,
        must_not_leak=script.must_not_leak,
    )


def stages_of(progress: Progress) -> Report:
    """A report that makes each stage of the replay a phase of the progress."""
    shown: list[str] = []

    def report(stage: str, done: int, total: int) -> None:
        if stage not in shown:
            if shown:
                progress.end()
            shown.append(stage)
            progress.begin(f"replay: {stage}", total or None)
        progress.remaining(total - done)

    return report


def _played(stage: Stage, script: Script, poller: VisibilityPoller, progress: Progress) -> Ledger:
    def on_call(call: Call) -> None:
        poller.expect(call)
        progress.advance()

    player = Player(
        stage.target,
        script.conversations,
        seed=script.seed,
        concurrency=script.concurrency,
        on_call=on_call,
    )

    async def both() -> None:
        num_calls = sum(len(talk.turns) for talk in script.conversations)
        progress.begin("playing conversations", num_calls)
        await player.play()
        progress.end()
        progress.begin("sending late rewards", player.num_late_posts)
        await player.send_late_rewards(progress.advance)
        progress.end()

    asyncio.run(both())
    return player.ledger


def _searched(stage: Stage, ledger: Ledger, progress: Progress) -> tuple[Found, Looked]:
    found = Found(ledger.planted)
    progress.begin("searching for planted private data", None)
    with open_reader(stage.settings.data_dir) as reader:
        looked = Looked(
            num_records=look_at_topics(stage.bus, found),
            num_rows=look_at_tables(reader, found),
            num_logs=look_at_logs(stage.settings.data_dir, found),
            num_metric_lines=look_at_metrics(stage.target.gateway_url, found),
        )
    progress.end()
    return found, looked
