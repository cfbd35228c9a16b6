"""Settings of a cluster become the configuration of clients, or a sentence."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.bus.access import KafkaAccess
from schemas.errors import ConfigError
from schemas.settings import KafkaSettings, load_settings


def test_a_plain_cluster_asks_for_nothing() -> None:
    access = KafkaAccess.from_settings(KafkaSettings())
    assert access == KafkaAccess("127.0.0.1:9092")
    assert access.for_librdkafka() == {
        "bootstrap.servers": "127.0.0.1:9092",
        "security.protocol": "PLAINTEXT",
    }
    assert access.ssl_context() is None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"sasl_user": "u"}, r"Set kafka\.sasl_mechanism and kafka\.sasl_password_file too"),
        ({"secure": True, "key_file": Path("k")}, r"both kafka\.certificate_file and"),
        ({"secure": True, "ca_file": Path("absent")}, r"kafka\.ca_file names absent"),
        ({"ca_file": Path(__file__)}, r"Set kafka\.secure to true"),
    ],
)
def test_settings_that_cannot_work_are_told_before_anything_connects(
    given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        KafkaAccess.from_settings(KafkaSettings(**given))


def test_the_password_is_read_from_its_file_and_shown_nowhere(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(" with spaces \n")
    access = KafkaAccess.from_settings(
        KafkaSettings(
            sasl_mechanism="PLAIN", sasl_user="u", sasl_password_file=tmp_path / "password"
        )
    )
    assert access.password == " with spaces "
    assert access.for_librdkafka()["sasl.password"] == " with spaces "
    assert access.for_librdkafka()["security.protocol"] == "SASL_PLAINTEXT"
    assert "with spaces" not in repr(access)


@pytest.mark.parametrize("prefix", ["Team.", "a b", "team_a.", ".a", "a/b", "a.\n"])
def test_a_prefix_that_no_topic_may_have_is_refused(
    prefix: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_KAFKA__TOPIC_PREFIX", prefix)
    with pytest.raises(ConfigError, match=r"kafka\.topic_prefix"):
        load_settings()


@given(prefix=st.from_regex(r"([a-z0-9][a-z0-9.-]*)?", fullmatch=True), name=st.text())
def test_a_name_comes_back_from_the_cluster_as_it_went(prefix: str, name: str) -> None:
    access = KafkaAccess("somewhere:9092", prefix=prefix)
    assert access.physical(name).startswith(prefix)
    assert access.logical(access.physical(name)) == name
