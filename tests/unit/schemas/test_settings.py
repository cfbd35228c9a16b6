"""Settings: file, then environment; an unknown name never passes silently."""

from pathlib import Path

import pytest

from schemas import settings_doc
from schemas.errors import ConfigError
from schemas.settings import load_settings


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    for name in [name for name in os.environ if name.upper().startswith("HEADRACE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "headrace.toml"
    path.write_text(text)
    return path


def test_without_file_and_environment_there_are_defaults() -> None:
    settings = load_settings()
    assert settings.gateway.port == 8400
    assert settings.root_secret_file == Path(".headrace/secrets/root")
    assert settings.blobs.startswith("file://")
    assert settings.clickhouse_password == ""
    assert settings.training_eligible_tenants == ()


def test_environment_wins_over_file_and_arguments_over_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 'log_level = "debug"\n[gateway]\nport = 1\nhost = "h"\n[gateway.upstream]\n'
                    'url = "http://file"\n')  # fmt: skip
    assert load_settings().gateway.port == 1
    monkeypatch.setenv("HEADRACE_GATEWAY__PORT", "2")
    monkeypatch.setenv("HEADRACE_GATEWAY__UPSTREAM__URL", "http://environment")
    monkeypatch.setenv("HEADRACE_LOG_LEVEL", "error")
    settings = load_settings()
    assert (settings.gateway.port, settings.gateway.host) == (2, "h")
    assert settings.gateway.upstream.url == "http://environment"
    assert settings.log_level == "error"
    assert load_settings(log_level="warning").log_level == "warning"


def test_the_file_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.toml"
    other.write_text("[kafka]\nnum_partitions = 7\n")
    monkeypatch.setenv("HEADRACE_CONFIG", str(other))
    assert load_settings().kafka.num_partitions == 7
    monkeypatch.setenv("HEADRACE_CONFIG", str(tmp_path / "absent.toml"))
    with pytest.raises(ConfigError, match=r"absent\.toml does not exist"):
        load_settings()


def test_a_nested_list_is_json_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_WORKER__RINGS", '["blue", "green"]')
    assert load_settings().worker.rings == ("blue", "green")
    monkeypatch.setenv("HEADRACE_WORKER__RINGS", "[blue]")
    with pytest.raises(ConfigError, match=r"HEADRACE_WORKER__RINGS is not valid JSON"):
        load_settings()


def test_a_table_in_the_environment_is_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_REDACTION__TOKENIZERS", '{"main": "/models/tokenizer.json"}')
    found = load_settings(write(tmp_path, "[redaction]\ntier = 'regex'\n")).redaction
    assert (found.tier, found.tokenizers) == ("regex", {"main": Path("/models/tokenizer.json")})


def test_lists_and_lower_case_names_are_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 'training_eligible_tenants = ["file"]\n')
    monkeypatch.setenv("headrace_training_eligible_tenants", '["acme", "other"]')
    assert load_settings().training_eligible_tenants == ("acme", "other")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("prot = 1", "prot"),
        ("[gatway]\nport = 1", "gatway"),
        ("[gateway]\nprot = 1", "gateway.prot"),
        ("[gateway.upstream]\nurll = 'x'", "gateway.upstream.urll"),
    ],
)
def test_an_unknown_name_in_the_file_is_refused(tmp_path: Path, text: str, names: str) -> None:
    write(tmp_path, text)
    with pytest.raises(ConfigError, match=f"`{names}`: no such setting"):
        load_settings()


@pytest.mark.parametrize(
    "name",
    [
        "HEADRACE_PORT",
        "HEADRACE_GATWAY__PORT",
        "HEADRACE_GATEWAY__PROT",
        "HEADRACE_GATEWAY__UPSTREAM__URLL",
        "HEADRACE_GATEWAY_PORT",
        "HEADRACE_CONFIG_FILE",
        "HEADRACE_KEYS",
        "headrace_prot",
    ],
)
def test_an_unknown_name_in_the_environment_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(ConfigError) as caught:
        load_settings()
    last = name.rsplit("__", 1)[-1]
    assert last.lower() in str(caught.value).lower()


@pytest.mark.parametrize(
    "name", ["HEADRACE_KEY", "HEADRACE_SHARED_DATA", "HEADRACE_TEST_ANYTHING", "OTHER_HEADRACE_X"]
)
def test_names_that_are_no_settings_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "x")
    assert load_settings().gateway.port == 8400


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("HEADRACE_GATEWAY__PORT", "many", "`gateway.port`"),
        ("HEADRACE_KAFKA__NUM_PARTITIONS", "0", "greater than or equal to 1"),
        ("HEADRACE_GATEWAY__WHEN_SPOOL_FULL", "drop", "'block' or 'shed'"),
        ("HEADRACE_KAFKA__BOOTSTRAP_SERVERS__X", "1", "`kafka.bootstrap_servers`"),
    ],
)
def test_a_wrong_value_is_answered_by_name_and_rule(
    variable: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=r"docs/settings\.md") as caught:
        load_settings()
    assert says in str(caught.value)


def test_a_name_below_a_value_of_the_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "[gateway]\nport = 1\n")
    monkeypatch.setenv("HEADRACE_GATEWAY__PORT__X", "1")
    with pytest.raises(ConfigError, match="goes below `port`"):
        load_settings()


def test_a_file_that_is_no_toml_says_where(tmp_path: Path) -> None:
    path = write(tmp_path, "gateway = {")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_settings(path)
    path.write_bytes(b"log_level = '\xff'")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_settings(path)


def test_a_file_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read .*HEADRACE_CONFIG"):
        load_settings(tmp_path)


def test_the_password_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "clickhouse").write_text("s3cret\n")
    assert load_settings(data_dir=tmp_path).clickhouse_password == "s3cret"
    absent = write(tmp_path, "[clickhouse]\npassword_file = 'absent'\n")
    with pytest.raises(ConfigError, match="password_file absent does not exist"):
        _ = load_settings(absent).clickhouse_password


def test_the_document_names_every_setting() -> None:
    text = settings_doc.markdown()
    assert "`HEADRACE_GATEWAY__UPSTREAM__API_KEY_FILE`" in text
    assert "## `[assembly]`" in text
