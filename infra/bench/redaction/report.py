"""Outcomes as Markdown tables. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

from infra.bench.redaction.score import Score, Tally
from infra.bench.redaction.systems import Outcome


def tables(outcomes: Sequence[Outcome], half: str) -> str:
    """Recall by kind and language, then precision, over-redaction and speed, of each system."""
    keys = sorted({key for outcome in outcomes for key in outcome.score.by_kind})
    names = [f"`{outcome.system}`" for outcome in outcomes]
    lines = [
        f"Recall on the {half} half: values of which ≥ 90 % of letters and digits are removed.",
        "",
        "| kind | language | values | " + " | ".join(names) + " |",
        "|---|---|---|" + "---|" * len(names),
    ]
    for kind, language in keys:
        tallies = [outcome.score.by_kind[kind, language] for outcome in outcomes]
        cells = " | ".join(_cell(tally) for tally in tallies)
        lines.append(f"| {kind} | {language} | {tallies[0].num_gold} | {cells} |")
    lines += [
        "",
        "| | " + " | ".join(names) + " |",
        "|---|" + "---|" * len(names),
        _row("recall over all kinds", [_share(o.score.recall) for o in outcomes]),
        _row("findings that touch something annotated",
             [_share(o.score.precision) for o in outcomes]),
        _row("characters per second on one core",
             [f"{o.characters_per_second:,.0f}" for o in outcomes]),
    ]  # fmt: skip
    lines += ["", "Characters redacted where nothing is private:", ""]
    lines += [
        "| corpus | characters | " + " | ".join(names) + " |",
        "|---|---|" + "---|" * len(names),
    ]
    for corpus in sorted({each for o in outcomes for each in o.score.negative_characters}):
        shares = [_share(_over(o.score, corpus)) for o in outcomes]
        size = f"{outcomes[0].score.negative_characters[corpus]:,}"
        lines.append(_row(corpus, [size, *shares]))
    return "\n".join(lines)


def leaks(tiers: Sequence[str], counts: Iterable[tuple[Counter[str], Counter[str]]]) -> str:
    """Values planted in made-up sessions and how many each tier leaves."""
    found = list(counts)
    planted = found[0][0]
    names = [f"`{tier}`" for tier in tiers]
    lines = ["", "Values planted in 1,000 made-up sessions, and those left:", ""]
    lines += ["| kind | planted | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    for kind in sorted(planted):
        cells = [f"{planted[kind]:,}", *(f"{left[kind]:,}" for _, left in found)]
        lines.append(_row(kind, cells))
    return "\n".join(lines)


def misses(outcomes: Sequence[Outcome]) -> str:
    """What was missed and what was found wrongly: for work on recognisers, never for a page."""
    lines = []
    for outcome in outcomes:
        lines += [f"{outcome.system} missed {item}" for item in sorted(outcome.score.missed)]
        lines += [f"{outcome.system} wrong {item}" for item in sorted(outcome.score.wrong)]
    return "\n".join(lines)


def _row(label: str, cells: Sequence[str]) -> str:
    return f"| {label} | " + " | ".join(cells) + " |"


def _cell(tally: Tally) -> str:
    return "" if tally.recall is None else f"{tally.recall:.3f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f} %"


def _over(score: Score, corpus: str) -> float | None:
    total = score.negative_characters[corpus]
    return score.negative_redacted[corpus] / total if total else None
