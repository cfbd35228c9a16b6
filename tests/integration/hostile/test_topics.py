"""Poison on every topic: each record becomes a dead letter that says where it lies and why, the
next record is processed, and no process ends."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from schemas import codec, topics
from schemas.atdp.internal import Alias, Tick
from schemas.atdp.types import Header
from schemas.ids import trajectory_key
from tests.integration.hostile.pipeline import NUM_PARTITIONS, Pipeline, Raw, Where, running
from tests.services import ClickHouseEndpoint
from tests.unit.redaction_processor.captures import exchange

pytestmark = pytest.mark.integration

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TICK = codec.encode(Tick(partition=0, at=NOW))
ALIAS = codec.encode(
    Alias(alias="a", tenant_id="acme", step_id="s", trajectory_id="t", recorded_at=NOW)
)
STEP = {
    "type": "step", "step_id": "s", "event_id": "e", "tenant_id": "acme", "trajectory_id": "t",
    "started_at": "2026-01-01T00:00:00Z",
}  # fmt: skip


def step(**changes: object) -> bytes:
    return json.dumps(STEP | changes).encode()


#: What is wrong on any topic, and the reason that its dead letter gives.
BROKEN: list[tuple[bytes | None, str]] = [
    (None, "undecodable"), (b"", "undecodable"), (b"\x00garbage", "unknown_schema"),
    (b"\xff\xfe\x00", "undecodable"), (b"\x01" + TICK[1:], "undecodable"),
    (b"\x00\xff\xff\xff\xff", "unknown_schema"), (b"\x00\x00", "undecodable"),
    (TICK + b"x", "undecodable"), (TICK[:-1], "undecodable"), (ALIAS[:9], "undecodable"),
    (b"[" * 100_000, "undecodable"), (b"{}", "wrong_type"), (b'{"type":["step"]}', "wrong_type"),
    (b"x" * 900_000, "undecodable"), (b'"\\ud800"', "undecodable"),
]  # fmt: skip
#: What is wrong on the raw topic.
WRONG: list[tuple[bytes, str]] = [
    (step(started_at="0001-01-01T00:00:00+14:00"), "wrong_type"),
    (step(started_at="9999-12-31T23:59:59Z"), "wrong_type"),
    (step(started_at="2026-01-01T00:00:00"), "wrong_type"),
    (step(started_at=-1), "wrong_type"), (step(step_id=7), "wrong_type"),
    (step(step_id="a\x00b"), "wrong_type"), (step(trajectory_id="x" * 10_000), "wrong_type"),
    (step(tenant_id="a/b"), "unknown_tenant"), (step(lineage={"step_index": 2**63}), "wrong_type"),
    (step(surprise=1), "wrong_type"), (TICK, "unexpected_event"), (ALIAS, "unexpected_event"),
    (codec.encode(exchange([], None, "x", started_at=datetime(1, 1, 1, tzinfo=UTC))), "wrong_type"),
    (codec.encode(exchange([], None, "y", request_body_uri="sha256:umbrella/" + "0" * 64)),
     "blob_missing"),
    (codec.encode(exchange([], None, "z", request_body=b"no gzip at all",
                           request_headers=(Header(name="content-encoding", value="gzip"),))),
     "undecodable"),
]  # fmt: skip
#: The group that reads each topic and dead-letters what is wrong in it; two read some.
READ_BY_SEVERAL = {topics.STEPS: 2, topics.REWARDS: 2}


@pytest.fixture(scope="module")
def pipeline(
    kafka: str, clickhouse: ClickHouseEndpoint, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pipeline]:
    directory: Path = tmp_path_factory.mktemp("hostile")
    with running(kafka, clickhouse, directory) as made:
        yield made


def poison() -> list[tuple[Raw, str, int]]:
    """Everything that is wrong, in every topic, with the reason and the number of its letters."""
    found: list[tuple[Raw, str, int]] = []
    for topic in topics.DEAD_LETTERED:
        number = READ_BY_SEVERAL.get(topic, 1)
        found += [(Raw(topic, 0, value), reason, number) for value, reason in BROKEN]
    for partition in range(NUM_PARTITIONS):
        raw = [(Raw(topics.RAW_EVENTS, partition, value), why) for value, why in WRONG]
        odd = [
            Raw(topics.RAW_EVENTS, partition, b"{", key=b"\xff" * 500_000),
            Raw(topics.RAW_EVENTS, partition, b"{", headers=[("x", b"\xff" * 100_000)] * 5),
            Raw(topics.RAW_EVENTS, partition, b"{", timestamp_ms=1),
        ]
        found += [(record, reason, 1) for record, reason in raw]
        found += [(record, "undecodable", 1) for record in odd]
    return found


def good(partition: int) -> list[Raw]:
    """A step and a rating of it, behind all that is wrong."""
    name = f"good-{partition}"
    told = step(step_id=name, event_id=name, trajectory_id=name)
    rating = {
        "type": "feedback", "reward_id": f"r-{partition}", "tenant_id": "acme",
        "target": {"step_id": name}, "name": "n", "value": 1.0,
        "occurred_at": "2026-01-01T00:00:00Z", "received_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return [
        Raw(topics.RAW_EVENTS, partition, told, key=trajectory_key("acme", name)),
        Raw(topics.RAW_EVENTS, partition, json.dumps(rating).encode()),
    ]


def test_poison_on_every_topic_is_told_and_stops_nothing(pipeline: Pipeline) -> None:
    wrong = poison()
    where = pipeline.produce([record for record, _, _ in wrong])
    expected = {at: (reason, number) for at, (_, reason, number) in zip(where, wrong, strict=True)}
    odd = [pipeline.produce_odd_header(topics.RAW_EVENTS, p) for p in range(NUM_PARTITIONS)]
    expected |= dict.fromkeys(odd, ("undecodable", 1))
    pipeline.produce([record for p in range(NUM_PARTITIONS) for record in good(p)])
    wanted = (NUM_PARTITIONS, NUM_PARTITIONS, NUM_PARTITIONS, sum(n for _, n in expected.values()))
    pipeline.wait_for(lambda: present(pipeline) == wanted, lambda: f"{present(pipeline)}/{wanted}")
    told = pipeline.rows(
        "SELECT source_topic, source_partition, source_offset, any(reason), count()"
        " FROM dead_letters GROUP BY ALL"
    )
    assert {(row[0], row[1], row[2]): (row[3], row[4]) for row in told} == expected
    assert odd[0] in read_by_hand(pipeline), "the tools read what the workers read"
    for group in pipeline.processes:
        assert "stopped_by_bug" not in pipeline.log(group)


def read_by_hand(pipeline: Pipeline) -> set[Where]:
    """Where every record of the raw topic's first partition lies, as the command line reads it."""
    consumer = pipeline.bus.consumer()
    consumer.assign({(topics.RAW_EVENTS, 0): 0})
    found: set[Where] = set()
    while not consumer.at_end():
        found |= {(r.topic, r.partition, r.offset) for r in consumer.poll(100, 0.5)}
    consumer.close()
    return found


def present(pipeline: Pipeline) -> tuple[object, ...]:
    """Good steps, their rewards, their trajectories, and all dead letters."""
    (row,) = pipeline.rows(
        "SELECT (SELECT count() FROM steps WHERE startsWith(step_id, 'good-')),"
        " (SELECT count() FROM rewards WHERE startsWith(trajectory_id, 'good-')),"
        " (SELECT countIf(num_rewards = 1) FROM trajectories),"
        " (SELECT count() FROM dead_letters)"
    )
    return row
