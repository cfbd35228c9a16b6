"""The engine's process: its command line, its environment, its beginning and its end."""

import getpass
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from inference.worker.engine.middleware import SECRET_VARIABLE
from inference.worker.engine.plugin import BACKEND
from inference.worker.scratch import Scratch
from schemas.tether import tethered

#: Those that vLLM makes room for.
_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
_GRACE_SECONDS = 10.0
#: Of ours the engine sees none, and it keeps compiled code: without that each start takes a minute.
_NOT_PASSED_ON = ("HEADRACE_", "PYTHONDONTWRITEBYTECODE", "PYTHONHOME")


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """How vLLM is started."""

    python: Path
    model: Path
    served_model_name: str
    host: str
    port: int
    site: Path
    secret: str
    kv_cache_gib: int
    num_threads: int
    #: A folder of this engine's own, emptied at each start.
    scratch: Path
    #: Rank up to which adapters may be loaded; None for none at all.
    max_lora_rank: int | None = None
    engine_args: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """The command line. What is given as `engine_args` comes last and so wins."""
        return [
            str(self.python), "-m", "vllm.entrypoints.openai.api_server",
            "--model", str(self.model),
            "--served-model-name", self.served_model_name,
            "--host", self.host,
            "--port", str(self.port),
            "--enforce-eager",
            "--max-num-seqs", "16",
            "--logprobs-mode", "processed_logprobs",
            "--weight-transfer-config", f'{{"backend":"{BACKEND}"}}',
            "--worker-extension-cls", "inference.worker.engine.transfer.Readback",
            "--middleware", "inference.worker.engine.middleware.LabelMiddleware",
            "--disable-uvicorn-access-log",
            *self._adapters(),
            *self.engine_args,
        ]  # fmt: skip

    def _adapters(self) -> list[str]:
        if self.max_lora_rank is None:
            return []
        # Two: the one that is served, and the next one, which is proved beside it.
        rank = f"{next(known for known in _LORA_RANKS if known >= self.max_lora_rank)}"
        return ["--enable-lora", "--max-loras", "2", "--max-lora-rank", rank]

    def environment(self, base: Mapping[str, str], scratch: Path) -> dict[str, str]:
        """Its environment: nothing is fetched or reported, one thread where nothing is said.

        `scratch` is a short name of the folder.
        """
        kept = {name: value for name, value in base.items() if not name.startswith(_NOT_PASSED_ON)}
        return {
            **kept,
            "PYTHONPATH": str(self.site),
            "PYTHONSAFEPATH": "1",
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": f"{self.kv_cache_gib}",
            # Left to itself vLLM binds the threads of every engine to the same first cores, and
            # takes their number from those: two engines on one machine would share one core.
            "OMP_NUM_THREADS": str(self.num_threads),
            "VLLM_CPU_OMP_THREADS_BIND": base.get("VLLM_CPU_OMP_THREADS_BIND", "nobind"),
            "VLLM_LOGGING_LEVEL": "WARNING",
            "TMPDIR": str(scratch),
            "VLLM_RPC_BASE_PATH": str(scratch),
            # What torch has compiled is of use to every engine, so it does not lie there.
            "TORCHINDUCTOR_CACHE_DIR": base.get("TORCHINDUCTOR_CACHE_DIR", _compiled()),
            # The routes for it answer to the worker alone, as the others do.
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": f"{int(self.max_lora_rank is not None)}",
            SECRET_VARIABLE: self.secret,
        }


def _compiled() -> str:
    """Where torch keeps what it has compiled for this user, unless it is told otherwise."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = f"{os.getuid()}"
    return str(Path(tempfile.gettempdir()) / f"torchinductor_{user}")


class EngineProcess:
    """A running vLLM, in a group of its own, that dies with the thread that started it."""

    def __init__(self, command: EngineCommand, log: Path) -> None:
        """Start it. Call from the main thread."""
        self._scratch = Scratch(command.scratch)
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                tethered(command.arguments()),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=command.environment(os.environ, self._scratch.path),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id, which is that of its group."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """End it and all it has started: SIGTERM, after a while SIGKILL."""
        if self._process.poll() is None:
            self._signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE_SECONDS)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._scratch.close()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
