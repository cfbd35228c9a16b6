"""From a published version to one that is served: a real broker, a real vLLM, a model of 135 M.

python -m infra.bench.updates [MODEL]

MODEL is a checkpoint folder; the packaged SmolLM2-135M without it. Steps are made up: a share of
the elements moves by one unit in the last place. Prints tables for docs/weights.md.

`publish` ends when readers can see the manifest; the assignment follows at once, as a trainer
proposes it, and the publisher moves its baseline meanwhile.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import numpy as np

from inference.worker.engine import layout_file, patch_file
from inference.worker.engine.patch_file import Values
from infra.bench.machine import load_average, this_machine
from infra.bench.page import machine_markdown
from infra.bench.stack import Bench, running
from infra.bench.updates_load import NUM_CLIENTS, load
from infra.local.engine import ensure_engine
from infra.local.model import ensure_model
from infra.local.ports import free_ports
from infra.local.processes import start_tethered, stop_process
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
from schemas.errors import ConfigError, TransientError
from schemas.rings import ring_key
from schemas.store import BlobStore
from schemas.weights.checkpoints import read_folder
from schemas.weights.publish import Publisher
from schemas.weights.shadow import Shadow
from schemas.weights.tensors import Tensor, Tensors
from schemas.weights.versions import restore

DENSITIES = (0.0024, 0.0063, 0.0175)
ROUNDS = 7
NUM_DELTAS = 20
POLICY = "bench"
_READY_SECONDS = 400.0
_SECONDS = 60.0


@dataclass
class Bed:
    """Publisher, assignments and acknowledgements around one worker."""

    bench: Bench
    tensors: Tensors
    publisher: Publisher
    sequence: int = 0
    manifests: list[WeightsManifest] = field(default_factory=list)

    def __post_init__(self) -> None:
        bus = self.bench.bus
        self.acks = bus.consumer()
        self.acks.assign({(topics.WEIGHTS_ACKS, 0): 0})
        self.assigner = bus.transactions("controlplane.promotion")
        self.random = np.random.default_rng(11)

    def step(self, density: float) -> None:
        """The next version's weights. What that takes is a trainer's time."""
        self.tensors = _stepped(self.tensors, self.random, density)

    def publish(
        self, on_committed: Callable[[WeightsManifest], None] = lambda _: None
    ) -> WeightsManifest:
        """The next version; the first is the model itself."""
        manifest = self.publisher.publish(self.tensors, on_committed=on_committed)
        self.manifests.append(manifest)
        return manifest

    def assign(self, manifest: WeightsManifest) -> None:
        """Let the ring serve it."""
        self.sequence += 1
        assignment = RingAssignment(
            policy=POLICY,
            ring="default",
            state=RingState.STABLE,
            decision_id="bench",
            stable=VersionRef(version=manifest.version, root=manifest.root),
            sequence=self.sequence,
            decided_at=datetime.now(UTC),
        )
        key = ring_key(POLICY, "default")
        transact(self.assigner, [Record(topics.WEIGHTS_PROMOTIONS, key, codec.encode(assignment))])

    def applied(self, seconds: float = _SECONDS) -> WeightsAck:
        """The next acknowledgement. TransientError when it does not come, or says no."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for record in self.acks.poll(1, 0.1):
                ack = codec.decode(record.value)
                if isinstance(ack, WeightsAck) and ack.status is AckStatus.APPLIED:
                    return ack
                raise TransientError(f"The worker says {ack}.")
        raise TransientError("The worker says nothing.")


@dataclass(frozen=True)
class Update:
    """One version, from the call of the publisher to the acknowledgement in our hands."""

    num_bytes: int
    publish_ms: float
    total_ms: float
    ack: WeightsAck


def _stepped(old: Tensors, random: np.random.Generator, density: float) -> dict[str, Tensor]:
    moved = {}
    for name, tensor in old.items():
        bits = np.array(tensor.bits)
        chosen = random.integers(0, bits.size, round(bits.size * density))
        bits[chosen] ^= np.uint16(1)
        moved[name] = Tensor(tensor.spec, bits)
    return moved


@contextmanager
def _worker(bed: Bed, python: Path, model: Path, mode: str) -> Iterator[tuple[str, int]]:
    """A worker process; the URL of its engine, and its process id."""
    (port,) = free_ports(1)
    settings = bed.bench.settings
    environment = {
        **os.environ,
        "HEADRACE_DATA_DIR": str(settings.data_dir),
        "HEADRACE_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
        "HEADRACE_WORKER__ID": f"bench-{mode}",
        "HEADRACE_WORKER__POLICY": POLICY,
        "HEADRACE_WORKER__MODEL": str(model),
        "HEADRACE_WORKER__PYTHON": str(python),
        "HEADRACE_WORKER__PORT": str(port),
        "HEADRACE_WORKER__PAUSE_MODE": mode,
        "HEADRACE_WORKER__ENGINE_ARGS": '["--max-model-len", "1024"]',
    }
    environment.pop("HEADRACE_CONFIG", None)
    with (settings.data_dir / f"worker-{mode}.log").open("ab") as log:
        command = [sys.executable, "-m", "inference.worker"]
        process = start_tethered(command, log=log, environment=environment)
        try:
            yield f"http://127.0.0.1:{port}", process.pid
        finally:
            stop_process(process, 30.0)


def _updates(bed: Bed, density: float, number: int) -> list[Update]:
    found = []
    for _ in range(number):
        bed.step(density)
        published = 0.0

        def assign(manifest: WeightsManifest) -> None:
            nonlocal published
            published = time.perf_counter()
            bed.assign(manifest)

        started = time.perf_counter()
        with ThreadPoolExecutor(1) as pool:  # whoever waits for the worker is not the publisher
            ended = pool.submit(_applied_at, bed)
            manifest = bed.publish(assign)
            ack, at = ended.result()
        publish_ms, total_ms = 1000 * (published - started), 1000 * (at - started)
        found.append(Update(manifest.num_bytes, publish_ms, total_ms, ack))
    return found


def _applied_at(bed: Bed) -> tuple[WeightsAck, float]:
    return bed.applied(), time.perf_counter()


def _row(name: str, updates: Sequence[Update]) -> str:
    def both(of: Callable[[Update], float | None]) -> str:
        values = [value for update in updates if (value := of(update)) is not None]
        return f"{median(values):.0f} / {max(values):.0f}"

    megabytes = sum(update.num_bytes for update in updates) / len(updates) / 1e6
    cells = [
        name,
        f"{megabytes:.2f}",
        both(lambda u: u.publish_ms),
        both(lambda u: u.ack.stage_ms),
        both(lambda u: u.ack.pause_ms),
        both(lambda u: u.total_ms - u.publish_ms),
        both(lambda u: u.total_ms),
    ]
    return "| " + " | ".join(cells) + " |"


def _rss_megabytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmRSS:"))


def _loaders(bed: Bed, python: Path, model: Path) -> list[str]:
    """The same step in place and by vLLM's loader, in an engine of its own."""
    rows = []
    base = Shadow(read_folder(model))
    folder = bed.bench.settings.data_dir
    (folder / "layout.json").write_text(layout_file.dumps(base.layout))
    for density in DENSITIES:
        new = _stepped(base.tensors, bed.random, density)
        copy = Shadow(base.tensors)
        patch = copy.apply(copy.diff(new)[0])
        changes = {n: Values(c.positions, c.new) for n, c in patch.changes.items()}
        patch_file.write(folder / "patch", changes)
        command = [str(python), "-m", "inference.worker.engine.comparison", str(model)]
        command += [str(folder / "patch"), str(folder / "layout.json")]
        root = Path(__file__).resolve().parents[2]
        environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1",
                       "VLLM_LOGGING_LEVEL": "ERROR"}  # fmt: skip
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:  # nothing of it is private: a model and made up numbers
            raise ConfigError(f"vLLM did not take the step: {done.stderr[-1500:]}")
        times = json.loads(done.stdout.strip().splitlines()[-1])
        ours, theirs = (median(times[way]) for way in ("in_place", "by_loader"))
        rows.append(f"| {density:.2%} | {ours:.0f} | {theirs:.0f} | {theirs / ours:.1f} |")
    return rows


def _say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _measure_worker(bed: Bed, python: Path, model: Path) -> None:
    with _worker(bed, python, model, "wait") as (_, pid):
        bed.publish(bed.assign)
        bed.applied(_READY_SECONDS)
        memory = _rss_megabytes(pid)
        for density in DENSITIES:
            _updates(bed, density, 1)
            _say(_row(f"{density:.2%}, idle", _updates(bed, density, ROUNDS)))
        bed.assign(bed.manifests[-2])
        back = bed.applied()
        _say(f"rollback by one: {back.apply_ms:.0f} ms, pause {back.pause_ms:.0f} ms")
        _say(f"memory of the worker: {memory:.0f} MB at first, {_rss_megabytes(pid):.0f} MB at "
             f"last; the weights are {Shadow(bed.tensors).num_bytes / 1e6:.0f} MB")  # fmt: skip
    with _worker(bed, python, model, "keep") as (url, _):
        bed.assign(bed.manifests[-1])
        late = bed.applied(_READY_SECONDS)
        _say(f"late joiner: staged in {late.stage_ms:.0f} ms, {len(bed.manifests)} versions")
        with load(url, POLICY) as seen:
            _say(_row(f"{DENSITIES[1]:.2%}, keep, {NUM_CLIENTS} clients",
                      _updates(bed, DENSITIES[1], ROUNDS)))  # fmt: skip
        _say(*seen.sentences())


def _measure_restore(bed: Bed, blobs: BlobStore) -> None:
    """What reading a version costs somebody who comes late, with 20 deltas after the snapshot."""
    history = bed.publisher.history
    version, deltas = max(
        ((v, history.path_to(v)[1]) for v in history.versions), key=lambda pair: len(pair[1])
    )
    started = time.perf_counter()
    restore(bed.bench.bus, blobs, history, version)
    seconds = time.perf_counter() - started
    _say(f"version {version} from a snapshot and {len(deltas)} deltas: {1000 * seconds:.0f} ms")


def main(arguments: Sequence[str]) -> int:
    """Print the tables. 1 when something could not be measured."""
    python = ensure_engine(None, _say)
    wanted = arguments[0] if arguments else None
    model = ensure_model(wanted, python, _say).folder
    _say(machine_markdown(this_machine()), f"load {load_average():.1f} at the beginning", "")
    _say("| step | delta MB | publish | stage | pause | assigned → applied | call → applied |",
         "|---|---|---|---|---|---|---|")  # fmt: skip
    with running(tier="regex", only=("kafka", "topics")) as bench:
        blobs = BlobStore(bench.settings.blobs)
        publisher = Publisher(bench.bus, blobs, POLICY)
        bed = Bed(bench, read_folder(model), publisher)
        try:
            _measure_worker(bed, python, model)
            _measure_restore(bed, blobs)
            _say("", "| step | in place ms | vLLM's loader ms | times |", "|---|---|---|---|")
            _say(*_loaders(bed, python, model))
        except (ConfigError, TransientError) as error:
            for log in bench.settings.data_dir.glob("worker-*.log"):
                with suppress(OSError):
                    sys.stderr.write(log.read_text()[-2000:])
            sys.stderr.write(f"Not measured: {error}\n")
            return 1
        finally:
            publisher.close()
    _say(f"load {load_average():.1f} at the end")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
