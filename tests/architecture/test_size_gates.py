"""The size gates hold, and they see what they should."""

import pytest

from tests.architecture import size_gates
from tests.architecture.size_gates import Size, code_lines, sizes_of_file, violations


def test_the_gates_hold() -> None:
    assert violations(list(size_gates.sizes(size_gates.ROOT)), size_gates.read_exceptions()) == []


def test_blank_lines_comments_and_docstrings_are_no_code() -> None:
    source = (
        '"""Doc\n\nof a module."""\n\n# comment\nx = """a\nb"""\n\ndef f():\n    "doc"\n    y = 1\n'
    )
    assert code_lines(source) == {6, 7, 9, 11}


def test_every_function_is_measured_even_inside_another() -> None:
    source = "class A:\n  async def f(self):\n    def g():\n      return 1\n    return g\n"
    assert [(s.name, s.num_lines) for s in sizes_of_file("a.py", source)] == [
        ("a.py", 5), ("a.py::f", 4), ("a.py::g", 2),
    ]  # fmt: skip


def test_one_line_too_many_is_a_violation_that_says_what_to_do() -> None:
    assert violations([Size("a.py", 400, 400)], {}) == []
    [sentence] = violations([Size("a.py", 401, 400)], {})
    assert "a.py has 401 lines of code, at most 400" in sentence


@pytest.mark.parametrize(
    ("allowed", "says"),
    [(420, None), (419, "has 420 lines"), (421, "lower it to 420")],
)
def test_an_exception_fits_exactly(allowed: int, says: str | None) -> None:
    found = violations([Size("a.py", 420, 400)], {"a.py": allowed})
    assert (found == []) is (says is None)
    assert says is None or says in found[0]


def test_an_exception_that_nobody_needs_must_go() -> None:
    assert violations([Size("a.py", 10, 400)], {"a.py": 420, "gone.py": 500}) == [
        "The exception for a.py is larger than needed: remove it.",
        "The exception for gone.py is larger than needed: remove it.",
    ]
