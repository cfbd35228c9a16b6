"""docs/reliability.md from the results of runs. Pure but for the reading and writing of files."""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.soak.load import REFUSED

Run = Mapping[str, Any]

_INTRO = """# Reliability

What happens to calls, rewards and samples when processes are killed with `kill -9` while they
work. This page is written by the command below from the results of real runs, bad ones included.

```
python -m tests.soak.matrix --seeds {seeds} --kills {kills} --steps {steps} \\
    --publish docs/reliability.md
```

Each seed is a run of its own: a stack is started (Kafka, ClickHouse, gateway, redaction in the
`regex` tier, assembly, sink, supervisor), {conversations} are played through the
gateway, several at a time, half of the calls streaming, and every process is killed at moments
drawn from the seed. A process is killed only with work of its own in flight: open calls for the
gateway, records that its group has not committed for a processor, for the sink and for ClickHouse;
for Kafka and the supervisor the sum. A client whose call breaks off makes it again. The load goes
on until it has made the calls asked for and every kill has happened, so runs are of different
length; it pauses while more than 4,000 records are on their way. `make test` plays a short form
(`tests/e2e/test_crashes.py`).

The machine: {machine}. Other work ran beside it, with up to 40
processes waiting for the two cores, so times say little; Kafka alone took up to a minute to start.
The code: {revisions}.
"""

_WORDS = """## Faults that earlier runs found

Each is mended and has a test of its kind. The first three split conversations.

- A dead gateway's calls were published after those of the next one (seed 4).
- What several gateways left that died within seconds was published in any order (seed 2).
- Records that the gateway's producer gave up one by one were overtaken while Kafka was away
  ([ADR 0014](adr/0014-a-hold-is-a-time-at-the-broker.md)).
- A whole answer under an `Idempotency-Key`, cut off by a kill, hid its step from a reward (seed 5).

## Outages

What happens while Kafka, ClickHouse or one of three brokers is away for minutes is in
[outages.md](outages.md).

## What the columns mean

- **lost**: calls whose answer the client got whole and that `SELECT … FROM steps` does not show.
- **duplicated**: such calls that it shows more than once, and rows of `steps`, `rewards`,
  `trajectories` or `samples` beyond one for each id. The views are asked as any user asks them.
- **broken off**: attempts that reached the gateway and failed at the client. Each may have left
  at most one step; **surplus** counts what is there beyond that. Attempts that nobody accepted
  because the gateway was dead leave nothing and are not counted.
- **rewards wrong**: rewards that are missing, have another value or revision than the last one
  sent, or are joined to another step or trajectory.
- **split**: conversations whose steps are in more than one trajectory.
- **samples wrong**: rewarded conversations without a sample of all their steps and the reward
  that counts.
- **emitted again**: records of `training.samples.v1` whose sample id was there before. A
  processor that dies between sending a sample and noting it sends it again under the same id
  ([ADR {adr}](adr/{adr_file})); the table and whoever learns count each id once.
- **whole, noted as cut off**: the gateway was killed after the last byte and before it noted the
  end, so the step was there with all of the answer and the outcome `gateway_crashed`. Since then
  such a step is `complete`.
- **back after**: seconds until the process was ready again; for the supervisor with its whole
  stack, started by `headrace up`; for a second worker until it runs, ready or not.
"""
_ADR = {"adr": "0010", "adr_file": "0010-samples-may-be-sent-twice.md"}


def publish(results: Path, page: Path) -> None:
    """Write the page from a file of JSON lines."""
    page.write_text(render([json.loads(line) for line in results.read_text().splitlines()]))


def render(runs: Sequence[Run]) -> str:
    """The page."""
    runs = sorted(runs, key=lambda run: int(run["order"]["seed"]))
    first = runs[0]
    real = all(run["real_conversations"] for run in runs)
    intro = _INTRO.format(
        seeds=",".join(dict.fromkeys(str(run["order"]["seed"]) for run in runs)),
        kills=first["order"]["kills_each"],
        steps=min(run["order"]["num_steps"] for run in runs),
        conversations="recorded conversations" if real else "generated conversations",
        machine=first["machine"],
        revisions=", ".join(dict.fromkeys(f"`{run['revision']}`" for run in runs)),
    )
    parts = [intro, _total(runs), _matrix(runs), _table_of_runs(runs), _WORDS.format(**_ADR)]
    return "\n".join(parts)


def _total(runs: Sequence[Run]) -> str:
    verdicts = [run["verdict"] for run in runs]
    num_kills = sum(len(run["kills"]) for run in runs)
    num_duplicated = _sum(verdicts, "duplicated") + _sum(verdicts, "doubled_rows")
    lines = [
        "## In all",
        "",
        f"{_sum(runs, 'steps'):,} calls that the client got whole,",
        f"{_sum(runs, 'rewards'):,} rewards, {num_kills} kills,",
        f"{sum(map(_num_broken, runs)):,} attempts broken off:",
        "",
        f"**{_sum(verdicts, 'lost')} lost, {num_duplicated} duplicated,",
        f"{_sum(verdicts, 'rewards_wrong')} rewards wrong,",
        f"{_sum(verdicts, 'trajectories_split')} conversations split.**",
        "",
        "Runs with a note found a fault; it is fixed, and the same seed ran again after it.",
        "",
    ]
    return "\n".join(lines)


def _sum(rows: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(int(row[name]) for row in rows)


def _num_broken(run: Run) -> int:
    """Attempts that reached the gateway and broke off."""
    refused = int(run["failures"].get(REFUSED, 0))
    return int(run["attempts_failed"]) - refused


def _matrix(runs: Sequence[Run]) -> str:
    """Process by point."""
    cells: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    seeds: dict[tuple[str, str], set[int]] = {}
    for run in runs:
        for kill in run["kills"]:
            cells.setdefault((kill["process"], kill["point"]), []).append(kill)
            seeds.setdefault((kill["process"], kill["point"]), set()).add(run["order"]["seed"])
    rows = [
        [
            process, point, len(kills), len(seeds[process, point]),
            _range([kill["in_flight"] for kill in kills]),
            _range([kill["back_after_seconds"] for kill in kills]),
            _after(runs, "lost_after", f"{process}/{point}"),
            _after(runs, "duplicated_after", f"{process}/{point}"),
        ]
        for (process, point), kills in sorted(cells.items())
    ]  # fmt: skip
    head = ["process", "point", "kills", "runs", "in flight", "back after (s)", "lost",
            "duplicated"]  # fmt: skip
    note = "In flight and back after: lowest, median, highest. Lost and duplicated: of the calls\n"
    note += "that ended after this kill and before the next one.\n"
    return "## Process by process\n\n" + note + "\n" + table(head, rows)


def _after(runs: Sequence[Run], name: str, kill: str) -> int:
    return sum(int(run["verdict"][name].get(kill, 0)) for run in runs)


def _range(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    missing = len(values) - len(known)
    if not known:
        return "never"
    text = f"{min(known):g}, {statistics.median(known):g}, {max(known):g}"
    return text + (f" ({missing} never)" if missing else "")


def _table_of_runs(runs: Sequence[Run]) -> str:
    columns: dict[str, Callable[[Run], Any]] = {
        "seed": lambda run: run["order"]["seed"],
        "workers a group": lambda run: 2 if run["order"]["two_workers"] else 1,
        "conversations at a time": lambda run: run["order"]["concurrency"],
        "calls": lambda run: run["steps"],
        "kills": lambda run: len(run["kills"]),
        "broken off": _num_broken,
        "steps of these": lambda run: run["verdict"].get("steps_of_failed", "not counted"),
        "lost": lambda run: run["verdict"]["lost"],
        "duplicated": lambda run: run["verdict"]["duplicated"] + run["verdict"]["doubled_rows"],
        "surplus": lambda run: run["verdict"]["surplus"],
        "rewards": lambda run: run["rewards"],
        "rewards wrong": lambda run: run["verdict"]["rewards_wrong"],
        "trajectory rewards wrong": lambda run: run["verdict"]["trajectory_rewards_wrong"],
        "split": lambda run: run["verdict"]["trajectories_split"],
        "samples wrong": lambda run: run["verdict"]["samples_wrong"],
        "emitted again": lambda run: run["verdict"]["samples_emitted_again"],
        "dead letters": lambda run: run["verdict"]["set_aside"],
        "whole, noted as cut off": lambda run: run["verdict"]["cut_off_though_complete"],
        "calls/s": lambda run: round(run["steps"] / run["load_seconds"]),
        "settled after (s)": lambda run: round(run["settle_seconds"]),
        "note": lambda run: run.get("note", ""),
    }
    rows = [[value(run) for value in columns.values()] for run in runs]
    return "## Run by run\n\n" + table(list(columns), rows)


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines)
