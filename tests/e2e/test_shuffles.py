"""The same events in three arrival orders through the running processors give the same tables."""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from infra.demo.checksums import Checksum, checksums
from infra.demo.conversations import generate
from infra.demo.settle import num_unread
from infra.demo.stage import Stage
from infra.local.control import ask
from infra.replay.plan import INPUTS
from infra.replay.run import produce
from infra.store import Reader, open_reader
from schemas import topics
from schemas.atdp.types import Exchange, Feedback, FeedbackTarget
from schemas.bus import Record
from schemas.codec import encode
from streams.sink.store import open_client
from tests.e2e.conftest import stage_with
from tests.unit.redaction_processor.captures import START, calls_of, record

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PROCESSORS = ["sink", "assembly", "redaction"]
SETTINGS = {
    "HEADRACE_ASSEMBLY__IDLE_SECONDS": "1",
    "HEADRACE_ASSEMBLY__TICK_SECONDS": "1",
    "HEADRACE_ASSEMBLY__SETTLE_SECONDS": "1",
    "HEADRACE_REDACTION__TIER": "regex",
    # Longer than the whole shuffle takes, so that no call gives up on the call before it.
    "HEADRACE_REDACTION__HOLD_SECONDS": "120",
}
MAX_WAIT_SECONDS = 120.0
#: Every third conversation of the generator has an opening of its own; of equal openings it is
#: open which call extends which.
UNIQUE = [talk for index, talk in enumerate(generate(5, 45)) if index % 3 == 0]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("shuffles") / "stack"
    with stage_with(folder, [], SETTINGS) as running:
        yield running


def test_three_shuffles_give_the_same_tables(stage: Stage) -> None:
    events = [*captures(), *feedback()]
    seen: list[tuple[Checksum, ...]] = []
    with open_reader(stage.settings.data_dir) as reader:
        for seed in range(3):
            start_anew(stage)
            shuffled = list(events)
            random.Random(seed).shuffle(shuffled)
            produce(stage.bus, shuffled)
            wait_until_closed(stage, reader)
            seen.append(checksums(reader))
            assert [table.num_rows > 0 for table in seen[-1]] == [True, True, True]
    assert seen[0] == seen[1] == seen[2]


def captures() -> list[Record]:
    """Every call of every conversation, as raw records keyed as the gateway keys them."""
    records = []
    for number, talk in enumerate(UNIQUE):
        for turn, call in enumerate(calls_of(talk.messages, str(number))):
            began = START + timedelta(minutes=number, seconds=turn)
            moved = replace(call, started_at=began, ended_at=began + timedelta(milliseconds=500))
            records.append(as_record(moved))
    return records


def as_record(call: Exchange) -> Record:
    keyed = record(call, 0)
    return Record(topics.RAW_EVENTS, keyed.key, keyed.value)


def feedback() -> list[Record]:
    """One reward a conversation, by step or response id; some doubled, revised or retracted."""
    records = []
    for number, talk in enumerate(UNIQUE):
        last = calls_of(talk.messages, str(number))[-1].step_id
        by_step = FeedbackTarget(step_id=last)
        by_response = FeedbackTarget(response_id=last.replace("step-", "chatcmpl-"))
        given = Feedback(
            reward_id=f"reward-{number}",
            tenant_id="acme",
            target=by_step if number % 2 else by_response,
            name="resolved",
            value=talk.reward,
            final=number % 4 == 0,
            occurred_at=START + timedelta(hours=1, minutes=number),
            received_at=START + timedelta(hours=1, minutes=number),
        )
        posts = [given, given] if number % 3 == 0 else [given]
        if number % 5 == 0:
            posts.append(replace(given, revision=2, value=1.0 - talk.reward))
        if number % 7 == 0:
            posts.append(replace(given, revision=3, value=None, retract=True))
        key = f"target-{number}".encode()
        records += [Record(topics.RAW_EVENTS, key, encode(post)) for post in posts]
    return records


def start_anew(stage: Stage) -> None:
    """Empty topics, state and tables under the same stack."""
    data_dir, admin = stage.settings.data_dir, stage.bus.admin()
    ask(data_dir, "stop-child", PROCESSORS)
    wiped = [t for t in topics.all_topics() if t.name not in (topics.KEYS, topics.REPLAYS)]
    admin.delete_topics([topic.name for topic in wiped])
    kafka = stage.settings.kafka
    admin.create_topics(wiped, kafka.num_partitions, kafka.replication_factor)
    for group in topics.GROUPS:
        partitions = {t: admin.topics()[t] for t in INPUTS[group]}
        admin.commit(group, {(t, p): 0 for t, n in partitions.items() for p in range(n)})
    truncate(stage, ["steps", "rewards", "trajectories", "samples"])
    ask(data_dir, "start-child", PROCESSORS[::-1])


def truncate(stage: Stage, tables: Sequence[str]) -> None:
    client = open_client(stage.settings)
    try:
        for table in tables:
            client.command(f"TRUNCATE TABLE headrace.{table}_log")
    finally:
        client.close()


def wait_until_closed(stage: Stage, reader: Reader) -> None:
    """All closed, all rewards matched, and nothing on its way in two looks in a row: a record may
    pass from one processor to the next between the questions of a single look."""
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    pause = threading.Event()
    num_quiet = 0
    while num_quiet < 2:
        assert time.monotonic() < deadline, "the shuffle did not settle in time"
        pause.wait(1.0)
        settled = num_settled(reader) == 2 * len(UNIQUE) and num_unread(stage.bus) == 0
        num_quiet = num_quiet + 1 if settled else 0


def num_settled(reader: Reader) -> int:
    """Closed trajectories and rewards that found their step."""
    (closed,) = reader.rows(
        "SELECT countIf(closed_at IS NOT NULL AND num_rewards <= 1) AS n FROM trajectories"
    )
    (matched,) = reader.rows("SELECT countIf(trajectory_id != '') AS n FROM rewards")
    return int(closed["n"]) + int(matched["n"])


def test_the_events_hold_what_the_comparison_is_about() -> None:
    openings = [tuple(map(str, talk.messages[:2])) for talk in UNIQUE]
    assert len(set(openings)) == len(openings)
    assert len(captures()) > 3 * len(UNIQUE) / 2
