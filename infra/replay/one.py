"""Process one trajectory again: a bounded reader picks its raw records out of the log.

The offsets of a group cannot be reset for a key. So the records that the trajectory's rows came
from are read by their coordinates and published again under their own keys; redaction knows the
events and makes the same ids, so rows are replaced and none is doubled. Ends have no table: those
of the trajectory are picked out of their clean topic, which is read from its first record on.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from infra.inspection import bounds, read_between, record_at
from infra.local.launch import find_settings
from infra.replay.run import produce
from infra.store import open_reader
from schemas import topics
from schemas.atdp.types import Coordinates, TrajectoryEnd
from schemas.bus import Admin, Bus, Record
from schemas.bus.kafka import KafkaBus
from schemas.errors import ConfigError, TransientError

Report = Callable[[str, int, int], None]
"""Called with a stage in words, records done and records in all."""

#: Records between two reports of a long reading.
_REPORT_EVERY = 1_000
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
    data_dir: Path | None, tenant_id: str, trajectory_id: str, report: Report
) -> OneReplayed:
    """Publish the trajectory's raw records again. ConfigError where there are none."""
    parameters = {"trajectory": trajectory_id, "tenant": tenant_id}
    with open_reader(data_dir) as reader:
        rows = [
            row
            for table in ("steps", "rewards")
            for row in reader.rows(_ROWS.format(table=table), parameters)
        ]
    bus = KafkaBus.from_settings(find_settings(data_dir).kafka)
    admin = bus.admin()
    try:
        ends = ends_of(bus, admin, tenant_id, trajectory_id, report)
        wanted = {(row["partition"], row["offset"]) for row in rows} | {
            (end.partition, end.offset) for end in ends
        }
        if not wanted:
            raise ConfigError(
                f"Tenant {tenant_id} has no trajectory {trajectory_id} in the store. The table "
                "`trajectories` lists them: `headrace query 'FROM trajectories'`."
            )
        return publish_again(bus, admin, wanted, report)
    finally:
        admin.close()


def ends_of(
    bus: Bus, admin: Admin, tenant_id: str, trajectory_id: str, report: Report
) -> list[Coordinates]:
    """Raw coordinates of the trajectory's ends, one for each event however often it was sent.

    TransientError when the broker falls silent before the end that it named.
    """
    starts, ends = bounds(admin, topics.ENDS)
    position = {where: start for where, start in starts.items() if start < ends[where]}
    total = sum(ends[where] - start for where, start in position.items())
    found: dict[str, Coordinates] = {}
    for num_read, seen in enumerate(read_between(bus, starts, ends)):
        position[seen.record.topic, seen.record.partition] = seen.record.offset + 1
        if num_read % _REPORT_EVERY == 0:
            report("looking for its end", num_read, total)
        end = seen.event
        if (
            isinstance(end, TrajectoryEnd)
            and (end.tenant_id, end.trajectory_id) == (tenant_id, trajectory_id)
            and end.raw is not None
            and end.raw.topic == topics.RAW_EVENTS
        ):
            found[end.event_id] = end.raw
    if any(reached < ends[where] for where, reached in position.items()):
        raise TransientError(
            f"{topics.ENDS} could not be read to its end and nothing was published. Is Kafka up? "
            "`headrace status` shows it; then run the replay again."
        )
    return list(found.values())


def publish_again(
    bus: Bus, admin: Admin, wanted: Iterable[tuple[int, int]], report: Report
) -> OneReplayed:
    """Publish the raw records at these partitions and offsets again, in their order."""
    found = [record_at(bus, admin, topics.RAW_EVENTS, *where) for where in sorted(wanted)]
    records = [Record(r.topic, r.key, r.value, r.headers) for r in found if r is not None]
    report("publishing again", 0, len(records))
    produce(bus, records)
    report("publishing again", len(records), len(records))
    return OneReplayed(len(records), len(found) - len(records))
