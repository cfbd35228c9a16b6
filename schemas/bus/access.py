"""How clients of one Kafka cluster reach it, prove who they are, and name their topics there."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from schemas.errors import ConfigError
from schemas.settings import KafkaSettings


@dataclass(frozen=True, slots=True)
class KafkaAccess:
    """What both client libraries are configured from. `user` None means that nobody asks.

    On the cluster every topic and group carries `prefix`; everywhere else their names are those
    of the registry, in records, tables and logs too.
    """

    bootstrap_servers: str
    prefix: str = ""
    secure: bool = False
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    mechanism: str | None = None
    user: str | None = None
    password: str = field(default="", repr=False)

    @classmethod
    def from_settings(cls, kafka: KafkaSettings) -> "KafkaAccess":
        """The access that settings describe. ConfigError where they contradict each other."""
        _require_whole(kafka)
        password = "" if kafka.sasl_password_file is None else _read(kafka.sasl_password_file)
        return cls(
            bootstrap_servers=kafka.bootstrap_servers,
            prefix=kafka.topic_prefix,
            secure=kafka.secure,
            ca_file=kafka.ca_file,
            certificate_file=kafka.certificate_file,
            key_file=kafka.key_file,
            mechanism=kafka.sasl_mechanism,
            user=kafka.sasl_user,
            password=password,
        )

    def physical(self, name: str) -> str:
        """The name of a topic or group on the cluster."""
        return self.prefix + name

    def logical(self, name: str) -> str:
        """The registry's name of a topic on the cluster; one of somebody else stays as it is."""
        return name.removeprefix(self.prefix)

    @property
    def protocol(self) -> str:
        """Kafka's own name for what is asked for."""
        transport = "SSL" if self.secure else "PLAINTEXT"
        return transport if self.user is None else f"SASL_{transport}"

    def for_librdkafka(self) -> dict[str, str]:
        """Its configuration, without callbacks."""
        given = {
            "ssl.ca.location": self.ca_file,
            "ssl.certificate.location": self.certificate_file,
            "ssl.key.location": self.key_file,
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.user,
            "sasl.password": self.password if self.user is not None else None,
        }
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.protocol,
            **{name: str(value) for name, value in given.items() if value is not None},
        }

    def ssl_context(self) -> ssl.SSLContext | None:
        """The same for clients that use Python's TLS; None without TLS."""
        if not self.secure:
            return None
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.certificate_file is not None:
            context.load_cert_chain(self.certificate_file, self.key_file)
        return context


def _require_whole(kafka: KafkaSettings) -> None:
    sasl = {
        "kafka.sasl_mechanism": kafka.sasl_mechanism,
        "kafka.sasl_user": kafka.sasl_user,
        "kafka.sasl_password_file": kafka.sasl_password_file,
    }
    missing = [name for name, value in sasl.items() if value is None]
    if missing and len(missing) < len(sasl):
        raise ConfigError(f"Set {' and '.join(missing)} too, or none of {', '.join(sasl)}.")
    if (kafka.certificate_file is None) != (kafka.key_file is None):
        raise ConfigError("Set both kafka.certificate_file and kafka.key_file, or neither.")
    files = {
        "kafka.ca_file": kafka.ca_file,
        "kafka.certificate_file": kafka.certificate_file,
        "kafka.key_file": kafka.key_file,
        "kafka.sasl_password_file": kafka.sasl_password_file,
    }
    for name, path in files.items():
        if path is not None and not path.is_file():
            raise ConfigError(f"{name} names {path}, which is no file. Correct the path.")
    tls_files = [n for n in list(files)[:3] if files[n] is not None]
    if tls_files and not kafka.secure:
        raise ConfigError(f"{tls_files[0]} has no effect without TLS. Set kafka.secure to true.")


def _read(path: Path) -> str:
    try:
        return path.read_text().rstrip("\r\n")
    except OSError as error:
        raise ConfigError(
            f"kafka.sasl_password_file {path} cannot be read ({error.strerror})."
        ) from None
