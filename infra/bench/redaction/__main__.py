"""python -m infra.bench.redaction [--half reporting] [--system NAME ...] [--misses] [--write FILE]

Prints what each tier and stock Presidio find in documents whose private data is known, and writes
it into docs/redaction.md when told so.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from infra.bench.machine import load_average, this_machine
from infra.bench.page import Run, circumstances, machine_markdown, markdown, with_parts
from infra.bench.redaction import gold, report, sessions
from infra.bench.redaction.negatives import negatives
from infra.bench.redaction.speed import measure
from infra.bench.redaction.systems import SYSTEMS, TENANT_KEY, run
from streams.redaction.redactor import DigestCache, Tier, build_redactor

_NUM_SESSIONS = 1_000
_NUM_TEXTS = 100
_REPOSITORY = Path(__file__).resolve().parents[3]


def main(arguments: list[str]) -> int:
    """0 when everything was measured, 2 where the corpora are absent."""
    parser = argparse.ArgumentParser(prog="python -m infra.bench.redaction", description=__doc__)
    parser.add_argument("--half", choices=("tuning", "reporting"), default="reporting")
    parser.add_argument("--system", action="append", choices=SYSTEMS, help="default: all")
    parser.add_argument("--misses", action="store_true", help="list misses; tuning half only")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables into this page")
    given = parser.parse_args(arguments)
    if given.misses and given.half != "tuning":
        parser.error("misses of the reporting half stay unseen; add --half tuning")
    shared = Path(os.environ.get("HEADRACE_SHARED_DATA", _REPOSITORY.parent / "shared" / "data"))
    if not shared.is_dir():
        sys.stderr.write(f"No corpora at {shared}; set HEADRACE_SHARED_DATA to where they lie.\n")
        return 2
    command = " ".join(["python -m infra.bench.redaction", *arguments])
    run_of = Run(
        this_machine(), f"{datetime.now(UTC):%Y-%m-%d %H:%M}", load_average(), 0.0, command
    )
    documents = gold.documents(shared, given.half)
    documents += [each for each in negatives(shared) if gold.half_of(each.text) == given.half]
    outcomes = [run(name, documents) for name in given.system or SYSTEMS]
    text = report.tables(outcomes, given.half) + "\n"
    text += report.goals(outcomes, given.half) + "\n"
    text += markdown(measure(_NUM_TEXTS), replace(run_of, load_after=load_average())) + "\n"
    # The accurate tier finds all that the fast one finds, in fifteen times the time.
    tiers = [cast("Tier", each.system) for each in outcomes if each.system in ("regex", "fast")]
    if tiers:
        text += report.leaks(tiers, _left_in_sessions(tiers)) + "\n"
    text += "\n" + circumstances(replace(run_of, load_after=load_average())) + "\n"
    sys.stdout.write(text)
    if given.write is not None:
        parts = [("machine", machine_markdown(run_of.machine)), ("detection", text)]
        given.write.write_text(with_parts(given.write.read_text(), parts))
    if given.misses:
        sys.stdout.write(report.misses(outcomes) + "\n")
    return 0


def _left_in_sessions(tiers: Sequence[Tier]) -> Iterator[tuple[Counter[str], Counter[str]]]:
    made = [sessions.session(seed) for seed in range(_NUM_SESSIONS)]
    for tier in tiers:
        redactor = build_redactor(
            tier, tenant_key=TENANT_KEY, cache=DigestCache(), policy_version="bench/1"
        )
        yield sessions.left_in(redactor, made)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
