"""Worker processes with engines of their own, on topics of their own, and who publishes to them."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from controlplane.promotion.process import Promotion
from inference.worker.client import EngineClient
from inference.worker.engine.middleware import SECRET_VARIABLE
from infra.local.processes import ProcessIdentity, identify
from schemas import codec, topics
from schemas.atdp.weights import AckStatus, Proposal, VersionRef, WeightsAck, WeightsManifest
from schemas.bus import Record, deliver_now
from schemas.bus.access import KafkaAccess
from schemas.bus.kafka import KafkaBus
from schemas.rings import DEFAULT_RING, proposal_key
from schemas.settings import PromotionSettings
from schemas.store import BlobStore
from schemas.weights.publish import Publisher
from schemas.weights.tensors import Tensor, digests_of
from tests.ports import free_ports
from tests.tiny_model import first_version, next_version, write_model

ROOT = Path(__file__).resolve().parents[1]
POLICY = "main"
READY_SECONDS = 400.0
WAIT_SECONDS = 120.0
TOPICS = (
    topics.WEIGHTS_CHUNKS, topics.WEIGHTS_VERSIONS, topics.WEIGHTS_PROMOTIONS,
    topics.WEIGHTS_ACKS, topics.WORKERS, topics.KEYS, topics.RAW_EVENTS,
)  # fmt: skip


@dataclass
class WorkerProcess:
    """A worker with an engine of its own; `module` is what is run as it."""

    name: str
    port: int
    environment: dict[str, str]
    log: Path
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, module: str = "inference.worker", **more: str) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module], env=self.environment | more,
                stdout=output, stderr=subprocess.STDOUT, cwd=ROOT,
            )  # fmt: skip

    def has_failed(self) -> bool:
        return self.process is not None and self.process.poll() not in {None, -signal.SIGKILL}

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)

    def family(self) -> list[ProcessIdentity]:
        """The processes that it has started, and they theirs."""
        assert self.process is not None
        found = [identify(pid) for pid in descendants(self.process.pid)]
        return [member for member in found if member is not None]

    def kill(self) -> list[ProcessIdentity]:
        """SIGKILL; its family."""
        assert self.process is not None
        family = self.family()
        self.process.kill()
        self.process.wait(10)
        return family

    def digests(self) -> dict[str, bytes]:
        """Of every tensor of the running engine, asked as the worker asks: with its secret."""
        assert self.process is not None
        (secret,) = {s for pid in descendants(self.process.pid) if (s := _secret_of(pid))}
        return EngineClient(self.port, secret).digests()


def _secret_of(pid: int) -> str | None:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return None
    wanted = f"{SECRET_VARIABLE}=".encode()
    return next((v[len(wanted) :].decode() for v in variables if v.startswith(wanted)), None)


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
    """Workers, their publisher, and the process that assigns what is proposed."""

    bus: KafkaBus
    prefix: str
    workers: list[WorkerProcess]
    publisher: Publisher
    tensors: dict[str, Tensor]
    manifests: list[WeightsManifest] = field(default_factory=list)
    #: Version → the digests of what was given to the publisher.
    digests: dict[int, dict[str, bytes]] = field(default_factory=dict)
    latest: dict[str, WeightsAck] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.acks = self.bus.consumer()
        self.acks.assign({(topics.WEIGHTS_ACKS, 0): 0})
        self.proposals = self.bus.producer("test.proposals")

    def publish(self) -> WeightsManifest:
        version = len(self.manifests) + 1
        if version > 1:
            self.tensors = next_version(self.tensors, version)
        self.manifests.append(self.publisher.publish(self.tensors))
        self.digests[version] = digests_of(self.tensors)
        return self.manifests[-1]

    def promote(self, manifest: WeightsManifest) -> None:
        """Propose it for all; `controlplane.promotion` does the rest."""
        proposal = Proposal(
            policy=POLICY, target=VersionRef(version=manifest.version, root=manifest.root),
            proposed_by="cli:test", ring=DEFAULT_RING, epoch=1, proposed_at=datetime.now(UTC),
        )  # fmt: skip
        key = proposal_key(POLICY, manifest.version, DEFAULT_RING)
        record = Record(topics.WEIGHTS_PROMOTIONS, key, codec.encode(proposal))
        deliver_now(self.proposals, [record], WAIT_SECONDS)

    def latest_acks(self) -> dict[str, WeightsAck]:
        """What each worker has said last; waits a little for news."""
        for record in self.acks.poll(1, 0.05):
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

        self.wait_for(is_served, seconds)

    def wait_for_ack_of(self, name: str, manifest: WeightsManifest, seconds: float) -> None:
        """Wait until a worker says anew that it serves a version, whatever it said before."""
        self.latest_acks()
        self.latest.pop(name, None)
        self.wait_until_served(manifest, {name}, seconds)

    def wait_for(self, condition: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
        """Wait; fails when it does not come, or a worker ends by itself."""
        deadline, never = time.monotonic() + seconds, threading.Event()
        while not condition():
            never.wait(0.01)  # the engines need the processor
            is_late = time.monotonic() > deadline
            if is_late or any(worker.has_failed() for worker in self.workers):
                logs = [worker.log.read_text()[-1500:] for worker in self.workers]
                raise AssertionError("\n".join(logs))

    def require_equal(self, manifest: WeightsManifest, *workers: WorkerProcess) -> None:
        """Every tensor of these engines is what the publisher was given, fused ones included."""
        for worker in workers:
            assert worker.digests() == self.digests[manifest.version], worker.name


@contextmanager
def rings(
    kafka: str, python: Path, folder: Path, names: tuple[str, ...] = ("one", "two"),
    *, tied: bool = False, starts: bool = True,
) -> Iterator[Ring]:  # fmt: skip
    """Workers that are starting, all at once, and everything around them."""
    prefix = f"t{uuid.uuid4().hex[:8]}."
    bus = KafkaBus(KafkaAccess(kafka, prefix=prefix))
    bus.admin().create_topics([topics.topic(name) for name in TOPICS], 1, 1)
    tensors = first_version(tied=tied)
    model = write_model(folder / "model", tensors)
    publisher = Publisher(bus, BlobStore((folder / "blobs").as_uri()), POLICY)
    workers = [
        WorkerProcess(name, port, _environment(kafka, prefix, python, folder, model)
                      | {"HEADRACE_WORKER__ID": name, "HEADRACE_WORKER__PORT": str(port)},
                      folder / f"{name}.log")
        for name, port in zip(names, free_ports(len(names)), strict=True)
    ]  # fmt: skip
    promotion = Promotion(bus, PromotionSettings())
    deciding = threading.Thread(target=promotion.run, daemon=True)
    with ExitStack() as stack:
        stack.callback(_stop_all, workers)
        for worker in workers if starts else ():
            worker.start()
        deciding.start()
        stack.callback(deciding.join, 30)
        stack.callback(promotion.stop)
        yield Ring(bus, prefix, workers, publisher, dict(tensors))
        publisher.close()


def _stop_all(workers: list[WorkerProcess]) -> None:
    """At once: an engine takes its time to end."""
    with ThreadPoolExecutor(len(workers)) as pool:
        list(pool.map(WorkerProcess.stop, workers))


def _environment(
    kafka: str, prefix: str, python: Path, folder: Path, model: Path
) -> dict[str, str]:
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")},
        "HEADRACE_DATA_DIR": str(folder),
        "HEADRACE_KAFKA__BOOTSTRAP_SERVERS": kafka,
        "HEADRACE_KAFKA__TOPIC_PREFIX": prefix,
        "HEADRACE_WORKER__MODEL": str(model),
        "HEADRACE_WORKER__PYTHON": str(python),
        "HEADRACE_WORKER__ENGINE_ARGS": json.dumps(["--max-model-len", "512"]),
    }
