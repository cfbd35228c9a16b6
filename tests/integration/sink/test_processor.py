"""The running sink between a real broker and a real store: kills, poison, a store that is away."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas import topics
from schemas.atdp.internal import AuditEvent
from schemas.atdp.weights import WeightsManifest
from schemas.bus import Record, deliver, transact
from schemas.bus.kafka import KafkaBus
from schemas.bus.lag import standings
from schemas.codec import encode
from schemas.errors import ConfigError, TransientError
from schemas.ids import trajectory_key, uuid7
from schemas.settings import Settings
from streams.sink.store import ClickHouseStore, open_client
from tests.integration.sink.conftest import store_settings
from tests.ports import free_ports
from tests.ring_events import manifest
from tests.services import ClickHouseEndpoint, running, running_clickhouse, wait_for
from tests.sink_events import NOON, day, reward, rollout, step

pytestmark = pytest.mark.integration

TIMEOUT_SECONDS = 120.0
_TOPICS = {
    "Step": topics.STEPS,
    "Reward": topics.REWARDS,
    "TrajectorySummary": topics.SUMMARIES,
    "Sample": topics.SAMPLES,
    "DeadLetter": topics.dead_letter_topic(topics.RAW_EVENTS),
    "Quarantined": topics.QUARANTINE,
    "AuditEvent": topics.AUDIT,
    "WeightsManifest": topics.WEIGHTS_VERSIONS,
    "Proposal": topics.WEIGHTS_PROMOTIONS,
    "ProposalAnswer": topics.WEIGHTS_PROMOTIONS,
    "RingAssignment": topics.WEIGHTS_PROMOTIONS,
    "WeightsAck": topics.WEIGHTS_ACKS,
}


def record_of(event: Any) -> Record:
    tenant, trajectory = getattr(event, "tenant_id", ""), getattr(event, "trajectory_id", None)
    key = trajectory_key(tenant, trajectory) if trajectory else b"id"
    return Record(_TOPICS[type(event).__name__], key, encode(event))


class Bench:
    """One database, one consumer group, a broker that other tests use as well."""

    def __init__(self, kafka: str, settings: Settings, directory: Path) -> None:
        self.settings = settings
        self.log = directory / "sink.log"
        bus = KafkaBus(kafka)
        admin = bus.admin()
        admin.create_topics(list(topics.all_topics()), 4, 1)
        where = settings.clickhouse
        self.environment = {
            "HEADRACE_DATA_DIR": str(directory),
            "HEADRACE_KAFKA__BOOTSTRAP_SERVERS": kafka,
            "HEADRACE_KAFKA__NUM_PARTITIONS": str(admin.topics()[topics.STEPS]),
            "HEADRACE_CLICKHOUSE__HOST": where.host,
            "HEADRACE_CLICKHOUSE__PORT": str(where.port),
            "HEADRACE_CLICKHOUSE__USER": where.user,
            "HEADRACE_CLICKHOUSE__PASSWORD_FILE": str(where.password_file),
            "HEADRACE_CLICKHOUSE__DATABASE": where.database,
            "HEADRACE_SINK__MAX_BATCH_ROWS": "200",
        }
        admin.close()
        self._producer = bus.producer("test")

    @contextmanager
    def sink(self) -> Iterator[Any]:
        """`python -m streams.sink` for the length of the block."""
        with running([sys.executable, "-m", "streams.sink"], self.log) as process:
            yield process

    def publish(self, *records: Record) -> None:
        asyncio.run(deliver(self._producer, records))

    def count(self, relation: str, tenant: str) -> int:
        """Rows of a tenant by a plain SELECT; 0 while the store or its tables are not there."""
        try:
            store = ClickHouseStore(
                open_client(self.settings, database=self.settings.clickhouse.database)
            )
            sql = f"SELECT count() FROM {relation} WHERE tenant_id = {{tenant:String}}"
            ((found,),) = store.rows(sql, {"tenant": tenant})
        except (TransientError, ConfigError):
            return 0
        store.close()
        return int(found)

    def of_policy(self, relation: str, policy: str) -> int:
        """Rows of a policy."""
        found = self.rows(f"SELECT count() FROM {relation} WHERE policy = '{policy}'")
        return int(found[0][0]) if found else 0

    def wait_for_policy(self, process: Any, relation: str, policy: str, number: int) -> None:
        self.wait(process, lambda: self.of_policy(relation, policy) == number)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """The answer; nothing while the store or its tables are not there."""
        try:
            store = ClickHouseStore(
                open_client(self.settings, database=self.settings.clickhouse.database)
            )
            found = [tuple(row) for row in store.rows(sql)]
        except (TransientError, ConfigError):
            return []
        store.close()
        return found

    def wait(self, process: Any, condition: Callable[[], bool]) -> None:
        wait_for(condition, process, self.log, TIMEOUT_SECONDS)


@pytest.fixture
def bench(kafka: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(kafka, settings, tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def test_every_kind_of_event_becomes_a_row_and_poison_a_dead_letter(bench: Bench) -> None:
    owner = f"kinds-{uuid7()}"
    events = [record_of(event) for event in day(owner)]
    poison = [
        Record(topics.STEPS, b"poison", value)
        for value in (b"\0garbage", b"\0\0\0\0\1", b"\xff\xfe", b"", b'{"type": "step"}')
    ]
    wrong_topic = Record(topics.REWARDS, b"x", encode(_audit(owner)))
    with bench.sink() as process:
        bench.publish(*poison, *events, wrong_topic, record_of(step(owner, "t-0", 77)))
        bench.wait(process, lambda: bench.count("steps", owner) == 24)
        bench.wait(process, lambda: bench.count("rewards", owner) == 8)
        bench.wait(process, lambda: bench.count("trajectories", owner) == 5)
        bench.wait(process, lambda: bench.count("samples", owner) == 5)
        bench.wait(process, lambda: bench.count("dead_letters", owner) == 1)
        bench.wait(process, lambda: bench.count("quarantined_events", owner) == 1)
        bench.wait(process, lambda: len(_sink_letters(bench)) >= len(poison))
    reasons = {reason for reason, _, _ in _sink_letters(bench)}
    assert {"unknown_schema", "undecodable", "wrong_type"} <= reasons
    assert all(topic and offset >= 0 for _, topic, offset in _sink_letters(bench))


def _audit(owner: str) -> AuditEvent:
    return AuditEvent(audit_id=owner, actor="a", action="b", subject="c", occurred_at=NOON)


def _sink_letters(bench: Bench) -> list[tuple[str, str, int]]:
    where = bench.settings
    store = ClickHouseStore(open_client(where, database=where.clickhouse.database))
    rows = store.rows(
        "SELECT reason, source_topic, source_offset FROM dead_letters "
        f"WHERE `group` = 'streams.sink' AND source_topic = '{topics.STEPS}'"
    )
    store.close()
    return [(str(reason), str(topic), int(offset)) for reason, topic, offset in rows]


def test_a_kill_in_the_middle_of_a_load_leaves_the_exact_count(bench: Bench) -> None:
    owner = f"kill-{uuid7()}"
    number = 4_000
    records = [record_of(step(owner, f"t-{i // 4}", i % 4)) for i in range(number)]
    with bench.sink() as process:
        bench.publish(*records[: number // 2])
        bench.wait(process, lambda: bench.count("steps", owner) > 0)
        bench.publish(*records[number // 2 :])
        process.kill()
        process.wait()
    assert bench.count("steps", owner) < number
    with bench.sink() as process:
        bench.wait(process, lambda: bench.count("steps", owner) >= number)
        # What was in flight at the kill comes again; a marker behind it shows that it has passed.
        bench.publish(
            *(record_of(step(f"{owner}-end", f"t-{i}")) for i in range(64)),
        )
        bench.wait(process, lambda: bench.count("steps", f"{owner}-end") == 64)
    assert bench.count("steps", owner) == number


def test_nothing_is_lost_while_the_store_is_away(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = f"away-{uuid7()}"
    (port,) = free_ports(1)
    with running_clickhouse(tmp_path, port) as endpoint:
        settings = store_settings(endpoint, tmp_path)
        bench = Bench(kafka, settings, tmp_path)
        for name, value in bench.environment.items():
            monkeypatch.setenv(name, value)
        stack = bench.sink()
        process = stack.__enter__()
        bench.publish(record_of(step(owner)))
        bench.wait(process, lambda: bench.count("steps", owner) == 1)
    try:
        bench.publish(*(record_of(step(owner, "t-1", i)) for i in range(1, 500)))
        bench.publish(*(record_of(reward(owner, f"t-{i}")) for i in range(100)))
        bench.wait(process, lambda: "batch_waits" in bench.log.read_text())
        with running_clickhouse(tmp_path, port):
            bench.wait(process, lambda: bench.count("steps", owner) == 500)
            bench.wait(process, lambda: bench.count("rewards", owner) == 100)
    finally:
        stack.__exit__(None, None, None)


def test_a_start_without_a_store_ends_with_a_sentence(
    bench: Bench, clickhouse: ClickHouseEndpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("not the password")
    monkeypatch.setenv("HEADRACE_CLICKHOUSE__PASSWORD_FILE", str(wrong))
    begun = time.monotonic()
    with bench.sink() as process:
        assert process.wait(timeout=60) == 2
    assert time.monotonic() - begun < 60
    assert "password" in bench.log.read_text()


def test_versions_of_weights_become_rows_and_ends_of_transactions_are_passed(
    bench: Bench, kafka: str
) -> None:
    """Rows of committed manifests alone; the group gets to the ends of the topics."""
    owner = f"weights-{uuid7()}"
    bus = KafkaBus(kafka)
    writer = bus.transactions(owner)
    manifests = [replace(event, policy=owner) for event in map(manifest, (1, 2, 3))]
    writer.begin()
    writer.send(record_of(replace(manifests[0], version=9)), lambda _: None)
    writer.abort()
    transact(writer, [record_of(event) for event in manifests[:2]])
    others = [event for event in rollout() if not isinstance(event, WeightsManifest)]
    with bench.sink() as process:
        bench.publish(*(record_of(replace(event, policy=owner)) for event in others))
        transact(writer, [record_of(manifests[2])])
        for relation, number in (
            ("policy_versions", 3), ("proposals", 1), ("proposal_answers", 1), ("promotions", 2),
            ("acks", 2),
        ):  # fmt: skip
            bench.wait_for_policy(process, relation, owner, number)
        bench.wait(process, lambda: _behind(bus) == 0)
    writer.close()
    versions = bench.rows(f"SELECT version FROM policy_versions WHERE policy = '{owner}'")
    assert sorted(versions) == [(1,), (2,), (3,)]


def _behind(bus: KafkaBus) -> int:
    """Offsets of the topics of versions that the sink has not committed."""
    admin = bus.admin()
    found = standings(admin, topics.SINK, topics.TRANSACTIONAL)
    admin.close()
    return sum(standing.behind for standing in found.values())
