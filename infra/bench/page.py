"""Sections as text for a terminal and as Markdown for docs/benchmarks.md. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from infra.bench.figures import Figure, Section, shown
from infra.bench.machine import Machine
from schemas.errors import ConfigError


@dataclass(frozen=True)
class Run:
    """The circumstances of one run."""

    machine: Machine
    started_at: str
    load_before: float
    load_after: float
    command: str


def markdown(section: Section, run: Run) -> str:
    """The section as it stands in the page."""
    lines = [f"### {section.title}", "", "| | measured | goal | |", "|---|---|---|---|"]
    lines += [f"| {f.name} | {measured(f)} | {goal(f)} | {verdict(f)} |" for f in section.figures]
    return "\n".join([*lines, "", section.note, "", circumstances(run), ""])


def circumstances(run: Run) -> str:
    """One sentence on when and how the figures were made."""
    return (
        f"`{run.command}`, {run.started_at} UTC; load average {run.load_before:.1f} before and "
        f"{run.load_after:.1f} after the section."
    )


def machine_markdown(machine: Machine) -> str:
    """One sentence on the machine."""
    versions = ", ".join(f"{name} {number}" for name, number in machine.versions)
    return (
        f"The machine: {machine.cpu_model}, {machine.num_cores} virtual cores, "
        f"{machine.memory_gib:.0f} GiB of memory. {versions}.\n"
    )


def text(section: Section) -> str:
    """The section for a terminal."""
    width = max(len(figure.name) for figure in section.figures)
    lines = [section.title]
    for figure in section.figures:
        aim = f"   goal {goal(figure)}: {verdict(figure)}" if figure.goal is not None else ""
        lines.append(f"  {figure.name:<{width}}  {measured(figure)}{aim}")
    return "\n".join(lines)


def measured(figure: Figure) -> str:
    """The value with its unit."""
    if figure.value is None:
        return "not measured"
    return f"{shown(figure.value)} {figure.unit}".rstrip()


def goal(figure: Figure) -> str:
    """The bound with its unit."""
    if figure.goal is None:
        return ""
    return f"{'≥' if figure.is_rate else '≤'} {shown(figure.goal)} {figure.unit}"


def verdict(figure: Figure) -> str:
    """`met`, `missed`, or nothing where there is no goal."""
    return {None: "", True: "met", False: "missed"}[figure.is_met]


def with_parts(page: str, parts: Sequence[tuple[str, str]]) -> str:
    """The page with the text between the markers of each part replaced.

    ConfigError where the page lacks a marker.
    """
    for name, content in parts:
        begin, end = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
        head, found, rest = page.partition(begin)
        _, closed, tail = rest.partition(end)
        if not found or not closed:
            raise ConfigError(f"The page has no place for {name}. Add the lines {begin} and {end}.")
        page = f"{head}{begin}\n{content.strip()}\n{end}{tail}"
    return page
