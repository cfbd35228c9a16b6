"""One number per table that changes with any value of any row, and with nothing else.

Left out are the columns that tell of one processing rather than of what was processed
(`schemas.tables.PROCESSING_COLUMNS`): recorded and received times, replay epoch, coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infra.store import Reader
from schemas.tables import PROCESSING_COLUMNS, REWARDS, STEPS, TRAJECTORIES

CHECKED_TABLES = (STEPS.name, REWARDS.name, TRAJECTORIES.name)


@dataclass(frozen=True)
class Checksum:
    """How many rows a table shows, and the sum over the hashes of all of them."""

    table: str
    num_rows: int
    total: int


def checksum_sql(table: str, columns: Sequence[str]) -> str:
    """A query for rows and sum of hashes. A sum does not depend on the order of the rows, and
    unlike an exclusive or it does not lose a pair of equal ones."""
    values = ", ".join(f"`{column}`" for column in columns)
    return (
        "SELECT count() AS num_rows, sum(toUInt128(cityHash64(toString(tuple("  # noqa: S608
        f"{values}))))) AS total FROM `{table}`"
    )


def checksum(reader: Reader, table: str) -> Checksum:
    """The checksum of one table as it is now."""
    described = reader.rows(f"DESCRIBE TABLE `{table}`")
    names = [str(row["name"]) for row in described]
    columns = [name for name in names if name not in PROCESSING_COLUMNS]
    (row,) = reader.rows(checksum_sql(table, columns))
    return Checksum(table, int(row["num_rows"]), int(row["total"]))


def checksums(reader: Reader) -> tuple[Checksum, ...]:
    """Those of `steps, rewards, trajectories`."""
    return tuple(checksum(reader, table) for table in CHECKED_TABLES)
