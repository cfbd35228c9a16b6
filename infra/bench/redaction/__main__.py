"""python -m infra.bench.redaction [--part NAME ...] [--half reporting] [--system NAME ...]
                                [--misses] [--write FILE]

Prints what each tier and stock Presidio find in documents whose private data is known, how fast
they are, and what is left of made-up sessions; writes it into docs/redaction.md when told so.
`--part speed` alone is what a quiet machine is needed for.
"""

import argparse
import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

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
#: Each has a place of its own in the page.
_PARTS = ("detection", "speed", "sessions")


def main(arguments: list[str]) -> int:
    """0 when everything was measured, 2 where the corpora are absent."""
    given = _parsed(arguments)
    shared = Path(os.environ.get("HEADRACE_SHARED_DATA", _REPOSITORY.parent / "shared" / "data"))
    if not shared.is_dir():
        sys.stderr.write(f"No corpora at {shared}; set HEADRACE_SHARED_DATA to where they lie.\n")
        return 2
    command = shlex.join(["python", "-m", "infra.bench.redaction", *arguments])
    wanted = given.part or _PARTS
    outcomes = []
    begun = _begun(command)
    if {"detection", "speed"} & {*wanted}:
        documents = gold.documents(shared, given.half)
        documents += [each for each in negatives(shared) if gold.half_of(each.text) == given.half]
        outcomes = [run(name, documents) for name in given.system or SYSTEMS]
    texts = {"machine": machine_markdown(begun.machine)}
    if "detection" in wanted:
        found = report.tables(outcomes, given.half) + "\n" + report.goals(outcomes, given.half)
        texts["detection"] = f"{found}\n{circumstances(_ended(begun))}\n"
    if "speed" in wanted:
        texts["speed"] = f"{report.speeds(outcomes)}\n{_of_texts(begun)}"
    if "sessions" in wanted:
        begun = _begun(command)
        texts["sessions"] = f"{_sessions(given.system)}\n\n{circumstances(_ended(begun))}\n"
    sys.stdout.write("\n".join(texts.values()))
    if given.write is not None:
        given.write.write_text(with_parts(given.write.read_text(), [*texts.items()]))
    if given.misses:
        sys.stdout.write(report.misses(outcomes) + "\n")
    return 0


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m infra.bench.redaction", description=__doc__)
    parser.add_argument("--part", action="append", choices=_PARTS, help="default: all")
    parser.add_argument("--half", choices=("tuning", "reporting"), default="reporting")
    parser.add_argument("--system", action="append", choices=SYSTEMS, help="default: all")
    parser.add_argument("--misses", action="store_true", help="list misses; tuning half only")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables into this page")
    given = parser.parse_args(arguments)
    if given.misses and given.half != "tuning":
        parser.error("misses of the reporting half stay unseen; add --half tuning")
    return given


def _begun(command: str) -> Run:
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
    return Run(this_machine(), now, load_average(), 0.0, command)


def _ended(begun: Run) -> Run:
    return replace(begun, load_after=load_average())


def _of_texts(begun: Run) -> str:
    section = measure(_NUM_TEXTS)
    return markdown(section, _ended(begun))


def _sessions(systems: Sequence[str] | None) -> str:
    # The accurate tier finds all that the fast one finds, in fifteen times the time.
    tiers: list[Tier] = [tier for tier in ("regex", "fast") if systems is None or tier in systems]
    return report.leaks(tiers, _left_in_sessions(tiers)) if tiers else ""


def _left_in_sessions(tiers: Sequence[Tier]) -> Iterator[tuple[Counter[str], Counter[str]]]:
    made = [sessions.session(seed) for seed in range(_NUM_SESSIONS)]
    for tier in tiers:
        redactor = build_redactor(
            tier, tenant_key=TENANT_KEY, cache=DigestCache(), policy_version="bench/1"
        )
        yield sessions.left_in(redactor, made)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
