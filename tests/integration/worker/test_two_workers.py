"""Two worker processes under constant traffic, then one is killed with all that it has started.

`make test` takes 15 updates, `make soak` 50. Most of the time goes to three starts of vLLM.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from infra.local.ports import free_ports
from infra.local.processes import ProcessIdentity, identify, is_alive
from schemas import codec, topics
from schemas.atdp.weights import (
    AckStatus,
    RingAssignment,
    RingState,
    VersionRef,
    WeightsAck,
    WeightsManifest,
)
from schemas.bus import Record, transact
from schemas.bus.access import KafkaAccess
from schemas.bus.kafka import KafkaBus
from schemas.rings import ring_key
from schemas.store import BlobStore
from schemas.weights.publish import Publisher
from tests.live_engine import ask
from tests.tiny_model import first_version, letter_of, next_version, write_model

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[3]
READY_SECONDS = 300.0
WAIT_SECONDS = 60.0


@dataclass
class WorkerProcess:
    """`python -m inference.worker` with an engine of its own."""

    name: str
    port: int
    environment: dict[str, str]
    log: Path
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "inference.worker"],
                env=self.environment, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT,
            )  # fmt: skip

    def has_failed(self) -> bool:
        return self.process is not None and self.process.poll() not in {None, -signal.SIGKILL}

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)

    def kill(self) -> list[ProcessIdentity]:
        """SIGKILL; the processes that it had started, and they theirs."""
        assert self.process is not None
        family = [identify(pid) for pid in descendants(self.process.pid)]
        self.process.kill()
        self.process.wait(10)
        return [member for member in family if member is not None]


def descendants(pid: int) -> list[int]:
    """All processes below one, by /proc."""
    try:
        text = "".join(p.read_text() for p in Path(f"/proc/{pid}/task").glob("*/children"))
    except (FileNotFoundError, ProcessLookupError):
        return []
    children = [int(word) for word in text.split()]
    return [member for child in children for member in [child, *descendants(child)]]


@dataclass
class Ring:
    """Two workers, their publisher, and who assigns."""

    bus: KafkaBus
    workers: list[WorkerProcess]
    publisher: Publisher
    tensors: dict[str, object]
    sequence: int = 0
    manifests: list[WeightsManifest] = field(default_factory=list)
    latest: dict[str, WeightsAck] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.acks = self.bus.consumer()
        self.acks.assign({(topics.WEIGHTS_ACKS, 0): 0})
        self.transactions = self.bus.transactions("controlplane.promotion")

    def publish(self) -> WeightsManifest:
        version = len(self.manifests) + 1
        if version > 1:
            self.tensors = next_version(self.tensors, version)  # type: ignore[arg-type, assignment]
        self.manifests.append(self.publisher.publish(self.tensors))  # type: ignore[arg-type]
        return self.manifests[-1]

    def assign(self, manifest: WeightsManifest) -> None:
        self.sequence += 1
        assignment = RingAssignment(
            policy="main", ring="default", state=RingState.STABLE, decision_id="d",
            stable=VersionRef(version=manifest.version, root=manifest.root),
            sequence=self.sequence, decided_at=datetime.now(UTC),
        )  # fmt: skip
        record = Record(
            topics.WEIGHTS_PROMOTIONS, ring_key("main", "default"), codec.encode(assignment)
        )
        transact(self.transactions, [record])

    def latest_acks(self) -> dict[str, WeightsAck]:
        """What each worker has said last; waits a little for news."""
        for record in self.acks.poll(100, 0.05):
            ack = codec.decode(record.value)
            assert isinstance(ack, WeightsAck)
            self.latest[ack.worker_id] = ack
        return self.latest

    def wait_until_served(
        self, manifest: WeightsManifest, names: set[str], seconds: float = WAIT_SECONDS
    ) -> None:
        def is_served() -> bool:
            acks = self.latest_acks()
            return all(
                name in acks
                and acks[name].version == manifest.version
                and acks[name].status is AckStatus.APPLIED
                for name in names
            )

        wait_for(is_served, seconds, self.workers)


def wait_for(condition: Callable[[], bool], seconds: float, workers: list[WorkerProcess]) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        logs = "\n".join(worker.log.read_text()[-1500:] for worker in workers)
        assert time.monotonic() < deadline, logs
        assert not any(worker.has_failed() for worker in workers), logs


class Traffic:
    """Clients that ask all the time and check each answer against its label."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls
        self._stop = threading.Event()
        self.wrong: list[str] = []
        self.versions: set[tuple[str, int]] = set()
        self._threads = [threading.Thread(target=self._ask, args=(url,)) for url in urls * 2]

    def __enter__(self) -> "Traffic":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, url: str) -> None:
        # A breath between two calls: the engines need the processor too, on small machines.
        while not self._stop.wait(0.02):
            try:
                text, headers = ask(url)
            except (urllib.error.URLError, OSError) as error:
                self.wrong.append(f"{url}: {error}")
                return
            version = int(headers["policy-version"])
            self.versions.add((url, version))
            if text != letter_of(version):
                self.wrong.append(f"{url}: {text} from version {version}")


@contextmanager
def rings(kafka: str, python: Path, folder: Path) -> Iterator[Ring]:
    prefix = f"t{uuid.uuid4().hex[:8]}."
    bus = KafkaBus(KafkaAccess(kafka, prefix=prefix))
    names = (topics.WEIGHTS_CHUNKS, topics.WEIGHTS_VERSIONS, topics.WEIGHTS_PROMOTIONS,
             topics.WEIGHTS_ACKS, topics.WORKERS)  # fmt: skip
    bus.admin().create_topics([topics.topic(name) for name in names], 1, 1)
    tensors = first_version(tied=False)
    model = write_model(folder / "model", tensors)
    publisher = Publisher(bus, BlobStore((folder / "blobs").as_uri()), "main")
    workers = []
    for name, port in zip(("one", "two"), free_ports(2), strict=True):
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")},
            "HEADRACE_DATA_DIR": str(folder),
            "HEADRACE_KAFKA__BOOTSTRAP_SERVERS": kafka,
            "HEADRACE_KAFKA__TOPIC_PREFIX": prefix,
            "HEADRACE_WORKER__ID": name,
            "HEADRACE_WORKER__PORT": str(port),
            "HEADRACE_WORKER__MODEL": str(model),
            "HEADRACE_WORKER__PYTHON": str(python),
            "HEADRACE_WORKER__ENGINE_ARGS": json.dumps(["--max-model-len", "512"]),
        }
        workers.append(WorkerProcess(name, port, environment, folder / f"{name}.log"))
    with ExitStack() as stack:
        for worker in workers:
            stack.callback(worker.stop)
            worker.start()
        yield Ring(bus, workers, publisher, dict(tensors))
        publisher.close()


@pytest.mark.parametrize("num_updates", [15, pytest.param(50, marks=pytest.mark.soak)])
def test_updates_under_traffic_and_a_kill(
    kafka: str, engine_python: Path, tmp_path: Path, num_updates: int
) -> None:
    with rings(kafka, engine_python, tmp_path) as ring:
        one, two = ring.workers
        first = ring.publish()
        ring.assign(first)
        ring.wait_until_served(first, {"one", "two"}, READY_SECONDS)
        with Traffic([one.url, two.url]) as traffic:
            for _ in range(num_updates):
                manifest = ring.publish()
                ring.assign(manifest)
                ring.wait_until_served(manifest, {"one", "two"})
            for back in (1, min(20, num_updates - 1)):
                manifest = ring.manifests[-1 - back]
                ring.assign(manifest)
                ring.wait_until_served(manifest, {"one", "two"})
        assert traffic.wrong == []
        for worker in (one, two):
            assert len({v for url, v in traffic.versions if url == worker.url}) > num_updates / 2

        # One worker is killed while it follows a burst of versions.
        last = ring.manifests[-1]
        for _ in range(5):
            last = ring.publish()
            ring.assign(last)
        family = one.kill()
        assert len(family) > 1
        wait_for(lambda: not any(is_alive(member) for member in family), 10.0, ring.workers)
        with Traffic([two.url]) as traffic:
            ring.wait_until_served(last, {"two"})
            one.start()
            ring.wait_until_served(last, {"one", "two"}, READY_SECONDS)
        assert traffic.wrong == []
        assert traffic.versions, "the other one answers meanwhile"
        assert ask(one.url)[0] == ask(two.url)[0] == letter_of(last.version)
        two.stop()
        assert two.process is not None
        assert two.process.returncode == 0
