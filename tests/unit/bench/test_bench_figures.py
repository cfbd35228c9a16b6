"""Samples become figures that tell what was missed, and figures find their place in the page."""

import pytest

from infra.bench.bulk import Drained, pipeline_figures, poll_seconds, sink_figures
from infra.bench.figures import Figure, Section, difference, quantile, ratio, shown
from infra.bench.gateway import Compared, OpenLoop, call_figures, reward_figures
from infra.bench.large import Memory, large_figures
from infra.bench.load import Samples
from infra.bench.machine import Machine, this_machine
from infra.bench.page import Run, machine_markdown, markdown, text, with_parts
from infra.bench.redaction.speed import Timed
from infra.bench.redaction.speed import figures_of as redaction_figures
from infra.bench.streams import Frames, Level, stream_figures
from infra.bench.visibility import Seen, memory_section
from infra.bench.visibility import figures_of as visibility_figures
from schemas.errors import ConfigError

MACHINE = Machine("Abacus 9000", 2, 24.0, (("Python", "3.11.0"),))
RUN = Run(MACHINE, "2026-01-02 03:04", 0.5, 1.25, "python -m infra.bench")


def value(figures: tuple[Figure, ...], name: str) -> float | None:
    return {figure.name: figure.value for figure in figures}[name]


@pytest.mark.parametrize(
    ("figure", "is_met"),
    [
        (Figure("a", 2.0, "ms", 2.0), True),
        (Figure("a", 2.1, "ms", 2.0), False),
        (Figure("a", 2.1, "ms"), None),
        (Figure("a", None, "ms", 2.0), False),
        (Figure("a", 4_999.0, "steps/s", 5_000.0, is_rate=True), False),
        (Figure("a", 5_000.0, "steps/s", 5_000.0, is_rate=True), True),
    ],
)
def test_a_goal_is_met_or_missed(figure: Figure, is_met: bool | None) -> None:
    assert figure.is_met is is_met


def test_quantiles_ratios_and_digits() -> None:
    hundred = [float(n) for n in range(1, 101)]
    assert [quantile(hundred, share) for share in (0.5, 0.95, 0.99)] == [50.0, 95.0, 99.0]
    assert quantile([], 0.5) is None
    assert difference(2.0, None) is None
    assert ratio(1.0, 0) is None
    assert [shown(v) for v in (None, 0.0, 0.12345, 12.345, 1234.5)] == [
        "none", "0", "0.123", "12.3", "1,234",
    ]  # fmt: skip


def test_what_the_gateway_adds_is_the_difference_of_the_quantiles() -> None:
    direct = Samples([0.001] * 100, [0.001] * 99 + [0.002])
    through = Samples([0.0012] * 100, [0.0015] * 98 + [0.009] * 2)
    whole = Compared(direct, through, cpu_seconds=0.05)
    figures = call_figures(whole, whole, [OpenLoop(500.0, 5.0, [0.001] * 10, [0.004] * 10, 0.01)])
    assert value(figures, "whole answer, added, p50") == pytest.approx(0.5)
    assert value(figures, "whole answer, added, p99") == pytest.approx(8.0)
    assert value(figures, "whole answer, CPU of the gateway a call") == pytest.approx(0.5)
    missed = {figure.name for figure in figures if figure.is_met is False}
    assert missed == {"whole answer, added, p99", "24 events, added, p99"}


def test_rewards_and_redaction_have_goals() -> None:
    rewards = reward_figures(Samples([0.001], [0.006]), 0.0004)
    assert [figure.is_met for figure in rewards] == [None, False, None]
    figures = redaction_figures("regex", Timed([0.004], [0.00005]))
    assert [figure.is_met for figure in figures] == [False, None, True, None]


def test_a_call_that_never_shows_spoils_the_quantiles() -> None:
    figures = visibility_figures(Seen(10, [0.5] * 9, {"sink": 0.1}, {}))
    assert value(figures, "visible, p50") == pytest.approx(500.0)
    assert value(figures, "visible, p95") == float("inf")
    assert value(figures, "calls that never showed") == 1.0
    assert value(figures, "CPU of sink a call") == pytest.approx(10.0)
    assert [figure.is_met for figure in figures[:4]] == [None, False, None, False]


def test_memory_names_the_tier_of_redaction_only() -> None:
    mib = 1024**2
    found = {
        "presidio": Seen(0, (), {}, {"redaction": 200 * mib, "sink": 90 * mib}),
        "regex": Seen(0, (), {}, {"redaction": 100 * mib, "sink": 80 * mib}),
    }
    held = {figure.name: figure.value for figure in memory_section(found).figures}
    assert held == {
        "redaction, presidio tier": 200.0, "sink": 90.0, "redaction, regex tier": 100.0,
    }  # fmt: skip


def test_rates_count_what_is_visible() -> None:
    found = Drained(num_records=100, num_visible=50, seconds=2.0, cpu_seconds={"sink": 0.5})
    assert value(sink_figures(found), "rows visible") == 25.0
    figures = pipeline_figures(2, found)
    assert value(figures, "2 workers a group, steps") == 25.0
    assert value(figures, "2 workers a group, CPU of sink a step") == pytest.approx(10.0)


def test_a_section_replaces_its_own_part_of_the_page_and_no_other() -> None:
    section = Section("sink", "Sink", (Figure("rows", 10.0, "steps/s", 20.0, is_rate=True),), "So.")
    page = "A\n<!-- bench:sink -->\nold\n<!-- /bench:sink -->\nB\n"
    new = with_parts(page, [("sink", markdown(section, RUN))])
    assert new.startswith("A\n<!-- bench:sink -->\n### Sink\n")
    assert new.endswith("<!-- /bench:sink -->\nB\n")
    assert "old" not in new
    assert "| rows | 10 steps/s | ≥ 20 steps/s | missed |" in new
    assert "load average 0.5 before and 1.2 after" in new
    assert with_parts(new, [("sink", markdown(section, RUN))]) == new
    with pytest.raises(ConfigError, match="bench:other"):
        with_parts(page, [("other", "x")])


def test_the_terminal_shows_the_same() -> None:
    section = Section("s", "T", (Figure("a", None, "ms"), Figure("bb", 1.0, "ms", 0.5)), "n")
    assert text(section) == "T\n  a   not measured\n  bb  1 ms   goal ≤ 0.5 ms: missed"


def test_the_machine_is_named() -> None:
    assert machine_markdown(MACHINE) == (
        "The machine: Abacus 9000, 2 virtual cores, 24 GiB of memory. Python 3.11.0.\n"
    )
    here = this_machine()
    assert here.num_cores >= 1
    assert here.memory_gib > 0
    assert dict(here.versions)["Kafka"].count(".") == 2


def test_streams_tell_what_is_added_and_how_many_of_them_are_in_time() -> None:
    direct = Frames([0.06] * 10, [0.02] * 10, [0.001] * 10)
    through = Frames([0.061] * 10, [0.0205] * 10, [0.002] * 10)
    levels = [Level(64, 0.002), Level(128, 0.0049), Level(192, 0.007)]
    figures = stream_figures(direct, through, levels)
    assert value(figures, "64 streams, added to the first token, p99") == pytest.approx(1.0)
    assert value(figures, "64 streams, added between tokens, p99") == pytest.approx(0.5)
    most = "most streams whose tokens come within 5 ms at p99"
    assert value(figures, most) == 128
    assert value(stream_figures(direct, through, levels[2:]), most) == 0


def test_a_large_body_tells_what_memory_stays() -> None:
    memory = Memory(100 * 2**20, 180 * 2**20, 140 * 2**20)
    figures = large_figures([0.1] * 3, [0.2] * 3, memory)
    assert value(figures, "20 MB, added, p50") == pytest.approx(100.0)
    [kept] = [f for f in figures if f.name == "memory that did not come back"]
    assert (kept.value, kept.is_met) == (40.0, False)


def test_the_end_of_a_run_is_looked_for_ever_more_often() -> None:
    assert poll_seconds(0, 1_000, 3.0) == 0.25
    assert poll_seconds(100, 1_000, 1.0) == 0.25
    assert poll_seconds(900, 1_000, 0.9) == pytest.approx(0.05)
    assert poll_seconds(999, 1_000, 1.0) == 0.02
