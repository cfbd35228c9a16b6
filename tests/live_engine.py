"""vLLM on the tiny model, started once for many tests. Each leaves known weights behind."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference.worker.client import EngineClient
from inference.worker.engine import layout_file
from inference.worker.process import EngineCommand, EngineProcess
from inference.worker.site import make_site
from schemas.weights.shadow import Shadow
from schemas.weights.tensors import Tensor, digests_of
from tests import tiny_model
from tests.ports import free_ports

START_SECONDS = 400.0
SECRET = "s" * 32
NAME = "main"
#: Every engine of the tests can take adapters; those of worker processes cannot.
MAX_LORA_RANK = 8


@dataclass
class LiveEngine:
    """A running vLLM. `held` is what its weights are, as its last user has proved, and `answers`
    the version whose letter they answer."""

    client: EngineClient
    url: str
    model: Path
    held: dict[str, Tensor]
    answers: int = 1

    def require_held(self) -> None:
        """Every tensor of the engine is the one that is said to be there, bit by bit."""
        assert self.client.digests() == digests_of(self.held)

    def ask(self, prompt: str = "hi>", tokens: int = 1) -> tuple[str, dict[str, str]]:
        """A greedy answer and our headers of it, without their prefix."""
        return ask(self.url, prompt, tokens)


def ask(
    url: str, prompt: str = "hi>", tokens: int = 1, timeout_seconds: float = 60.0, **more: Any
) -> tuple[str, dict[str, str]]:
    """A greedy completion, and the headers `x-headrace-…` without that."""
    body = {"model": NAME, "prompt": prompt, "max_tokens": tokens, "temperature": 0,
            "ignore_eos": True, **more}  # fmt: skip
    request = urllib.request.Request(  # noqa: S310 - our own server
        url + "/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=timeout_seconds) as answer:  # noqa: S310
        content: Any = json.load(answer)
        headers = {
            name.removeprefix("x-headrace-"): value
            for name, value in answer.headers.items()
            if name.startswith("x-headrace-")
        }
        return content["choices"][0]["text"], headers


def status_of(url: str, path: str, method: str = "POST") -> int:
    """How a stranger is answered."""
    try:
        request = urllib.request.Request(url + path, b"{}", method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=10.0) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@contextmanager
def running(python: Path, folder: Path, tensors: dict[str, Tensor]) -> Iterator[LiveEngine]:
    """vLLM on a model for the length of the block, bound to its tensors and without a label."""
    (port,) = free_ports(1)
    model = tiny_model.write_model(folder / "model", tensors)
    command = EngineCommand(
        python=python, model=model, served_model_name=NAME, host="127.0.0.1", port=port,
        site=make_site(folder / "site"), secret=SECRET, kv_cache_gib=1, num_threads=1,
        scratch=folder / "scratch", max_lora_rank=MAX_LORA_RANK,
        engine_args=("--max-model-len", "1024", "--max-logprobs", "-1"),
    )  # fmt: skip
    log = folder / "engine.log"
    process = EngineProcess(command, log)
    try:
        client = EngineClient(port, SECRET)
        deadline = time.monotonic() + START_SECONDS
        while not client.is_healthy():
            assert process.exit_code() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, f"vLLM is not ready after {START_SECONDS:.0f} s"
        layout = folder / "layout.json"
        layout.write_text(layout_file.dumps(Shadow(tensors).layout))
        assert client.bind(layout) is None
        yield LiveEngine(client, f"http://127.0.0.1:{port}", model, tensors)
    finally:
        process.stop()
