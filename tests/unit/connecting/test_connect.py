"""A client's settings file: written, and given back as it was."""

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from infra.cli.main import make_app
from infra.connecting.clients import CLIENTS, Form, note, setting, urls
from infra.connecting.editing import added, removed
from infra.connecting.recognised import RECOGNISED, TESTS
from schemas.errors import ConfigError

URL = "http://127.0.0.1:8400/k/hr_acme_x/v1"
VALUES = {("OPENAI_BASE_URL",): URL}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for client in CLIENTS:
        monkeypatch.delenv(client.home_variable or "HEADRACE_NONE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(make_app(), ["connect", *words, "--data-dir", "data"])
    return result.exit_code, f"{result.stdout}{result.exception or ''}"


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_every_client_has_one_line_with_the_key(client: object) -> None:
    bases = urls("http://127.0.0.1:8400/", "hr_acme_x", "run-1")
    line = setting(client, bases)  # type: ignore[arg-type]
    assert "http://127.0.0.1:8400/k/hr_acme_x/t/run-1" in line
    assert "\n" not in line
    assert "{" not in note(client, bases)  # type: ignore[arg-type]


@pytest.mark.parametrize("client", [c for c in CLIENTS if c.file], ids=lambda client: client.name)
@pytest.mark.parametrize("kind", ["absent", "empty", "used"])
def test_what_is_written_is_read_and_taken_back(client: object, kind: str, home: Path) -> None:
    file = client.file  # type: ignore[attr-defined]
    name = client.name  # type: ignore[attr-defined]
    path = home / file.path
    used = {"json": '{"other":  [1]}', "toml": 'model = "m"\n[a]\nb = 1', "env": "A=1\n# c"}
    before = {"absent": None, "empty": b"", "used": used[file.form].encode()}[kind]
    if before is not None:
        path.parent.mkdir(parents=True)
        path.write_bytes(before)
    code, text = run(name, "--key", "hr_acme_x", "--write")
    assert (code, str(path) in text) == (0, True), text
    assert "hr_acme_x" in path.read_text()
    if file.form == "json":
        assert json.loads(path.read_text()).get("other") == ([1] if kind == "used" else None)
    if file.form == "toml":
        assert tomllib.loads(path.read_text())["openai_base_url"].endswith("/k/hr_acme_x/v1")
    assert run(name, "--key", "hr_acme_y", "--write")[0] == 0, "our own value may be renewed"
    assert "hr_acme_x" not in path.read_text()
    assert run(name, "--undo")[0] == 0
    assert (path.read_bytes() if path.exists() else None) == before
    code, text = run(name, "--undo")
    assert code != 0
    assert "nothing" in text


def test_what_somebody_added_since_stays(home: Path) -> None:
    path = home / ".claude" / "settings.json"
    assert run("claude-code", "--key", "hr_acme_x", "--write")[0] == 0
    changed = json.loads(path.read_text())
    changed["env"]["MINE"] = "1"
    path.write_text(json.dumps(changed))
    assert run("claude-code", "--undo")[0] == 0
    assert json.loads(path.read_text()) == {"env": {"MINE": "1"}}


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("env", 'OPENAI_BASE_URL="https://mine"\n'),
        ("env", "export OPENAI_BASE_URL=https://mine"),
        ("toml", 'OPENAI_BASE_URL = "https://mine"\n'),
        ("toml", "this is no toml"),
        ("json", '{"OPENAI_BASE_URL": "https://mine"}'),
        ("json", "// a comment\n{}"),
        ("json", "[]"),
    ],
)
def test_what_is_not_ours_is_refused(form: Form, text: str) -> None:
    with pytest.raises(ConfigError):
        added(text, form, VALUES, {})


@given(st.lists(st.sampled_from(["A=1", "# c", "", "B = 'x'", "export C=2"])), st.booleans())
def test_lines_of_others_survive(lines: list[str], ends: bool) -> None:
    text = "\n".join(lines) + ("\n" if ends else "")
    given = added(text, "env", VALUES, {})
    assert given.endswith(f'OPENAI_BASE_URL="{URL}"\n')
    assert removed(given, "env", VALUES).rstrip("\n") == text.rstrip("\n")


def test_writing_needs_a_key_and_a_file_that_is_known(home: Path) -> None:
    assert "--key" in run("codex", "--write")[1]
    assert "export OPENAI_BASE_URL" in run("openai", "--key", "k", "--write")[1]
    code, text = run("nobody")
    assert code != 0
    assert "claude-code" in text
    assert run()[1].count("\n") == len(CLIENTS)
    assert not home.exists()


def test_every_client_is_in_the_table_of_what_is_recognised() -> None:
    rows = " ".join(row[0] for row in RECOGNISED[1:])
    for client in CLIENTS:
        assert client.title.split(" SDK")[0] in rows, client.title
    assert all(len(row) == len(RECOGNISED[0]) for row in RECOGNISED)
    root = Path(__file__).parents[3]
    assert all((root / path).is_file() for path in TESTS.values())
