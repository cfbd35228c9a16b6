"""Process one trajectory again: a bounded reader picks its raw records out of the log.

The offsets of a group cannot be reset for a key. So the records that the trajectory's rows came
from are read by their coordinates and published again under their own keys; redaction knows the
events and makes the same ids, so rows are replaced and none is doubled.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.local.launch import find_settings
from infra.replay.run import produce
from infra.store import open_reader
from schemas import topics
from schemas.bus import Bus, Received, Record
from schemas.bus.kafka import KafkaBus
from schemas.errors import ConfigError, TransientError

_READ_SECONDS = 30.0
_ROWS = """
SELECT DISTINCT raw_partition AS partition, raw_offset AS offset FROM (
    SELECT raw_topic, raw_partition, raw_offset FROM {table}
    WHERE trajectory_id = {{trajectory:String}} AND tenant_id = {{tenant:String}})
WHERE raw_topic = 'raw.events.v1' ORDER BY partition, offset
"""


@dataclass(frozen=True, slots=True)
class OneReplayed:
    """How many records were published again, and how many the log no longer holds."""

    num_records: int
    num_gone: int


def replay_trajectory(
    data_dir: Path | None,
    tenant_id: str,
    trajectory_id: str,
    report: Callable[[str, int, int], None],
) -> OneReplayed:
    """Publish the trajectory's raw records again. ConfigError where there are none."""
    parameters = {"trajectory": trajectory_id, "tenant": tenant_id}
    with open_reader(data_dir) as reader:
        rows = [
            row
            for table in ("steps", "rewards")
            for row in reader.rows(_ROWS.format(table=table), parameters)
        ]
    wanted = sorted({(row["partition"], row["offset"]) for row in rows})
    if not wanted:
        raise ConfigError(
            f"Tenant {tenant_id} has no trajectory {trajectory_id} in the store. The table "
            "`trajectories` lists them: `headrace query 'FROM trajectories'`."
        )
    bus = KafkaBus(find_settings(data_dir).kafka.bootstrap_servers)
    found = [_read(bus, *position) for position in wanted]
    records = [Record(r.topic, r.key, r.value, r.headers) for r in found if r is not None]
    report("publishing again", 0, len(records))
    produce(bus, records)
    report("publishing again", len(records), len(records))
    return OneReplayed(len(records), len(found) - len(records))


def _read(bus: Bus, partition: int, offset: int) -> Received | None:
    """The record at these coordinates of the raw topic; None where retention took it."""
    admin = bus.admin()
    first, end = admin.watermarks(topics.RAW_EVENTS).get(partition, (0, 0))
    admin.close()
    if not first <= offset < end:
        return None
    consumer = bus.consumer()
    try:
        consumer.assign({(topics.RAW_EVENTS, partition): offset})
        deadline = time.monotonic() + _READ_SECONDS
        while time.monotonic() < deadline:
            received: Sequence[Received] = consumer.poll(1, 1.0)
            if received:
                return received[0] if received[0].offset == offset else None
    finally:
        consumer.close()
    raise TransientError("The raw topic could not be read in time. Is Kafka up?")
