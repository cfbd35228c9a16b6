"""python -m infra.bench.redaction [--half reporting] [--system NAME ...] [--misses]"""

import argparse
import os
import sys
from pathlib import Path

from infra.bench.redaction import gold, report
from infra.bench.redaction.negatives import negatives
from infra.bench.redaction.systems import STOCK, run

TIERS = ("regex", "fast", "accurate")
_REPOSITORY = Path(__file__).resolve().parents[3]


def main(arguments: list[str]) -> int:
    """0 when everything was measured, 2 where the corpora are absent."""
    parser = argparse.ArgumentParser(prog="python -m infra.bench.redaction", description=__doc__)
    parser.add_argument("--half", choices=("tuning", "reporting"), default="reporting")
    parser.add_argument("--system", action="append", choices=(*TIERS, STOCK), help="default: all")
    parser.add_argument("--misses", action="store_true", help="list misses; tuning half only")
    given = parser.parse_args(arguments)
    if given.misses and given.half != "tuning":
        parser.error("misses of the reporting half stay unseen; add --half tuning")
    shared = Path(os.environ.get("HEADRACE_SHARED_DATA", _REPOSITORY.parent / "shared" / "data"))
    if not shared.is_dir():
        sys.stderr.write(f"No corpora at {shared}; set HEADRACE_SHARED_DATA to where they lie.\n")
        return 2
    documents = gold.documents(shared, given.half)
    documents += [each for each in negatives(shared) if gold.half_of(each.text) == given.half]
    outcomes = [run(name, documents) for name in given.system or (*TIERS, STOCK)]
    sys.stdout.write(report.tables(outcomes, given.half) + "\n")
    if given.misses:
        sys.stdout.write(report.misses(outcomes) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
