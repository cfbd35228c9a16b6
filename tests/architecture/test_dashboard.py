"""What the dashboard and the alerts ask Prometheus for exists, with the labels they group by."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from infra.local.stack import Ports
from schemas.metrics_doc import exported
from schemas.telemetry import METRICS
from tests.architecture.size_gates import ROOT

GRAFANA = ROOT / "infra" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "headrace.json").read_text())
#: Labels that Prometheus itself adds.
_OWN_LABELS = {"job", "instance", "le"}
_NAME = re.compile(r"\bheadrace_[a-z_]+\b")


def targets() -> Iterator[tuple[str, str, str]]:
    """Panel, expression and legend of every query."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], target["legendFormat"]


def alerts() -> list[str]:
    text = (GRAFANA / "alerts.yml").read_text()
    return re.findall(r"^ +expr: (.+)$", text, re.M)


def names_in(expression: str) -> set[str]:
    return set(_NAME.findall(expression))


def registered(name: str) -> str | None:
    """The metric of the registry that Prometheus stores under that name."""
    return next((metric for metric in METRICS if name in exported(metric)), None)


def labels_of(expression: str) -> set[str]:
    """Labels that the metrics of an expression have, through all of them."""
    metrics = [registered(name) for name in names_in(expression)]
    return {label for metric in metrics if metric for label in METRICS[metric][2]} | _OWN_LABELS


@pytest.mark.parametrize("expression", [*(e for _, e, _ in targets()), *alerts()])
def test_every_query_asks_for_metrics_and_labels_that_exist(expression: str) -> None:
    names = names_in(expression)
    assert names or expression.startswith("up{")
    assert {name for name in names if registered(name) is None} == set()
    grouped = re.findall(r"by \(([^)]*)\)", expression)
    used = {label.strip() for part in grouped for label in part.split(",")}
    assert used <= labels_of(expression)


def test_every_legend_names_labels_that_its_query_keeps() -> None:
    for title, expression, legend in targets():
        shown = set(re.findall(r"\{\{(\w+)\}\}", legend))
        by = re.search(r"by \(([^)]*)\)", expression)
        kept = {label.strip() for label in by[1].split(",")} if by else labels_of(expression)
        assert shown <= kept, title


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {registered(name) for _, expression, _ in targets() for name in names_in(expression)}
    assert METRICS.keys() - shown == set()


def test_panels_have_their_own_place_and_number() -> None:
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_dashboard_and_data_source_know_each_other() -> None:
    source = (GRAFANA / "provisioning" / "datasources" / "prometheus.yml").read_text()
    [uid] = re.findall(r"uid: (\S+)", source)
    used = {panel["datasource"]["uid"] for panel in DASHBOARD["panels"] if "datasource" in panel}
    assert used == {uid}


def test_prometheus_scrapes_the_ports_that_the_stack_takes() -> None:
    text = (GRAFANA / "prometheus.yml").read_text()
    scraped = dict(
        re.findall(r"job_name: (\w+)\s+static_configs:\s+- targets: \[\"127.0.0.1:(\d+)\"", text)
    )
    usual = Ports()
    assert scraped == {
        "gateway": str(usual.gateway),
        **dict(zip(("redaction", "assembly", "sink"), map(str, usual.processors), strict=True)),
    }
