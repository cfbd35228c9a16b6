"""Order of start, back-off, and the plan of the stack."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.local.children import Backoff, ChildSpec, FileProbe, start_order
from infra.local.stack import Ports, make_plan
from schemas.settings import load_settings

PORTS = Ports(21_900, 21_901, 21_902, 21_903)


@given(st.integers(1, 50))
def test_the_wait_is_bounded_and_ends(num_failures: int) -> None:
    backoff = Backoff(first_seconds=0.5, limit_seconds=30, max_failures=10)
    delay = backoff.delay_seconds(num_failures)
    assert (delay is None) == (num_failures >= 10)
    assert delay is None or 0.5 <= delay <= 30


def test_the_wait_doubles() -> None:
    backoff = Backoff(first_seconds=1, limit_seconds=5, max_failures=9)
    assert [backoff.delay_seconds(n) for n in range(1, 6)] == [1, 2, 4, 5, 5]


def test_a_child_that_was_ready_is_tried_for_as_long_as_what_it_needs_is_away() -> None:
    assert Backoff().delay_seconds(100_000) == Backoff().limit_seconds


def test_a_child_that_was_never_ready_is_given_up_sooner() -> None:
    backoff = Backoff(max_failures=10, max_first_failures=3)
    assert backoff.delay_seconds(3, was_ready=False) is None
    assert backoff.delay_seconds(3, was_ready=True) is not None


def _child(name: str, *after: str) -> ChildSpec:
    return ChildSpec(name, ["true"], after=after)


def test_children_come_after_what_they_need() -> None:
    children = [_child("c", "b"), _child("b", "a"), _child("a")]
    assert [child.name for child in start_order(children)] == ["a", "b", "c"]


@pytest.mark.parametrize("children", [[_child("a", "a")], [_child("a", "absent")]])
def test_a_need_that_cannot_be_met_is_an_error(children: list[ChildSpec]) -> None:
    with pytest.raises(ValueError, match="wait for"):
        start_order(children)


def test_the_whole_stack_has_an_order(tmp_path: Path) -> None:
    plan = make_plan(load_settings(data_dir=tmp_path), PORTS)
    names = [child.name for child in start_order(plan.children)]
    assert set(names) == {
        "kafka", "clickhouse", "topics", "gateway", "redaction", "assembly", "sink"
    }  # fmt: skip
    assert names.index("kafka") < names.index("topics") < names.index("redaction")
    assert names.index("clickhouse") < names.index("sink")


def test_a_configured_broker_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_KAFKA__BOOTSTRAP_SERVERS", "broker.example:9092")
    plan = make_plan(load_settings(data_dir=tmp_path), PORTS)
    assert "kafka" not in {child.name for child in plan.children}
    assert plan.endpoints["HEADRACE_KAFKA__BOOTSTRAP_SERVERS"] == "broker.example:9092"
    start_order(plan.children)


def test_a_configured_store_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CLICKHOUSE__HOST", "store.example")
    plan = make_plan(load_settings(data_dir=tmp_path), PORTS)
    assert "clickhouse" not in {child.name for child in plan.children}
    assert plan.endpoints["HEADRACE_CLICKHOUSE__HOST"] == "store.example"
    start_order(plan.children)


def test_no_password_is_on_a_command_line_or_in_an_environment(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "clickhouse").write_text("planted-password")
    plan = make_plan(load_settings(data_dir=tmp_path), PORTS)
    assert "planted-password" not in repr(plan)


async def test_a_ready_file_of_an_earlier_run_does_not_count(tmp_path: Path) -> None:
    probe = FileProbe(tmp_path / "group.ready")
    assert not await probe.is_ready(5)
    probe.path.touch()
    assert await probe.is_ready(5)
    an_hour_ago = probe.path.stat().st_mtime - 3600
    os.utime(probe.path, (an_hour_ago, an_hour_ago))
    assert not await probe.is_ready(5)
