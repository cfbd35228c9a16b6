"""TLS and passwords on the way to a real broker, through both client libraries."""

import asyncio
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from inference.gateway.app import Gateway
from schemas import topics
from schemas.bus import Record, deliver
from schemas.bus.access import KafkaAccess
from schemas.bus.kafka import KafkaBus
from schemas.errors import ConfigError, TransientError
from schemas.secrets import create_root_secret
from schemas.settings import KafkaSettings, Settings
from schemas.topics import Topic
from tests import services
from tests.certificates import Authority
from tests.integration.runtime import counting_processor as program
from tests.ports import free_ports
from tests.secure_kafka import NARROW_PREFIX, NARROW_USER, PASSWORD, USER, SecureKafka

pytestmark = pytest.mark.integration

TIMEOUT_SECONDS = 120.0
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def sasl(
    broker: SecureKafka, folder: Path, mechanism: str = "SCRAM-SHA-512", **changes: Any
) -> KafkaSettings:
    """Settings that the broker accepts, but for the changes."""
    password_file = folder / "password"
    password_file.write_text(f"{changes.pop('password', PASSWORD)}\n")
    given: dict[str, Any] = {
        "bootstrap_servers": broker.sasl_tls,
        "secure": True,
        "ca_file": broker.authority.ca_file,
        "sasl_mechanism": mechanism,
        "sasl_user": USER,
        "sasl_password_file": password_file,
    }
    return KafkaSettings(**{**given, **changes})


def mutual_tls(broker: SecureKafka, **changes: Any) -> KafkaSettings:
    certificate_file, key_file = broker.authority.issue("client")
    given: dict[str, Any] = {
        "bootstrap_servers": broker.tls,
        "secure": True,
        "ca_file": broker.authority.ca_file,
        "certificate_file": certificate_file,
        "key_file": key_file,
    }
    return KafkaSettings(**{**given, **changes})


def passes_a_record(settings: KafkaSettings) -> bool:
    """Create a topic, produce, consume, commit, as the services do."""
    bus = KafkaBus.from_settings(settings)
    admin, name = bus.admin(), f"secured-{uuid.uuid4()}"
    admin.create_topics([Topic(name, "test", "key", 1, "delete", 1.0, "test", ())], 1, 1)
    producer, consumer = bus.producer("secured"), bus.consumer()
    try:
        asyncio.run(deliver(producer, [Record(name, b"k", b"v")]))
        consumer.assign({(name, 0): 0})
        received = _first(consumer)
        admin.commit(name, {(name, 0): 1})
        return received == b"v" and admin.committed(name, [name]) == {(name, 0): 1}
    finally:
        producer.close()
        consumer.close()


def _first(consumer: Any) -> bytes | None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        for record in consumer.poll(1, 0.2):
            value: bytes | None = record.value
            return value
    return None


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  # our own
        text: str = answer.read().decode()
        return text


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_password_over_tls_is_enough(
    secured: SecureKafka, tmp_path: Path, mechanism: str
) -> None:
    assert passes_a_record(sasl(secured, tmp_path, mechanism))


def test_a_client_certificate_is_enough(secured: SecureKafka) -> None:
    assert passes_a_record(mutual_tls(secured))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_told_at_once_and_not_repeated(
    secured: SecureKafka, tmp_path: Path, mechanism: str
) -> None:
    settings = sasl(secured, tmp_path, mechanism, password="wrong-password")
    started = time.monotonic()
    with pytest.raises(ConfigError, match=r"refuses the user.*kafka\.sasl_password_file") as caught:
        KafkaBus.from_settings(settings).admin().topics()
    assert "wrong-password" not in f"{caught.value}{caught.value.__cause__}"
    assert time.monotonic() - started < 10


def test_an_authority_that_nobody_trusts_is_told(
    secured: SecureKafka, tmp_path: Path, stranger: Authority
) -> None:
    settings = sasl(secured, tmp_path, ca_file=stranger.ca_file)
    with pytest.raises(ConfigError, match=r"not trusted.*kafka\.ca_file"):
        KafkaBus.from_settings(settings).admin().topics()


def test_a_producer_that_is_refused_keeps_its_records_and_says_why(
    secured: SecureKafka, tmp_path: Path
) -> None:
    bus = KafkaBus.from_settings(
        sasl(secured, tmp_path, password="wrong"), delivery_timeout_seconds=3.0
    )
    producer = bus.producer("refused")
    try:
        with pytest.raises(TransientError, match="refuses the user"):
            asyncio.run(deliver(producer, [Record(topics.RAW_EVENTS, b"k", b"v")]))
    finally:
        producer.close()


def test_a_client_without_the_certificate_that_is_asked_for_is_given_a_hint(
    secured: SecureKafka,
) -> None:
    settings = mutual_tls(secured, certificate_file=None, key_file=None)
    bus = KafkaBus.from_settings(settings, request_seconds=2.0)
    with pytest.raises(TransientError, match=r"TLS fails.*kafka\.certificate_file"):
        bus.admin().topics()


def test_a_key_file_that_holds_no_key_is_told(secured: SecureKafka, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("no key\n")
    bus = KafkaBus.from_settings(mutual_tls(secured, key_file=tmp_path / "key"))
    with pytest.raises(ConfigError, match=r"kafka\.key_file"):
        bus.admin()


class Deployment:
    """A processor in the real shell, with its topics under a prefix."""

    def __init__(
        self, settings: KafkaSettings, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.log = folder / "processor.log"
        self.group = f"test.{uuid.uuid4().hex}"
        self.topic = f"{self.group}.in"
        environment = {
            "HEADRACE_DATA_DIR": str(folder),
            program.GROUP: self.group,
            program.TOPIC: self.topic,
        }
        for name, value in settings.model_dump(exclude_none=True).items():
            environment[f"HEADRACE_KAFKA__{name.upper()}"] = str(value)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    @property
    def topics(self) -> list[Topic]:
        names = (self.topic, program.output_topic(self.topic), f"dead.{self.topic}")
        made = [Topic(n, "test", "key", 4, "delete", 24.0, "test", ()) for n in names]
        changelog = topics.changelog_topic(self.group, program.TABLE)
        made.append(Topic(changelog, "test", "key", 4, "compact", 24.0, "test", ()))
        return [*made, topics.topic(topics.REPLAYS)]

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        with services.running([sys.executable, "-m", program.__name__], self.log) as process:
            yield process


def test_who_has_no_right_is_told_which(secured: SecureKafka, tmp_path: Path) -> None:
    settings = sasl(secured, tmp_path, sasl_user=NARROW_USER, topic_prefix="team-b.")
    bus = KafkaBus.from_settings(settings)
    admin, topic = bus.admin(), Topic("t", "test", "key", 1, "delete", 1.0, "test", ())
    with pytest.raises(ConfigError, match=r"does not allow the user 'headrace-narrow'.*team-b\."):
        admin.create_topics([topic], 1, 1)
    KafkaBus(KafkaAccess(secured.plain, prefix="team-b.")).admin().create_topics([topic], 1, 1)
    producer = bus.producer("narrow")
    try:
        with pytest.raises(ConfigError):
            asyncio.run(deliver(producer, [Record("t", b"k", b"v")]))
    finally:
        producer.close()


def test_a_processor_works_with_the_rights_that_the_manual_asks_for(
    secured: SecureKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over TLS, with a password, under a prefix, and allowed nothing else."""
    settings = sasl(secured, tmp_path, sasl_user=NARROW_USER, topic_prefix=NARROW_PREFIX)
    deployment = Deployment(settings, tmp_path, monkeypatch)
    (port,) = free_ports(1)
    monkeypatch.setenv("HEADRACE_METRICS_PORT", str(port))
    bus = KafkaBus.from_settings(settings)
    admin, producer, consumer = bus.admin(), bus.producer("test"), bus.consumer()
    admin.create_topics(deployment.topics, 4, 1)
    with deployment.worker() as process:
        sent = [Record(deployment.topic, f"{i % 3}".encode(), f"{i}".encode()) for i in range(12)]
        asyncio.run(deliver(producer, [*sent, Record(deployment.topic, b"raw", b"poison")]))
        output = program.output_topic(deployment.topic)
        consumer.assign({(output, p): 0 for p in range(4)})
        last: dict[bytes, bytes] = {}

        def is_complete() -> bool:
            for record in consumer.poll(100, 0.2):
                last[record.key or b""] = record.value or b""
            return set(last.values()) == {b"0,3,6,9", b"1,4,7,10", b"2,5,8,11"}

        def has_committed() -> bool:
            return sum(admin.committed(deployment.group, [deployment.topic]).values()) == 13

        services.wait_for(is_complete, process, deployment.log, TIMEOUT_SECONDS)
        services.wait_for(has_committed, process, deployment.log, TIMEOUT_SECONDS)
        door = f"http://127.0.0.1:{port}"
        labels = f'group="{deployment.group}",partition="0",topic="{deployment.topic}"'

        def shows_no_lag() -> bool:
            return f"headrace_lag_records{{{labels}}} 0.0" in _read(f"{door}/metrics")

        services.wait_for(shows_no_lag, process, deployment.log, TIMEOUT_SECONDS)
        assert services.answers(f"{door}/health")
        shown = _read(f"{door}/metrics")
    assert 'result="dead_lettered"} 1.0' in shown
    assert 'reason="undecodable"} 1.0' in shown
    assert 'reason="oversized"} 0.0' in shown, "a first one must show as an increase"
    assert "headrace_healthy 1.0" in shown
    dead = admin.watermarks(f"dead.{deployment.topic}")
    assert sum(end for _, end in dead.values()) == 1
    state = admin.watermarks(topics.changelog_topic(deployment.group, program.TABLE))
    assert sum(end for _, end in state.values()) > 0
    on_the_cluster = KafkaBus(secured.plain).admin().topics()
    assert all(f"team-a.{name}" in on_the_cluster for name in (deployment.topic, output))
    assert not {deployment.topic, output} & on_the_cluster.keys()


async def test_a_gateway_with_a_wrong_password_starts_and_says_why_it_is_not_ready(
    secured: SecureKafka, tmp_path: Path
) -> None:
    """It takes calls without Kafka as soon as it knows keys, so it does not end."""
    create_root_secret(tmp_path / "secrets" / "root")
    kafka = sasl(secured, tmp_path, password="wrong-password")
    gateway = Gateway(Settings(data_dir=tmp_path, kafka=kafka), KafkaBus.from_settings(kafka))
    gateway.start()
    deadline = time.monotonic() + TIMEOUT_SECONDS
    try:
        while "refuses the user" not in gateway.health().why:
            assert time.monotonic() < deadline, gateway.health()
            await asyncio.sleep(0.05)
        assert not gateway.health().ready
        assert "wrong-password" not in gateway.health().why
    finally:
        await gateway.close()


def test_a_processor_with_a_wrong_password_ends_with_a_sentence(
    secured: SecureKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = sasl(secured, tmp_path, password="wrong-password")
    deployment = Deployment(settings, tmp_path, monkeypatch)
    with deployment.worker() as process:
        assert process.wait(TIMEOUT_SECONDS) == 2
    said = deployment.log.read_text()
    assert "refuses the user" in said
    assert "Traceback" not in said
    assert "wrong-password" not in said
