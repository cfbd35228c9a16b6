"""The worker's parts, put together as the settings say, and its loop."""

import fcntl
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from inference.worker.adapters import Adapters
from inference.worker.announce import Announcer
from inference.worker.client import EngineClient
from inference.worker.engine import layout_file
from inference.worker.following import Follower
from inference.worker.measures import Measures
from inference.worker.process import EngineCommand, EngineProcess
from inference.worker.site import make_site
from inference.worker.staging import Staging
from inference.worker.supervise import Supervisor
from inference.worker.undo import UndoList
from inference.worker.update import Updater
from inference.worker.worker import Identity, Worker
from schemas import topics
from schemas.bus.api import Bus, Consumer
from schemas.errors import ConfigError, TransientError
from schemas.secrets import load_weights_key
from schemas.settings import Settings, WorkerSettings
from schemas.store import BlobStore
from schemas.telemetry import Metrics
from schemas.weights.checkpoints import read_folder
from schemas.weights.shadow import Shadow

_POLL_SECONDS = 0.1
_MAX_RECORDS = 1_000
_DOWNLOAD_SECONDS = 1800.0
_FETCH_MODEL = "import sys, huggingface_hub as h; print(h.snapshot_download(sys.argv[1]))"


def serve(settings: Settings, bus: Bus, stop: threading.Event) -> None:
    """Run a worker until `stop` is set. Call from the main thread.

    ConfigError says what to change; nothing is left running then.
    """
    own = settings.worker
    worker_id = own.id or _default_id(own.port)
    folder = (settings.data_dir / "workers" / worker_id).absolute()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _alone(folder / "lock", worker_id):
        key = load_weights_key(settings.weights_key_file)
        follower = Follower(worker_id, own.policy, own.rings, key)
        metrics = Metrics()
        if settings.metrics_port is not None:
            metrics.answer(settings.metrics_host, settings.metrics_port)
        worker = _worker(settings, bus, worker_id, folder, follower, metrics)
        consumer = bus.consumer()
        try:
            _follow(worker, follower, bus, consumer, stop)
        finally:
            worker.stop()
            consumer.close()


def _follow(
    worker: Worker, follower: Follower, bus: Bus, consumer: Consumer, stop: threading.Event
) -> None:
    """The loop: topics to their ends first, since a target is judged by all that is known."""
    consumer.assign(_starts(bus))
    has_caught_up = False
    while not stop.is_set():
        try:
            records = consumer.poll(1, _POLL_SECONDS)
            for record in records + (consumer.poll(_MAX_RECORDS, 0.0) if records else []):
                follower.take(record)
        except TransientError:
            stop.wait(1.0)
        worker.tend()
        has_caught_up = has_caught_up or consumer.at_end()
        if has_caught_up:
            worker.follow()


def _starts(bus: Bus) -> dict[tuple[str, int], int]:
    admin = bus.admin()
    try:
        followed = (topics.WEIGHTS_VERSIONS, topics.WEIGHTS_PROMOTIONS)
        return {
            (topic, partition): first
            for topic in followed
            for partition, (first, _) in admin.watermarks(topic).items()
        }
    finally:
        admin.close()


def _worker(
    settings: Settings, bus: Bus, worker_id: str, folder: Path, follower: Follower, metrics: Metrics
) -> Worker:
    own = settings.worker
    python = engine_python(own)
    model = model_folder(own, python)
    base = Shadow(read_folder(model), copy=False)
    layout = folder / "layout.json"
    layout.write_text(layout_file.dumps(base.layout))
    secret, log = secrets.token_hex(32), folder / "engine.log"
    command = EngineCommand(
        python=python,
        model=model,
        served_model_name=own.served_model_name or own.policy,
        host=own.host,
        port=own.port,
        site=make_site(folder / "site"),
        secret=secret,
        kv_cache_gib=own.kv_cache_gib,
        num_threads=own.num_threads,
        scratch=folder / "scratch",
        max_lora_rank=own.max_lora_rank,
        engine_args=own.engine_args,
    )
    client = EngineClient(own.port, secret)
    address = own.address or f"http://{own.host}:{own.port}"
    updater = Updater(client, folder / "patch", own.pause_mode, own.pause_wait_seconds)
    announcer = Announcer(bus.producer(f"worker.{worker_id}"), worker_id, own.heartbeat_seconds)
    announcer.start()
    blobs = BlobStore(settings.blobs)
    return Worker(
        identity=Identity(worker_id, address, own.policy, own.rings),
        follower=follower,
        supervisor=Supervisor(_starter(command, log), client.is_healthy, log, own.start_seconds),
        bind=lambda: client.bind(layout),
        updater=updater,
        staging=Staging(bus, blobs),
        announcer=announcer,
        base=lambda: Shadow(read_folder(model)),
        undo=UndoList(own.num_undo, base.num_bytes),
        measures=Measures(metrics),
        adapters=Adapters(client, blobs, folder / "adapters") if own.max_lora_rank else None,
    )


def _starter(command: EngineCommand, log: Path) -> Callable[[], EngineProcess]:
    def start() -> EngineProcess:
        _require_free_port(command.host, command.port)
        return EngineProcess(command, log)

    return start


def _require_free_port(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            raise ConfigError(
                f"Port {port} on {host} is in use. Set HEADRACE_WORKER__PORT to a free one."
            ) from None


def engine_python(own: WorkerSettings) -> Path:
    """The interpreter for vLLM: the one that is set, else our own where vLLM is installed."""
    if own.python is not None:
        if not own.python.is_file():
            raise ConfigError(f"worker.python is {own.python}, which is no file.")
        return own.python.absolute()
    if find_spec("vllm") is not None:
        return Path(sys.executable)
    raise ConfigError(
        "There is no vLLM here. Set HEADRACE_WORKER__PYTHON to the python of an environment with "
        "it; `python -m infra.local.engine` makes one and prints where it is."
    )


def model_folder(own: WorkerSettings, python: Path) -> Path:
    """The checkpoint folder; a hub name is fetched with the engine's own tools."""
    if own.model is None:
        raise ConfigError(
            "Set HEADRACE_WORKER__MODEL to a Hugging Face checkpoint folder or a hub name."
        )
    if Path(own.model).is_dir():
        return Path(own.model).absolute()
    command = [str(python), "-c", _FETCH_MODEL, own.model]
    why = ""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_DOWNLOAD_SECONDS
        )
    except subprocess.CalledProcessError as error:
        last = (error.stderr or "").strip().splitlines()[-1:]
        why = " (" + last[0].partition(":")[0].rpartition(".")[2][:50] + ")" if last else ""
    except (OSError, subprocess.SubprocessError) as error:
        why = f" ({type(error).__name__})"
    else:
        return Path(done.stdout.strip().splitlines()[-1])
    raise ConfigError(
        f"worker.model is {own.model}, which is no folder here and cannot be fetched from the "
        f"hub{why}. Check the name. Without a network, or with HF_HUB_OFFLINE=1, it must be in the "
        f"hub's cache: run `hf download {own.model}` where there is one and copy the folder under "
        "HF_HOME, or name a checkpoint folder."
    )


def _default_id(port: int) -> str:
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())
    return f"{host[:50]}-{port}"


@contextmanager
def _alone(lock: Path, worker_id: str) -> Iterator[None]:
    """One process for a worker id: two would contradict each other on every topic."""
    handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ConfigError(
            f"Worker {worker_id} runs already. Stop it, or set HEADRACE_WORKER__ID to another name."
        ) from None
    finally:
        os.close(handle)
