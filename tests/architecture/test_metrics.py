"""The registry of metrics and the code that sets them agree, in names, kinds and labels."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from schemas.metrics_doc import LABELS
from schemas.telemetry import BUCKETS, METRICS
from tests.architecture.size_gates import ROOT

_KINDS = ("counter", "gauge", "histogram")
_SERVICES = ("schemas", "inference", "streams", "trainer", "infra")


@dataclass(frozen=True)
class Use:
    where: str
    kind: str
    name: str
    labels: frozenset[str]


def uses() -> Iterator[Use]:
    """Every call of `metrics.counter(…)` and the like, with its literal name."""
    for service in _SERVICES:
        for path in sorted((ROOT / service).rglob("*.py")):
            if path.name == "telemetry.py":
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    yield from _use(node, node.func.attr, f"{path.relative_to(ROOT)}:{node.lineno}")


def _use(call: ast.Call, kind: str, where: str) -> Iterator[Use]:
    if kind not in _KINDS or not call.args:
        return
    names = _literals(call.args[0])
    for name in names:
        if name.startswith("headrace_"):
            labels = frozenset(keyword.arg or "" for keyword in call.keywords)
            yield Use(where, kind, name, labels)


def _literals(node: ast.expr) -> list[str]:
    return [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and type(n.value) is str]


def test_every_metric_that_is_set_is_declared_with_its_kind_and_labels() -> None:
    found = list(uses())
    wrong = [
        use for use in found
        if use.name not in METRICS
        or METRICS[use.name][0] != use.kind
        or frozenset(METRICS[use.name][2]) != use.labels
    ]  # fmt: skip
    assert found
    assert wrong == []


def test_every_metric_that_is_declared_is_set_somewhere() -> None:
    assert METRICS.keys() - {use.name for use in uses()} == set()


def test_every_label_and_every_named_bucket_belongs_to_a_metric() -> None:
    assert LABELS.keys() == {label for _, _, labels in METRICS.values() for label in labels}
    assert {name for name in BUCKETS if METRICS[name][0] != "histogram"} == set()
