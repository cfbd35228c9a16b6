"""Fixtures that every part of the suite shares: the real services and the shared data."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from infra.local.engine import ensure_engine
from tests import containers, distribution, ports, services, tiny_model
from tests import live_engine as live_engines
from tests.live_engine import LiveEngine
from tests.services import ClickHouseEndpoint

#: When set, a test that needs the shared data fails where it is absent.
REQUIRE_SHARED_DATA = "HEADRACE_TEST_REQUIRE_SHARED_DATA"
#: The python of an environment with vLLM to use instead of the cached one.
ENGINE_PYTHON = "HEADRACE_TEST_ENGINE_PYTHON"
_REPOSITORY = Path(__file__).resolve().parent.parent
# A broker of the tests lives for minutes: the second compiler's work would not come back.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
# How long an example takes says more of what else the machine does than of what is tested.
settings.register_profile("headrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headrace")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> distribution.GroupScheduling:
    """How tests are shared out where several processes run them (`-n`)."""
    return distribution.GroupScheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        items[:] = distribution.in_order(items)


@pytest.fixture
def unused_tcp_port() -> int:
    """A port where nobody listens, and nobody will while the test runs."""
    return ports.free_ports(1)[0]


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bootstrap servers of a real Apache Kafka broker. One per session: name topics uniquely."""
    if configured := services.configured_kafka():
        yield configured
        return
    if containers.has_image(containers.KAFKA_IMAGE):
        with containers.kafka() as bootstrap_servers:
            yield bootstrap_servers
        return
    with services.running_kafka(tmp_path_factory.mktemp("kafka")) as bootstrap_servers:
        yield bootstrap_servers


@pytest.fixture(scope="session")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseEndpoint]:
    """A real ClickHouse engine over HTTP. One per session: name databases uniquely."""
    if configured := services.configured_clickhouse():
        yield configured
        return
    if containers.has_image(containers.CLICKHOUSE_IMAGE):
        with containers.clickhouse() as endpoint:
            yield endpoint
        return
    with services.running_clickhouse(tmp_path_factory.mktemp("clickhouse")) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def engine_python() -> Path:
    """The python of an environment with vLLM; made once per user, which takes a minute."""
    configured = os.environ.get(ENGINE_PYTHON)
    return ensure_engine(Path(configured) if configured else None, print)


@pytest.fixture(scope="session")
def _session_engine(
    engine_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveEngine]:
    folder = tmp_path_factory.mktemp("engine")
    with live_engines.running(engine_python, folder, tiny_model.first_version()) as engine:
        yield engine


@pytest.fixture
def live_engine(_session_engine: LiveEngine) -> Iterator[LiveEngine]:
    """vLLM on the tiny model with tied embeddings and fused layers. One per session: leave `held`
    right. After each test every tensor of the engine is compared with it."""
    yield _session_engine
    _session_engine.require_held()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The directory of real input. Tests that need it skip where it is absent, but fail in CI."""
    path = Path(os.environ.get("HEADRACE_SHARED_DATA", _REPOSITORY.parent / "shared" / "data"))
    if path.is_dir():
        return path
    absent = f"shared data absent: {path} (set HEADRACE_SHARED_DATA)"
    if REQUIRE_SHARED_DATA in os.environ:
        pytest.fail(absent)
    pytest.skip(absent)
