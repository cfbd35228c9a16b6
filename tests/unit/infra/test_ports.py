"""A taken port is answered by the sentence that fixes it."""

import re
import socket
from collections.abc import Iterator

import pytest

from infra.local.ports import alternative_to, free_ports, is_free, require_free
from schemas.errors import ConfigError


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_listening_port_is_not_free(taken: int) -> None:
    assert not is_free(taken)


def test_the_error_names_an_option_and_a_port_that_works(taken: int) -> None:
    with pytest.raises(ConfigError) as caught:
        require_free(taken, what="the gateway", option="--gateway-port")
    match = re.search(r"--gateway-port (\d+)", str(caught.value))
    assert match is not None
    assert is_free(int(match[1]))


def test_the_alternative_avoids_ports_of_the_same_stack(taken: int) -> None:
    first = alternative_to(taken)
    assert alternative_to(taken, avoid=frozenset({first})) != first


def test_free_ports_differ() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(is_free(port) for port in ports)


def test_a_free_port_is_accepted() -> None:
    require_free(free_ports(1)[0], what="Kafka", option="--kafka-port")
