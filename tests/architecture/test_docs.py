"""Documents that follow the code: generated ones are fresh, lists are complete."""

import re
from pathlib import Path

import pytest

from infra.connecting import page
from schemas import metrics_doc, settings_doc, topics
from schemas.atdp.types import Gap
from streams.redaction import gaps, lineage
from tests.architecture.size_gates import PACKAGES, ROOT

DOCS = ROOT / "docs"


@pytest.mark.parametrize(
    ("name", "text", "command"),
    [
        ("topics.md", topics.markdown(), "python -m schemas.topics"),
        ("metrics.md", metrics_doc.markdown(), "python -m schemas.metrics_doc"),
        ("connect.md", page.markdown(), "python -m infra.connecting.page"),
        ("settings.md", settings_doc.markdown(), "python -m schemas.settings_doc"),
    ],
)
def test_a_generated_document_is_fresh(name: str, text: str, command: str) -> None:
    assert (DOCS / name).read_text() == text, f"run `{command} > docs/{name}`"


def test_every_folder_has_its_line_and_every_line_its_folder() -> None:
    text = (DOCS / "architecture.md").read_text()
    listed = set(re.findall(r"^\| `([a-z_/]+)` \|", text.partition("## Folders")[2], re.M))
    packages = {
        path.parent.relative_to(ROOT).as_posix()
        for package in PACKAGES
        if package != "tests"
        for path in (ROOT / package).rglob("__init__.py")
    }
    assert listed == {*packages, "tests"}


def test_gaps_are_a_closed_list() -> None:
    """The constants of the code, and the reasons that lineage gives, are what the document says."""
    text = (DOCS / "gaps.md").read_text()
    documented = set(re.findall(r"^\| `([a-z_.]+)` \| `([a-z_]+)` \|", text, re.M))
    constants = {(gap.field, gap.reason) for gap in vars(gaps).values() if isinstance(gap, Gap)}
    source = Path(lineage.__file__).read_text()
    assert set(re.findall(r'gap = "([a-z_]+)"|"([a-z_]+_not_captured)"', source))
    named = {
        a or b for a, b in re.findall(r'gap[^\n]*= "([a-z_]+)"|"([a-z_]+_not_captured)"', source)
    }
    assert named <= lineage.GAPS
    given = {(gap.field, gap.reason) for gap in map(gaps.lineage, lineage.GAPS)}
    assert documented == constants | given


def test_decisions_are_numbered_and_have_their_parts() -> None:
    paths = sorted((DOCS / "adr").glob("*.md"))
    numbers = [path.name[:4] for path in paths]
    assert numbers == [f"{i:04d}" for i in range(1, len(paths) + 1)]
    for path in paths:
        text = path.read_text()
        assert text.startswith(f"# {path.name[:4]}: ")
        for part in ("**Status:**", "## Context", "## Decision", "## Consequences"):
            assert part in text, f"{path.name} lacks {part}"


def _documents() -> list[Path]:
    return [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]


@pytest.mark.parametrize("path", _documents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", path.read_text())
    broken = [
        link for link in links
        if not link.startswith(("http://", "https://")) and not (path.parent / link).exists()
    ]  # fmt: skip
    assert broken == []


def test_tests_that_documents_name_are_there() -> None:
    absent = [
        f"{path.relative_to(ROOT)}: {file}::{name}"
        for path in _documents()
        for file, name in re.findall(r"([\w/]+\.py)::(test_\w+)", path.read_text())
        if not any(f"def {name}(" in found.read_text() for found in ROOT.glob(f"tests/**/{file}"))
    ]
    assert absent == []
