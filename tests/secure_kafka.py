"""A real broker that asks for TLS and a password, beside a plain listener for its own needs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from infra.local import kafka as local_kafka
from infra.local.java import find_java
from infra.local.kafka_jars import resolve_jars
from tests import services
from tests.certificates import Authority
from tests.ports import free_ports

USER = "headrace-test"
#: May do everything, but only to what begins with `NARROW_PREFIX`.
NARROW_USER, NARROW_PREFIX = "headrace-narrow", "team-a."
PASSWORD = 'correct horse, "battery" staple'
_LOGIN = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class SecureKafka:
    """Bootstrap servers of each listener, and the authority behind their certificate."""

    plain: str
    tls: str
    sasl_tls: str
    authority: Authority


@contextmanager
def running(directory: Path) -> Iterator[SecureKafka]:
    """The broker for the length of the block. `tls` asks every client for a certificate."""
    plain, controller, tls, sasl = free_ports(4)
    config = local_kafka.KafkaConfig(directory / "kafka", plain, controller, heap_mib=256)
    authority = Authority(directory / "certificates")
    java, jars = find_java(), resolve_jars(lambda _text: None)
    local_kafka.prepare(config, java, jars)
    with config.properties_file.open("a") as properties:
        properties.write(_more_listeners(config, tls, sasl, authority))
    log = directory / "kafka.log"
    with services.running(local_kafka.broker_command(config, java, jars), log) as process:
        local_kafka.wait_until_ready(
            config, services.START_TIMEOUT_SECONDS, lambda: process.poll() is None
        )
        _add_users(config.bootstrap_servers)
        yield SecureKafka(
            config.bootstrap_servers, f"127.0.0.1:{tls}", f"127.0.0.1:{sasl}", authority
        )


def _more_listeners(
    config: local_kafka.KafkaConfig, tls: int, sasl: int, authority: Authority
) -> str:
    certificate, key = authority.issue("broker")
    keystore = certificate.with_suffix(".keystore.pem")
    keystore.write_bytes(key.read_bytes() + certificate.read_bytes())
    own = f"PLAINTEXT://127.0.0.1:{config.port},CONTROLLER://127.0.0.1:{config.controller_port}"
    listeners = f"{own},TLS://127.0.0.1:{tls},SASL://127.0.0.1:{sasl}"
    escaped = PASSWORD.replace('"', '\\\\"')
    properties = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,SASL:SASL_SSL"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:CN=client;User:{USER}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": keystore,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.ca_file,
        "listener.name.tls.ssl.client.auth": "required",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl.plain.sasl.jaas.config": (
            f'{_LOGIN}.plain.PlainLoginModule required user_{USER}="{escaped}";'
        ),
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": (
            f"{_LOGIN}.scram.ScramLoginModule required;"
        ),
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": (
            f"{_LOGIN}.scram.ScramLoginModule required;"
        ),
    }
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def _add_users(bootstrap_servers: str) -> None:
    """Passwords, and the rules that docs/deploy.md asks for."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for user, mechanism in (
        (USER, ScramMechanism.SCRAM_SHA_256),
        (USER, ScramMechanism.SCRAM_SHA_512),
        (NARROW_USER, ScramMechanism.SCRAM_SHA_512),
    ):
        credential = ScramCredentialInfo(mechanism, 4096)
        wanted = UserScramCredentialUpsertion(user, credential, PASSWORD.encode())
        for future in admin.alter_user_scram_credentials([wanted]).values():
            future.result(30)
    rules = [
        AclBinding(
            kind, NARROW_PREFIX, ResourcePatternType.PREFIXED, f"User:{NARROW_USER}", "*",
            AclOperation.ALL, AclPermissionType.ALLOW,
        )
        for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    ]  # fmt: skip
    for made in admin.create_acls(rules).values():
        made.result(30)
