"""TLS on the way to the real store: what is trusted, what is not, and the sentence for it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inference.trajectories import read_trajectory
from schemas.errors import ConfigError
from schemas.settings import ClickHouseSettings, Settings
from streams.sink.migrate import open_migrated
from streams.sink.store import open_client
from tests.certificates import Authority
from tests.services import ClickHouseEndpoint
from tests.tls_proxy import tls_before

pytestmark = pytest.mark.integration

DATABASE = "secured"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("store-authority"))


@pytest.fixture(scope="module")
def tls_port(clickhouse: ClickHouseEndpoint, authority: Authority) -> Iterator[int]:
    with tls_before(clickhouse.port, authority) as port:
        yield port


@pytest.fixture
def given(
    clickhouse: ClickHouseEndpoint, authority: Authority, tls_port: int, tmp_path: Path
) -> dict[str, Any]:
    """Settings that the store accepts."""
    (tmp_path / "password").write_text(clickhouse.password)
    return {
        "host": "127.0.0.1",
        "port": tls_port,
        "user": clickhouse.user,
        "password_file": tmp_path / "password",
        "database": DATABASE,
        "secure": True,
        "ca_file": authority.ca_file,
    }


def settings_of(given: dict[str, Any], **changes: Any) -> Settings:
    return Settings(clickhouse=ClickHouseSettings(**{**given, **changes}))


def test_sink_and_gateway_reach_the_store_over_tls(given: dict[str, Any]) -> None:
    settings = settings_of(given)
    store, applied = open_migrated(settings, wait_seconds=0, pause=lambda _: None)
    assert applied
    assert store.rows("SELECT count() FROM steps") == [(0,)]
    store.close()
    assert asyncio.run(read_trajectory(settings, "acme", "nothing-yet")) is None


def test_an_authority_that_nobody_trusts_is_told(
    given: dict[str, Any], stranger: Authority
) -> None:
    for ca_file in (stranger.ca_file, None):
        with pytest.raises(ConfigError, match=r"not trusted.*clickhouse\.ca_file"):
            open_client(settings_of(given, ca_file=ca_file))


def test_a_wrong_password_a_missing_file_and_a_plain_port_are_told(
    given: dict[str, Any], clickhouse: ClickHouseEndpoint, tmp_path: Path
) -> None:
    (tmp_path / "wrong").write_text("wrong-password")
    with pytest.raises(ConfigError, match=r"clickhouse\.password_file") as caught:
        open_client(settings_of(given, password_file=tmp_path / "wrong"))
    assert "wrong-password" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"clickhouse\.ca_file names .*absent"):
        open_client(settings_of(given, ca_file=tmp_path / "absent"))
    with pytest.raises(ConfigError, match=r"speaks no TLS.*clickhouse\.port"):
        open_client(settings_of(given, port=clickhouse.port))
