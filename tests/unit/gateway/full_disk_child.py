"""A process of its own under a file-size limit: what refuses is the kernel, not a test."""

import resource
import sys
from pathlib import Path

from inference.spool.disk import Disk
from tests.unit.gateway.full_disk import Station, report

LIMIT_BYTES = 40_000


def main(root: Path) -> None:
    """Calls before, under and after the limit; the last line of output is the report."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    station = Station(root, Disk())
    station.publisher.start()
    station.call([b"a" * 1_000])
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, hard))
    station.call([b"b" * 10_000] * 6)
    station.call([b"c" * LIMIT_BYTES])
    for _ in range(60):
        station.call([b"d" * 2_000])
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    station.until(station.delivered)
    station.call([b"e" * 1_000])
    station.until(station.delivered)
    sys.stdout.write(report(station) + "\n")
    station.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
