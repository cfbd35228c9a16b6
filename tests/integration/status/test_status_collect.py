"""What is behind and what waits, asked of a real broker and a real store."""

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from infra.cli.main import make_app
from infra.status.collect import collect
from schemas import topics
from schemas.atdp.internal import PartitionOffset, Replay
from schemas.bus import Record, deliver
from schemas.bus.kafka import KafkaBus
from schemas.clock import SystemClock
from schemas.codec import encode
from schemas.settings import Settings, load_settings
from tests.services import ClickHouseEndpoint

pytestmark = pytest.mark.integration

NUM_RECORDS = 30


@pytest.fixture
def settings(
    kafka: str, clickhouse: ClickHouseEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """A deployment of its own on the shared broker, with work for assembly and sink."""
    (tmp_path / "password").write_text(clickhouse.password)
    for name, value in {
        "DATA_DIR": str(tmp_path),
        "KAFKA__BOOTSTRAP_SERVERS": kafka,
        "KAFKA__TOPIC_PREFIX": f"status-{tmp_path.name.replace('_', '-')}.",
        "CLICKHOUSE__HOST": clickhouse.host,
        "CLICKHOUSE__PORT": str(clickhouse.port),
        "CLICKHOUSE__USER": clickhouse.user,
        "CLICKHOUSE__PASSWORD_FILE": str(tmp_path / "password"),
    }.items():
        monkeypatch.setenv(f"HEADRACE_{name}", value)
    made = load_settings()
    bus = KafkaBus.from_settings(made.kafka)
    wanted = [t for t in topics.all_topics() if t.name in (topics.STEPS, topics.REPLAYS)]
    admin = bus.admin()
    admin.create_topics(wanted, 2, 1)
    producer = bus.producer("status")
    replay = Replay(
        group=topics.SINK,
        epoch=1,
        committed_before=(PartitionOffset(topic=topics.STEPS, partition=0, offset=25),),
        started_at=SystemClock().now(),
    )
    steps = [Record(topics.STEPS, b"k", b"v", partition=0) for _ in range(NUM_RECORDS)]
    asyncio.run(deliver(producer, [*steps, Record(topics.REPLAYS, b"sink", encode(replay))]))
    producer.close()
    admin.commit(topics.ASSEMBLY, {(topics.STEPS, 0): NUM_RECORDS})
    admin.commit(topics.SINK, {(topics.STEPS, 0): 10})
    return made


def test_lag_is_told_by_group_topic_and_partition(settings: Settings) -> None:
    report = collect(settings, None, sample_seconds=0.2)
    assert [(part.name, part.healthy) for part in report.parts] == [
        ("kafka", True), ("clickhouse", True)
    ]  # fmt: skip
    assert [(g.group, g.num_workers, g.behind) for g in report.groups] == [
        (topics.REDACTION, 0, 0), (topics.ASSEMBLY, 0, 0), (topics.SINK, 0, NUM_RECORDS - 10)
    ]  # fmt: skip
    [behind] = [lag for lag in report.lags if lag.behind]
    assert (behind.group, behind.topic, behind.partition) == (topics.SINK, topics.STEPS, 0)
    assert (behind.committed, behind.end) == (10, NUM_RECORDS)
    assert behind.waiting_since is not None
    assert abs((SystemClock().now() - behind.waiting_since).total_seconds()) < 300
    assert (behind.per_second, behind.until) == (0.0, None)
    assert report.replays[0].startswith("streams.sink replays: 15 records are left")
    assert report.waits[-1].startswith("streams.sink has no worker while 20 records wait")


def test_the_command_prints_it_for_people_and_programs(settings: Settings) -> None:
    shown = CliRunner().invoke(make_app(), ["status", "--json", "--sample", "0"])
    found = json.loads(shown.stdout)
    assert shown.exit_code == 1
    assert (found["running"], found["healthy"]) == (False, False)
    [behind] = [lag for lag in found["lags"] if lag["behind"]]
    assert behind["waiting_since"].endswith("+00:00")
    table = CliRunner().invoke(make_app(), ["status", "--sample", "0"])
    assert table.exit_code == 1
    assert "trajectory.steps.v1 0" in table.stdout
    assert "has no worker" in table.stdout
    assert "trajectory.steps.v1 1" not in table.stdout
    everything = CliRunner().invoke(make_app(), ["status", "--all", "--sample", "0"])
    assert "trajectory.steps.v1 1" in everything.stdout


def test_a_store_that_is_away_is_told(settings: Settings, unused_tcp_port: int) -> None:
    away = settings.clickhouse.model_copy(update={"port": unused_tcp_port})
    report = collect(settings.model_copy(update={"clickhouse": away}), None, sample_seconds=0)
    assert any(
        f"The store at {away.host}:{unused_tcp_port} does not answer" in w
        and "The sink waits with 20 records." in w
        for w in report.waits
    )


def test_a_broker_that_is_away_is_told(settings: Settings, unused_tcp_port: int) -> None:
    away = settings.kafka.model_copy(update={"bootstrap_servers": f"127.0.0.1:{unused_tcp_port}"})
    report = collect(settings.model_copy(update={"kafka": away}), None, sample_seconds=0)
    assert report.groups == ()
    assert report.waits[0].startswith(f"Kafka at 127.0.0.1:{unused_tcp_port} does not answer")
