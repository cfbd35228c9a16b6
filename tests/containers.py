"""Test services in containers, where a Docker engine answers and already holds the image.

Nothing is pulled. `testcontainers` is no dependency of the project: it is used when it is there.
"""

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.services import ClickHouseEndpoint

KAFKA_IMAGE = "apache/kafka:4.3.1"
CLICKHOUSE_IMAGE = "clickhouse/clickhouse-server:latest"
_ENGINE_TIMEOUT_SECONDS = 5.0
_PASSWORD = "only-for-this-test-run"


def has_image(image: str) -> bool:
    """True when a container of this image can be started without a network."""
    docker = shutil.which("docker")
    if docker is None or importlib.util.find_spec("testcontainers") is None:
        return False
    try:
        result = subprocess.run(
            [docker, "image", "inspect", image],
            capture_output=True,
            timeout=_ENGINE_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return result.returncode == 0


@contextmanager
def kafka() -> Iterator[str]:
    """A broker in a container; yields its bootstrap servers."""
    from testcontainers.kafka import KafkaContainer

    with KafkaContainer(KAFKA_IMAGE).with_kraft() as container:
        yield str(container.get_bootstrap_server())


@contextmanager
def clickhouse() -> Iterator[ClickHouseEndpoint]:
    """A server in a container."""
    from testcontainers.clickhouse import ClickHouseContainer

    with ClickHouseContainer(
        CLICKHOUSE_IMAGE, username="headrace", password=_PASSWORD, port=8123
    ) as container:
        yield ClickHouseEndpoint(
            container.get_container_host_ip(),
            int(container.get_exposed_port(8123)),
            "headrace",
            _PASSWORD,
        )
