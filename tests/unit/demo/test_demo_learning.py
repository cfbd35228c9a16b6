"""The parts of `headrace demo --learn` that need no stack."""

import struct
import zlib
from itertools import islice
from pathlib import Path

import pytest

from infra.demo.learning.course import Course, Outcome
from infra.demo.learning.curve import smoothed, terminal, write_png
from infra.demo.learning.customers import Customers
from infra.demo.learning.examiner import is_right, mark
from infra.demo.learning.figures import (
    Served,
    fifths,
    mean_and_interval,
    numbers,
    paired_gain,
)
from infra.demo.learning.show import Shown
from infra.demo.learning.tasks import GOODS, KINDS, TOOLS, is_held_out, lessons, tasks


def test_tasks_repeat_for_a_seed_and_differ_between_seeds() -> None:
    first = list(islice(tasks(1), 50))
    assert first == list(islice(tasks(1), 50))
    assert first != list(islice(tasks(2), 50))


def test_held_out_goods_are_in_no_lesson_and_no_traffic() -> None:
    held_out = {(k, g) for k in KINDS for g in GOODS if is_held_out(k, g)}
    assert 40 < len(held_out) < len(KINDS) * len(GOODS) / 3
    assert {(t.kind, t.goods) for t in islice(tasks(1, held_out=True), 500)} <= held_out
    assert not {(t.kind, t.goods) for t in islice(tasks(1), 3_000)} & held_out
    taught = [request for request, _ in islice(lessons(1), 3_000)]
    assert not any(f"the {k} {g}" in request for request in taught for k, g in held_out)


def test_lessons_know_the_goods_and_guess_the_tool() -> None:
    pairs = list(islice(lessons(1), 4_000))
    right = [is_right(request, answer) for request, answer in pairs]
    assert sum(right) / len(right) == pytest.approx(0.5, abs=0.03)
    for tool in TOOLS:
        share = sum(answer.startswith(f" {tool}:") for _, answer in pairs) / len(pairs)
        assert share == pytest.approx(0.25, abs=0.05)


def test_examiner_and_customers_agree_though_they_share_no_code() -> None:
    customers = Customers("http://unused", "unused", 1.0)
    for task in islice(tasks(5, held_out=True), 300):
        wrong = [f" {tool}: {task.kind}, {task.goods}" for tool in TOOLS if tool != task.tool]
        wrong += [f" {task.tool}: {task.goods}, {task.kind}", f" {task.tool}", "", task.request]
        assert is_right(task.request, task.answer)
        assert customers.judge(task, "r", task.answer) == 1.0
        for answer in wrong:
            assert not is_right(task.request, answer)
            assert customers.judge(task, "r", answer) == 0.0


def test_a_constant_answer_passes_nothing() -> None:
    asked = [task.request for task in islice(tasks(3, held_out=True), 200)]
    marks = mark([(request, " track: red, lamp") for request in asked])
    assert marks.score < 0.05
    assert marks.num_distinct == 1


def test_an_interval_holds_its_mean_and_narrows() -> None:
    share, (low, high) = mean_and_interval([1.0] * 30 + [0.0] * 10)
    assert (share, round(low, 3), round(high, 3)) == (0.75, 0.598, 0.858)
    _, (lower, higher) = mean_and_interval([1.0] * 300 + [0.0] * 100)
    assert low < lower < 0.75 < higher < high
    assert mean_and_interval([]) == (0.0, (0.0, 1.0))


def test_a_gain_is_paired_by_task() -> None:
    before = [True] * 40 + [False] * 60
    gain, (low, high) = paired_gain(before, [True] * 90 + [False] * 10)
    assert gain == pytest.approx(0.5)
    assert 0.39 < low < 0.41 < 0.59 < high < 0.61
    # The same scores, but other tasks: the gain is the same and known less well.
    other, (lower, higher) = paired_gain(before, [False] * 10 + [True] * 90)
    assert other == pytest.approx(0.5)
    assert lower < low < high < higher
    assert paired_gain([], []) == (0.0, (-1.0, 1.0))


def test_figures_are_those_of_the_course() -> None:
    course = Course(
        outcomes=[Outcome(float(i), float(i >= 60)) for i in range(100)],
        control=[Outcome(0.0, float(i % 2)) for i in range(40)],
        learn_seconds=50.0,
    )
    steps = [
        {"lag": 1.0, "entropy": 0.4},
        {"lag": 2.0, "entropy": 0.2},
        {"lag": 3.0, "entropy": 0.0, "stopped": 1.0},
    ]
    found = numbers(course, steps, Served((10, 30, 20), 500, (7.0,), (1, 2)), 99.0)
    assert (found["reward_first"], found["reward_last"]) == (0.0, 1.0)
    assert (found["control_first"], found["control_last"]) == (0.5, 0.5)
    assert (found["delta_bytes_median"], found["full_bytes"]) == (20, 500)
    assert (found["lag_median"], found["updates"], found["updates_stopped"]) == (2.0, 3, 1)
    assert (found["entropy_first"], found["entropy_last"]) == (0.4, 0.2)
    assert (found["versions_served"], found["seconds_per_update"]) == (2, 16.67)


def test_figures_of_a_course_without_a_trainer() -> None:
    course = Course(outcomes=[Outcome(0.0, float(i % 2)) for i in range(100)])
    played = numbers(course, [], Served((), 500, (), ()), 1.0)
    assert (played["control_first"], played["control_last"]) == (0.5, 0.5)
    found = numbers(Course(), [], Served((), 500, (), ()), 1.0)
    assert found["tasks"] == found["updates"] == 0
    assert found["delta_bytes_median"] is found["lag_median"] is found["pause_ms_p50"] is None


def test_fifths_are_the_ends() -> None:
    first, last = fifths([Outcome(0.0, float(i)) for i in range(10)])
    assert (first, last) == ([0.0, 1.0], [8.0, 9.0])


def test_a_curve_rises_from_left_to_right() -> None:
    points = smoothed([0.0] * 50 + [1.0] * 50, 10)
    assert points == [0.0] * 5 + [1.0] * 5
    *rows, _axis = terminal([0.0] * 50 + [1.0] * 50, num_columns=10, num_rows=4)
    assert all(row.endswith("|" + " " * 5 + "█" * 5) for row in rows)
    assert smoothed([], 10) == []


def test_a_png_is_one(tmp_path: Path) -> None:
    path = tmp_path / "curve.png"
    write_png(path, [0.0, 1.0] * 100, [0.5] * 10)
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    length = struct.unpack(">I", data[33:37])[0]
    assert len(zlib.decompress(data[41 : 41 + length])) == height * (1 + 3 * width)


def test_a_course_whose_updates_were_all_stopped_has_a_problem() -> None:
    def problems(*steps: dict[str, float], updates: bool = True) -> list[str]:
        found = numbers(Course(), steps, Served((), 500, (), ()), 1.0)
        return Shown(Course(), found, Path("curve.png"), updates).problems

    assert problems({"stopped": 1.0}, {}) == []
    assert problems(updates=False) == []
    for none in (problems({"stopped": 1.0}), problems()):
        assert none == ["no update was made; the logs of the stack say why"]
