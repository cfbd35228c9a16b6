"""The notebook in docs/ runs, and prints what it says that it prints."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[3]
NOTEBOOK = ROOT / "docs" / "researchers.ipynb"
LIMIT_SECONDS = 120


def printed(notebook: nbformat.NotebookNode) -> list[str]:
    """What each cell of code wrote."""
    return [
        "".join(o.text for o in cell.outputs if o.output_type == "stream" and o.name == "stdout")
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_the_notebook_prints_what_it_shows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    shown = printed(notebook)
    assert all(shown), "each cell shows something"
    where = {"metadata": {"path": str(tmp_path)}}
    client = NotebookClient(notebook, timeout=LIMIT_SECONDS, kernel_name="python3", resources=where)
    client.execute()
    assert printed(notebook) == shown
