"""Outcomes as Markdown tables. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from infra.bench.redaction.score import Score, Tally
from infra.bench.redaction.systems import STOCK, Outcome

_IDS: Final = ("SSN", "IBAN", "resident id", "other national id", "driving licence", "plate")
#: What, of which kinds and languages (none means all), and the least share to be removed.
_RECALL_GOALS: Final[tuple[tuple[str, Sequence[str], Sequence[str], float], ...]] = (
    ("structured ids and secrets", (*_IDS, "secret", "IP address"), (), 0.98),
    ("e-mail", ("e-mail",), (), 0.99),
    ("phone", ("phone",), (), 0.99),
    ("card", ("card",), (), 0.99),
    ("English names", ("name",), ("en",), 0.90),
    ("addresses", ("address",), (), 0.80),
    ("Chinese structured ids", _IDS, ("zh",), 0.98),
    ("Chinese names", ("name",), ("zh",), 0.75),
)
_MAX_OVER: Final = 0.02
_MIN_TIMES: Final = 5


def tables(outcomes: Sequence[Outcome], half: str) -> str:
    """Recall by kind and language, then precision and over-redaction, of each system."""
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
    everything = sum(outcomes[0].score.negative_characters.values())
    shares = [_share(_over_all(o.score)) for o in outcomes]
    lines.append(_row("all together", [f"{everything:,}", *shares]))
    return "\n".join(lines)


def goals(outcomes: Sequence[Outcome], half: str) -> str:
    """What this run reached of what was asked for, counted over all values of the kinds."""
    by_name = {outcome.system: outcome for outcome in outcomes}
    lines = [
        "",
        f"Against the targets, {half} half:",
        "",
        "| target | reached | |",
        "|---|---|---|",
    ]
    if accurate := by_name.get("accurate"):
        for label, kinds, languages, least in _RECALL_GOALS:
            lines.append(_recall_row(label, accurate.score, kinds, languages, least))
        share = _over_all(accurate.score)
        reached = None if share is None else share <= _MAX_OVER
        label = "over-redaction of code, logs and negatives together ≤ 2 %"
        lines.append(_goal(label, _share(share), reached))
    fast, stock = by_name.get("fast"), by_name.get(STOCK)
    if fast and stock:
        recalls = fast.score.recall or 0.0, stock.score.recall or 0.0
        lines.append(
            _goal("`fast` has at least stock Presidio's recall",
                  " and ".join(map(_share, recalls)), recalls[0] >= recalls[1])
        )  # fmt: skip
    return "\n".join([*lines, ""])


def speeds(outcomes: Sequence[Outcome]) -> str:
    """Characters per second of one core in the same run over the same documents."""
    by_name = {outcome.system: outcome for outcome in outcomes}
    lines = ["| | characters per second on one core |", "|---|---|"]
    lines += [_row(f"`{o.system}`", [f"{o.characters_per_second:,.0f}"]) for o in outcomes]
    fast, stock = by_name.get("fast"), by_name.get(STOCK)
    if fast and stock:
        times = fast.characters_per_second / stock.characters_per_second
        verdict = "met" if times >= _MIN_TIMES else "missed"
        said = f"`fast` is {times:.1f} times as fast as stock Presidio"
        lines += ["", f"{said}, of {_MIN_TIMES} asked for: {verdict}."]
    return "\n".join([*lines, ""])


def _recall_row(
    label: str, score: Score, kinds: Sequence[str], languages: Sequence[str], least: float
) -> str:
    tallies = [
        tally for (kind, language), tally in score.by_kind.items()
        if kind in kinds and (not languages or language in languages)
    ]  # fmt: skip
    gold = sum(tally.num_gold for tally in tallies)
    removed = sum(tally.num_removed for tally in tallies)
    if not gold:
        return _goal(f"{label} ≥ {least}", "not measured", None)
    reached = f"{removed / gold:.3f} ({removed} of {gold})"
    return _goal(f"{label} ≥ {least}", reached, removed / gold >= least)


def _goal(label: str, reached: str, is_met: bool | None) -> str:  # noqa: FBT001 - one of a row
    return _row(label, [reached, {True: "met", False: "missed", None: ""}[is_met]])


def _over_all(score: Score) -> float | None:
    total = sum(score.negative_characters.values())
    return sum(score.negative_redacted.values()) / total if total else None


def leaks(tiers: Sequence[str], counts: Iterable[tuple[Counter[str], Counter[str]]]) -> str:
    """Values planted in made-up sessions and how many each tier leaves."""
    found = list(counts)
    planted = found[0][0]
    names = [f"`{tier}`" for tier in tiers]
    lines = ["Values planted in 1,000 made-up sessions, and those left:", ""]
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
