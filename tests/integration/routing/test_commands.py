"""`headrace promote | rollback | workers` with the real processes."""

import json
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from controlplane.promotion.process import Promotion
from controlplane.promotion.state import TOPICS
from infra.cli.main import make_app
from schemas import topics
from schemas.bus.access import KafkaAccess
from schemas.bus.kafka import KafkaBus
from schemas.errors import ConfigError, TransientError
from schemas.settings import PromotionSettings
from tests.ports import free_ports
from tests.ring_events import manifest, write
from tests.services import running

pytestmark = pytest.mark.integration


class Deployment:
    """Topics of their own, and what is typed at a command line beside them."""

    def __init__(self, kafka: str, folder: Path, stack: ExitStack) -> None:
        self.kafka, self.prefix = kafka, f"c{uuid.uuid4().hex[:8]}."
        self.bus = KafkaBus(KafkaAccess(kafka, prefix=self.prefix))
        self.bus.admin().create_topics([topics.topic(name) for name in TOPICS], 1, 1)
        self._folder, self._stack = folder, stack

    def decide(self) -> None:
        promotion = Promotion(self.bus, PromotionSettings())
        thread = threading.Thread(target=promotion.run, daemon=True)
        thread.start()
        self._stack.callback(thread.join, 30)
        self._stack.callback(promotion.stop)

    def add_worker(self, worker_id: str, refuses: int) -> None:
        [port] = free_ports(1)
        command = [sys.executable, "-m", "tests.integration.routing.double", self.kafka]
        command += [self.prefix, worker_id, str(port), "--refuses", str(refuses)]
        self._stack.enter_context(running(command, self._folder / f"{worker_id}.log"))

    def run(self, *arguments: str) -> str:
        where = ["-d", str(self._folder / "data")]
        outcome = CliRunner().invoke(make_app(), [*arguments, *where])
        if outcome.exception is not None:
            raise outcome.exception
        return outcome.stdout

    def run_json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json").splitlines()[-1])


@pytest.fixture
def deployment(kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    with ExitStack() as stack:
        made = Deployment(kafka, tmp_path, stack)
        monkeypatch.setenv("HEADRACE_KAFKA__BOOTSTRAP_SERVERS", kafka)
        monkeypatch.setenv("HEADRACE_KAFKA__TOPIC_PREFIX", made.prefix)
        yield made


def test_a_life_of_a_ring(deployment: Deployment) -> None:
    write(deployment.bus, [manifest(version) for version in range(1, 6)])
    deployment.decide()
    shown = deployment.run("promote", "1")
    assert "ring default of main: version 1, stable" in shown
    assert "No worker of this ring is there" in shown
    deployment.add_worker("a", refuses=4)
    deployment.add_worker("b", refuses=4)
    deadline = time.monotonic() + 60
    while len(deployment.run_json("workers")["workers"]) < 2:  # a look takes a while of its own
        assert time.monotonic() < deadline, "the workers did not come"

    served = deployment.run_json("promote", "2", "--reason", "better")
    assert (served["status"], served["settled"]) == ("accepted", True)
    assert served["ring"]["reason"] == "better"
    assert [w["serves"]["version"] for w in served["workers"]] == [2, 2]

    trial = deployment.run_json("promote", "3", "--canary", "0.5")
    assert [w["serves"]["version"] for w in trial["workers"]] == [3, 2]
    assert "version 3 on trial for 50%" in deployment.run("workers")
    ended = deployment.run_json("rollback")
    assert (ended["version"], ended["ring"]["canary"]) == (2, None)

    deployment.run("promote", "5")
    with pytest.raises(ConfigError, match="Every worker refused version 4: wrong_digest"):
        deployment.run("promote", "4")
    workers = deployment.run_json("workers")
    assert workers["rings"][0]["state"] == "rolled_back"
    assert workers["rings"][0]["stable"]["version"] == 5

    assert deployment.run_json("rollback")["version"] == 2
    assert deployment.run_json("rollback", "--to", "1")["version"] == 1
    with pytest.raises(ConfigError, match="--to"):
        deployment.run("rollback")
    line = next(line for line in deployment.run("workers").splitlines() if line.startswith("  a"))
    assert "serves version 1" in line
    assert "applied 1" in line


def test_what_cannot_be_done_says_what_to_do(deployment: Deployment) -> None:
    write(deployment.bus, [manifest(1)])
    assert "has no ring yet" in deployment.run("workers")
    with pytest.raises(ConfigError, match="no version 7"):
        deployment.run("promote", "7")
    with pytest.raises(ConfigError, match="serves nothing yet"):
        deployment.run("rollback")
    with pytest.raises(TransientError, match=r"python -m controlplane\.promotion"):
        deployment.run("promote", "1", "--wait", "0.5")
    assert deployment.run_json("promote", "1", "--wait", "0")["version"] == 1
    deployment.decide()
    with pytest.raises(ConfigError, match="to all already"):
        deployment.run("promote", "1", "--canary", "0.1")
    assert deployment.run_json("workers")["rings"][0]["stable"]["version"] == 1
