"""Which machine the figures come from, and how busy it was with other work."""

import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

_PACKAGES = ("aiohttp", "aiokafka", "chdb", "confluent-kafka", "faust-streaming", "spacy")


@dataclass(frozen=True)
class Machine:
    """What does not change during a run."""

    cpu_model: str
    num_cores: int
    memory_gib: float
    versions: tuple[tuple[str, str], ...]


def this_machine() -> Machine:
    """The machine that runs this process."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    versions = [("Python", platform.python_version()), ("Kafka", _kafka_version())]
    versions += [(name, version(name)) for name in _PACKAGES]
    return Machine(
        cpu_model=_cpu_model(Path("/proc/cpuinfo")),
        num_cores=len(os.sched_getaffinity(0)),
        memory_gib=pages / 1024**3,
        versions=tuple(versions),
    )


def load_average() -> float:
    """Processes that ran or wanted to run during the last minute."""
    return os.getloadavg()[0]


def _cpu_model(path: Path) -> str:
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _kafka_version() -> str:
    pom = Path(__file__).parents[1] / "local" / "kafka_pom.xml"
    text = pom.read_text()
    after = text.partition("<artifactId>kafka_2.13</artifactId>")[2]
    return after.partition("<version>")[2].partition("</version>")[0].strip() or "unknown"
