"""The parts of the demo of weights: a broken delta is seen, a lesson that fails says where."""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import numpy as np
import pytest

from infra.demo.weights.agent import Agent, Reply
from infra.demo.weights.corruption import FlippingBus
from infra.demo.weights.learning import HEADRACE, learn
from schemas import topics
from schemas.bus.memory import MemoryBus
from schemas.errors import ConfigError
from schemas.store import BlobStore
from schemas.weights.publish import Publisher
from schemas.weights.refusals import Refusal, RefusedError
from schemas.weights.versions import read_history, restore
from tests.unit.weights.models import random_model, same, stepped


def test_a_flipped_bit_is_seen_and_the_version_before_is_whole(tmp_path: Path) -> None:
    bus, blobs, rng = MemoryBus(), BlobStore(tmp_path.as_uri()), np.random.default_rng(1)
    bus.admin().create_topics(topics.TOPICS, 1, 1)
    first = random_model(rng, {"a": (400, 90), "b": (31,)})
    good = Publisher(bus, blobs, "main")
    good.publish(first)
    good.close()
    broken = Publisher(FlippingBus(bus), blobs, "main")
    broken.start_from(1, restore(bus, blobs, broken.history, 1))
    broken.publish(stepped(rng, first, 0.01))
    broken.close()
    history = read_history(bus, "main")
    assert sorted(history.versions) == [1, 2]
    with pytest.raises(RefusedError) as refused:
        restore(bus, blobs, history, 2)
    assert refused.value.refusal is Refusal.CHUNK_CORRUPT
    assert same(restore(bus, blobs, history, 1).tensors, first)


def python_that(folder: Path, does: str) -> Path:
    file = folder / "python"
    file.write_text(f"#!/bin/sh\n{does}\n")
    file.chmod(0o700)
    return file


def test_steps_are_heard_and_the_result_named(tmp_path: Path) -> None:
    python = python_that(tmp_path, """echo noise; echo '{"step": 1, "loss": 2.5}'""")
    heard: list[dict[str, Any]] = []
    learned = learn(python, tmp_path, tmp_path / "out", HEADRACE, heard.append)
    assert (learned.num_steps, learned.folder) == (1, tmp_path / "out")
    assert heard == [{"step": 1, "loss": 2.5}]


def test_a_lesson_that_fails_names_its_log(tmp_path: Path) -> None:
    python = python_that(tmp_path, "echo why >&2; exit 1")
    with pytest.raises(ConfigError, match=r"did not learn.*out\.log.*--model"):
        learn(python, tmp_path, tmp_path / "out", HEADRACE, print)
    assert (tmp_path / "out.log").read_text() == "why\n"


class Model(BaseHTTPRequestHandler):
    """Answers the number of the call; refuses the second."""

    calls: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.calls.append(body)
        number = len(self.calls)
        text = json.dumps({"choices": [{"message": {"content": f" {number} "}}]}).encode()
        self.send_response(503 if number == 2 else 200)
        self.send_header("x-headrace-policy-version", str(number))
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None: ...


def test_the_agent_goes_on_and_waits_for_an_answer_to_a_later_call() -> None:
    server = HTTPServer(("127.0.0.1", 0), Model)
    Thread(target=server.serve_forever, daemon=True).start()
    heard: list[Reply] = []
    url = f"http://127.0.0.1:{server.server_port}"
    with Agent(url, "key", "tiny", "who?", heard.append) as agent:
        first = agent.next_answer()
        later = agent.next_answer()
    server.shutdown()
    server.server_close()
    assert later.begun_at > first.begun_at
    assert [reply.status for reply in agent.replies[:3]] == [200, 503, 200]
    assert [(reply.version, reply.text) for reply in heard[:3]] == [(1, "1"), (None, ""), (3, "3")]
    assert Model.calls[0]["messages"] == [{"role": "user", "content": "who?"}]
