"""The local broker is a real one: what is produced is consumed, what is misspelt is refused."""

import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from infra.local.java import find_java
from infra.local.kafka import KafkaConfig, is_ready, prepare
from infra.local.kafka_jars import resolve_jars
from infra.local.kafka_wire import request_metadata

pytestmark = pytest.mark.integration


def _topic(admin: AdminClient) -> str:
    name = f"test-{uuid.uuid4()}"
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(10)
    return name


def test_a_record_of_one_mebibyte_goes_through(kafka: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    topic = _topic(admin)
    payload = bytes(1024 * 1024)
    producer = Producer({"bootstrap.servers": kafka, "message.max.bytes": 2_000_000})
    producer.produce(topic, payload, key=b"k")
    assert producer.flush(10) == 0
    consumer = Consumer(
        {"bootstrap.servers": kafka, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    assert message.error() is None
    assert message.value() == payload


def test_an_unknown_topic_is_not_created(kafka: str) -> None:
    delivered = []
    producer = Producer({"bootstrap.servers": kafka, "message.timeout.ms": 1500})
    producer.produce(
        f"absent-{uuid.uuid4()}", b"x", callback=lambda error, _: delivered.append(error)
    )
    producer.flush(10)
    assert delivered
    assert delivered[0] is not None


def test_readiness_is_a_real_answer(kafka: str, unused_tcp_port: int) -> None:
    host, _, port = kafka.partition(":")
    assert is_ready(host, int(port))
    assert not is_ready(host, unused_tcp_port)


def test_the_broker_of_another_folder_is_not_taken_for_ones_own(kafka: str, tmp_path: Path) -> None:
    host, port = kafka.split(":")
    assert not is_ready(host, int(port), tmp_path)
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=another\nnode.id=1\n")
    assert not is_ready(host, int(port), tmp_path)
    metadata = request_metadata(host, int(port), 5.0)
    assert metadata is not None
    (tmp_path / "meta.properties").write_text(f"cluster.id={metadata.cluster_id}\n")
    assert is_ready(host, int(port), tmp_path)


def test_replication_beyond_one_broker_is_refused(kafka: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    name = f"test-{uuid.uuid4()}"
    with pytest.raises(KafkaException):
        admin.create_topics([NewTopic(name, 1, 3)])[name].result(10)


def test_an_id_that_looks_like_an_option_formats_the_storage(tmp_path: Path) -> None:
    """One in 64 random ids begins with a hyphen in Kafka's spelling."""
    config = KafkaConfig(tmp_path, 1, 2)
    prepare(config, find_java(), resolve_jars(print), uuid.UUID(int=0xF8 << 120))
    assert "cluster.id=-A" in (config.log_dir / "meta.properties").read_text()
