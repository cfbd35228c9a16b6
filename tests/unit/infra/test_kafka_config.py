"""What the broker is configured with, and what its answer to a probe means."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from infra.local.java import Java
from infra.local.kafka import KafkaConfig, broker_command, is_ready, render_properties
from infra.local.kafka_jars import KafkaJars
from infra.local.kafka_wire import ClusterMetadata, decode_response, encode_request
from tests.ports import free_ports

CONFIG = KafkaConfig(Path("/data/kafka"), 9092, 9093, heap_mib=300)


def _properties() -> dict[str, str]:
    lines = render_properties(CONFIG).splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_it_listens_on_loopback_only() -> None:
    for name in ("listeners", "advertised.listeners"):
        for listener in _properties()[name].split(","):
            assert "://127.0.0.1:" in listener


def test_in_a_container_clients_find_it_by_name_and_the_controller_stays_on_loopback() -> None:
    config = replace(CONFIG, host="0.0.0.0", advertised_host="kafka")  # noqa: S104 - its own network
    lines = render_properties(config).splitlines()
    assert "listeners=PLAINTEXT://0.0.0.0:9092,CONTROLLER://127.0.0.1:9093" in lines
    assert "advertised.listeners=PLAINTEXT://kafka:9092,CONTROLLER://127.0.0.1:9093" in lines
    assert config.bootstrap_servers == "kafka:9092"


def test_one_broker_is_enough_for_the_internal_topics() -> None:
    replication = {
        k: v for k, v in _properties().items() if k.endswith((".replication.factor", ".isr"))
    }
    assert len(replication) == 5
    assert set(replication.values()) == {"1"}


def test_topics_are_never_created_by_accident() -> None:
    assert _properties()["auto.create.topics.enable"] == "false"


def test_a_record_of_one_mebibyte_fits_into_a_message() -> None:
    assert int(_properties()["message.max.bytes"]) > 1024 * 1024 + 100_000


def test_the_heap_is_bounded() -> None:
    command = broker_command(
        CONFIG, Java(Path("/j/java"), 17, "PATH"), KafkaJars(Path("/libs"), "x")
    )
    assert command[0] == "/j/java"
    assert "-Xmx300m" in command
    assert command[-2:] == ["kafka.Kafka", "/data/kafka/server.properties"]


def test_the_probe_asks_for_no_topic_and_creates_none() -> None:
    request = encode_request()
    assert struct.unpack(">i", request[:4])[0] == len(request) - 4
    assert request[-5:] == b"\x00\x00\x00\x00\x00"


def _response(num_brokers: int, controller_id: int) -> bytes:
    broker = struct.pack(">ih4sih", 1, 4, b"host", 9092, -1)
    return (
        struct.pack(">iii", 7, 0, num_brokers)
        + broker * num_brokers
        + struct.pack(">h2si", 2, b"id", controller_id)
    )


def test_an_answer_is_read() -> None:
    assert decode_response(_response(2, 1)) == ClusterMetadata("id", 1, 2)


def test_a_broker_without_controller_is_seen_as_such() -> None:
    assert decode_response(_response(0, -1)).controller_id == -1


@pytest.mark.parametrize("cut", [0, 5, 12, 20, 30])
def test_a_cut_answer_is_an_error(cut: int) -> None:
    with pytest.raises((struct.error, EOFError)):
        decode_response(_response(1, 1)[:cut])


def test_nobody_there_is_not_ready() -> None:
    assert not is_ready("127.0.0.1", free_ports(1)[0])
