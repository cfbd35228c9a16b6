"""The children that make headrace on one machine.

    kafka ──▶ topics ──▶ gateway, redaction, assembly
      clickhouse ──────▶ sink
                         promotion   (where calls go to a ring)
                         worker      (with a model)

Kafka and ClickHouse are started only where settings name no other. Everything a client needs to
find the stack is in its endpoints, which are settings under their environment names.
"""

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from infra.local.children import ChildSpec, FileProbe, HttpProbe, KafkaProbe, Port
from infra.local.learning import learning_children
from infra.local.passwords import ensure_password
from infra.local.ports import alternative_to, is_free
from infra.local.serving import Served, promotion_child, serving_children, serving_endpoints
from infra.local.state import run_dir
from infra.local.supervisor import Plan
from schemas import topics
from schemas.secrets import create_root_secret
from schemas.settings import Settings

_LOOPBACK = "127.0.0.1"
_PROCESSORS = (
    ("redaction", topics.REDACTION),
    ("assembly", topics.ASSEMBLY),
    ("sink", topics.SINK),
)


@dataclass(frozen=True)
class Ports:
    """Where the local services listen."""

    kafka: int = 9092
    kafka_controller: int = 9093
    clickhouse: int = 8123
    gateway: int = 8400
    worker: int = 8500
    #: /metrics and /health of redaction, assembly and sink.
    processors: tuple[int, ...] = (8401, 8402, 8403)
    #: The same of batching and the trainer.
    learning: tuple[int, int] = (8404, 8405)

    def as_options(self) -> list[str]:
        """The same ports as command-line options."""
        return [
            f"--kafka-port={self.kafka}",
            f"--clickhouse-port={self.clickhouse}",
            f"--gateway-port={self.gateway}",
            f"--worker-port={self.worker}",
        ]

    @classmethod
    def from_settings(
        cls,
        settings: Settings,
        *,
        kafka: int | None = None,
        clickhouse: int | None = None,
        gateway: int | None = None,
        worker: int | None = None,
    ) -> "Ports":
        """Ports named on the command line, else those of the settings."""
        kafka_port = kafka or cls.kafka
        # Nobody connects to the controller but the broker itself: any free port will do.
        controller = kafka_port + 1
        if not is_free(controller):
            controller = alternative_to(controller)
        clickhouse_port = clickhouse or settings.clickhouse.port
        gateway_port = gateway or settings.gateway.port
        worker_port = worker or settings.worker.port
        taken = {kafka_port, controller, clickhouse_port, gateway_port, worker_port}
        beside: list[int] = []
        for _ in range(len(_PROCESSORS) + 2):  # next to the gateway: a scraper's list is short
            last = beside[-1] if beside else gateway_port
            beside.append(alternative_to(last, avoid=frozenset({*taken, *beside})))
        *processors, batching, trainer = beside
        return cls(
            kafka_port, controller, clickhouse_port, gateway_port, worker_port,
            tuple(processors), (batching, trainer),
        )  # fmt: skip


def uses_local_kafka(settings: Settings) -> bool:
    """True unless settings name a broker."""
    return "bootstrap_servers" not in settings.kafka.model_fields_set


def uses_local_clickhouse(settings: Settings) -> bool:
    """True unless settings name a server."""
    return "host" not in settings.clickhouse.model_fields_set


def make_plan(
    settings: Settings, ports: Ports, only: Collection[str] = (), served: Served | None = None
) -> Plan:
    """The whole stack, or only the named children; what they need is then assumed to run.

    With `served` a worker serves that model behind the gateway, and a trainer learns it where that
    is wished.
    """
    data_dir = settings.data_dir.absolute()
    endpoints = _endpoints(settings, ports, data_dir)
    if served is not None:
        endpoints |= serving_endpoints(settings, served, ports.worker)
    children = []
    if uses_local_kafka(settings):
        children.append(_kafka(data_dir, ports))
    if uses_local_clickhouse(settings):
        children.append(_clickhouse(data_dir, ports))
    names = {child.name for child in children}
    environment = {**endpoints, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    children += _services(environment, settings, ports, names)
    children += _model(environment, settings, ports, served)
    if only:
        kept = [child for child in children if child.name in only]
        children = [replace(c, after=[need for need in c.after if need in only]) for c in kept]
    urls = _urls(settings, endpoints)
    if served is not None:
        urls["model"] = served.name
    return Plan(data_dir, children, endpoints, urls)


def _model(
    environment: Mapping[str, str], settings: Settings, ports: Ports, served: Served | None
) -> list[ChildSpec]:
    """What serves a model here and what learns it; of a ring elsewhere, who decides."""
    data_dir = Path(environment["HEADRACE_DATA_DIR"])
    if served is None:
        is_ring = settings.gateway.ring is not None
        return [promotion_child(environment, data_dir)] if is_ring else []
    children = serving_children(environment, data_dir, ports.worker)
    if served.learns:
        children += learning_children(environment, settings, served, data_dir, ports.learning)
    return children


def prepare_data_dir(settings: Settings) -> None:
    """Make the directory, the root secret and the store's passwords unless they exist."""
    data_dir = settings.data_dir.absolute()
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    create_root_secret(settings.root_secret_file)
    if settings.weights_key_file is not None:
        create_root_secret(settings.weights_key_file)
    if uses_local_clickhouse(settings):
        ensure_password(data_dir / "secrets" / "clickhouse")
        ensure_password(data_dir / "secrets" / "clickhouse-ro")


def _endpoints(settings: Settings, ports: Ports, data_dir: Path) -> dict[str, str]:
    endpoints = {
        "HEADRACE_DATA_DIR": str(data_dir),
        "HEADRACE_GATEWAY__HOST": settings.gateway.host,
        "HEADRACE_GATEWAY__PORT": str(ports.gateway),
        "HEADRACE_GATEWAY__WORKERS": str(settings.gateway.workers),
        "HEADRACE_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
        "HEADRACE_CLICKHOUSE__HOST": settings.clickhouse.host,
        "HEADRACE_CLICKHOUSE__PORT": str(settings.clickhouse.port),
    }
    if uses_local_kafka(settings):
        endpoints["HEADRACE_KAFKA__BOOTSTRAP_SERVERS"] = f"{_LOOPBACK}:{ports.kafka}"
    if uses_local_clickhouse(settings):
        endpoints["HEADRACE_CLICKHOUSE__HOST"] = _LOOPBACK
        endpoints["HEADRACE_CLICKHOUSE__PORT"] = str(ports.clickhouse)
    return endpoints


def _urls(settings: Settings, endpoints: Mapping[str, str]) -> dict[str, str]:
    clickhouse = (
        f"{endpoints['HEADRACE_CLICKHOUSE__HOST']}:{endpoints['HEADRACE_CLICKHOUSE__PORT']}"
    )
    gateway = f"{endpoints['HEADRACE_GATEWAY__HOST']}:{endpoints['HEADRACE_GATEWAY__PORT']}"
    return {
        "gateway": f"http://{gateway}/v1",
        "kafka": endpoints["HEADRACE_KAFKA__BOOTSTRAP_SERVERS"],
        "clickhouse": f"{'https' if settings.clickhouse.secure else 'http'}://{clickhouse}",
    }


def _kafka(data_dir: Path, ports: Ports) -> ChildSpec:
    command = [sys.executable, "-m", "infra.local.kafka", "--data-dir", str(data_dir / "kafka")]
    command += ["--port", str(ports.kafka), "--controller-port", str(ports.kafka_controller)]
    return ChildSpec(
        name="kafka",
        command=command,
        probe=KafkaProbe(ports.kafka, data_dir / "kafka" / "log"),
        ports=(Port(ports.kafka, "Kafka", "--kafka-port"),),
        # The first start on a machine may fetch the jars.
        ready_within_seconds=900.0,
        stop_grace_seconds=30.0,
    )


def _clickhouse(data_dir: Path, ports: Ports) -> ChildSpec:
    command = [sys.executable, "-m", "infra.local.clickhouse"]
    command += ["--data-dir", str(data_dir / "clickhouse"), "--port", str(ports.clickhouse)]
    command += ["--password-file", str(data_dir / "secrets" / "clickhouse")]
    command += ["--readonly-password-file", str(data_dir / "secrets" / "clickhouse-ro")]
    return ChildSpec(
        name="clickhouse",
        command=command,
        probe=HttpProbe(f"http://{_LOOPBACK}:{ports.clickhouse}/ping"),
        ports=(Port(ports.clickhouse, "ClickHouse", "--clickhouse-port"),),
        stop_grace_seconds=30.0,
    )


def _services(
    environment: Mapping[str, str], settings: Settings, ports: Ports, local: Collection[str]
) -> list[ChildSpec]:
    create_topics = ChildSpec(
        name="topics",
        command=[sys.executable, "-m", "infra.local.topics"],
        after=[name for name in ("kafka",) if name in local],
        environment=environment,
        one_shot=True,
    )
    gateway = ChildSpec(
        name="gateway",
        command=[sys.executable, "-m", "inference.gateway"],
        probe=HttpProbe(f"http://{settings.gateway.host}:{ports.gateway}/ready"),
        after=["topics"],
        environment=environment,
        ports=(Port(ports.gateway, "the gateway", "--gateway-port"),),
        stop_grace_seconds=settings.gateway.drain_seconds + 30.0,
    )
    # One worker a group, so each may have a name and take its partitions back after a crash.
    named = {**environment, "HEADRACE_WORKER_NAME": "local"}
    processors = [
        ChildSpec(
            name=name,
            command=[sys.executable, "-m", group],
            probe=FileProbe(run_dir(Path(environment["HEADRACE_DATA_DIR"])) / f"{group}.ready"),
            after=["topics", *(n for n in ("clickhouse",) if n in local and name == "sink")],
            environment={**named, "HEADRACE_METRICS_PORT": str(port)},
            ports=(Port(port, f"metrics of {name}", "--gateway-port"),),
        )
        for (name, group), port in zip(_PROCESSORS, ports.processors, strict=True)
    ]
    return [create_topics, gateway, *processors]
