"""Light parts stay light: what an import pulls in is measured in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.size_gates import ROOT

HEAVY = ("faust", "spacy", "presidio_analyzer", "torch", "vllm", "clickhouse_connect", "chdb")


def modules(package: str) -> list[str]:
    """Every module of a package but the ones that are programs."""
    paths = (ROOT / package.replace(".", "/")).rglob("*.py")
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return sorted(n.removesuffix(".__init__") for n in names if not n.endswith("__main__"))


def loaded_by(names: list[str], roots: tuple[str, ...]) -> set[str]:
    """Which of the top-level packages `roots` are loaded once `names` are imported."""
    script = f"import sys, {', '.join(names)}\nprint(*{{m.split('.')[0] for m in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True,
        cwd=ROOT,
    )  # fmt: skip
    return set(done.stdout.split()) & set(roots)


@pytest.mark.parametrize("package", ["schemas", "inference.gateway"])
def test_the_floor_and_the_gateway_pull_in_nothing_heavy(package: str) -> None:
    assert loaded_by(modules(package), HEAVY) == set()


def test_the_gateway_routes_without_numpy() -> None:
    """It knows versions by their roots alone."""
    assert loaded_by(modules("inference.gateway"), ("numpy", "xxhash")) == set()


def test_the_check_would_notice() -> None:
    assert loaded_by(["clickhouse_connect"], HEAVY) == {"clickhouse_connect"}


def test_all_of_schemas_but_the_real_bus_imports_without_kafka() -> None:
    names = [name for name in modules("schemas") if not name.startswith("schemas.bus.kafka")]
    assert loaded_by(names, ("confluent_kafka", "aiokafka")) == set()


def test_the_redaction_core_imports_without_faust() -> None:
    names = [n for n in modules("streams.redaction") if not n.endswith(".agent")]
    assert loaded_by(names, ("faust", "confluent_kafka")) == set()


def test_no_file_names_a_machine_or_a_tool_of_the_workplace() -> None:
    words = ("/" + "work/", "." + "library", "issues " + "show")
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for folder in ("schemas", "streams", "inference", "infra", "tests", "docs")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".md", ".sql", ".toml", ".avsc"}
        for word in words
        if word in Path(path).read_text()
    ]
    assert found == []
