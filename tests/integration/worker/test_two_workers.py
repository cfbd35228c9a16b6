"""Two worker processes behind a gateway under constant traffic, then one is killed with all that it
has started.

`make test` takes 15 updates, `make soak` 50. Most of the time goes to three starts of vLLM.
"""

import functools
import sys
import threading
import urllib.error
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

import pytest

from infra.local.processes import is_alive
from schemas.atdp.weights import WeightsManifest
from schemas.rings import DEFAULT_RING
from schemas.secrets import create_root_secret
from tests.integration.gateway.harness import new_key
from tests.live_engine import ask
from tests.ports import free_ports
from tests.services import running
from tests.tiny_model import letter_of
from tests.worker_processes import POLICY, READY_SECONDS, Ring, rings

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

NUM_AGENTS = 4
BOTH = {"one", "two"}


@dataclass
class Front:
    """A gateway process that routes to the ring."""

    url: str
    key: str

    def agent(self, trajectory: str) -> str:
        """The base URL of an agent that works on a trajectory."""
        return f"{self.url}/k/{self.key}/t/{trajectory}"


@contextmanager
def gateways(ring: Ring, folder: Path) -> Iterator[Front]:
    """`python -m inference.gateway` for the ring, once it answers."""
    (port,) = free_ports(1)
    create_root_secret(folder / "secrets" / "root")
    _, key = new_key(ring.bus)
    environment = {
        **{k: v for k, v in ring.workers[0].environment.items() if "WORKER__" not in k},
        "HEADRACE_DATA_DIR": str(folder),
        "HEADRACE_GATEWAY__PORT": str(port),
        "HEADRACE_GATEWAY__RING": DEFAULT_RING,
        "HEADRACE_WORKER__POLICY": POLICY,
    }
    assigned = [f"{name}={value}" for name, value in environment.items()]
    command = ["env", "-i", *assigned, sys.executable, "-m", "inference.gateway"]
    with running(command, folder / "gateway.log"):
        yield Front(f"http://127.0.0.1:{port}", key)


class Traffic:
    """Clients that ask all the time and check each answer against its label."""

    def __init__(self, urls: list[str]) -> None:
        self._stop = threading.Event()
        self.breath_seconds = 0.1
        #: Answers that are not what their label says, and calls that were not answered.
        self.wrong: list[str] = []
        self.failed: list[str] = []
        self.versions: set[tuple[str, int]] = set()
        self.num_answers = 0
        self._threads = [threading.Thread(target=self._ask, args=(url,)) for url in urls]

    def __enter__(self) -> "Traffic":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, url: str) -> None:
        # A breath between two calls: what takes a version needs the processor too.
        while not self._stop.wait(self.breath_seconds):
            try:
                text, headers = ask(url)
            except (OSError, HTTPException) as error:
                self.failed.append(f"{url}: {error}")
                continue
            self.num_answers += 1
            version = int(headers["policy-version"])
            self.versions.add((url, version))
            if text != letter_of(version):
                self.wrong.append(f"{url}: {text} from version {version}")

    def seen_by(self, url: str) -> set[int]:
        """The versions that answered there."""
        return {version for at, version in self.versions if at == url}

    def has_met(self, version: int, engines: list[str], agents: list[str]) -> bool:
        """Whether each engine and the gateway have answered from a version."""
        at_each = all((engine, version) in self.versions for engine in engines)
        return at_each and any((agent, version) in self.versions for agent in agents)


def is_answered(url: str, version: int) -> Callable[[], bool]:
    """Whether a call there is answered by a version."""

    def look() -> bool:
        with suppress(urllib.error.URLError):
            return ask(url)[1].get("policy-version") == str(version)
        return False

    return look


@pytest.mark.parametrize("num_updates", [15, pytest.param(50, marks=pytest.mark.soak)])
def test_updates_under_traffic_and_a_kill(
    kafka: str, engine_python: Path, tmp_path: Path, num_updates: int
) -> None:
    with rings(kafka, engine_python, tmp_path) as ring, gateways(ring, tmp_path / "gw") as front:
        one, two = ring.workers
        agents = [front.agent(f"agent-{number}") for number in range(NUM_AGENTS)]
        first = ring.publish()
        ring.promote(first)
        ring.wait_until_served(first, BOTH, READY_SECONDS)
        ring.require_equal(first, one, two)
        with ThreadPoolExecutor(2) as pool:  # an engine's first answer takes its time
            list(
                pool.map(lambda worker: ask(worker.url, timeout_seconds=READY_SECONDS), (one, two))
            )
        ring.wait_for(is_answered(agents[0], 1))
        updates_and_rollbacks(ring, [one.url, two.url], agents, num_updates)
        last = killed_in_a_burst(ring, agents)
        for worker in (one, two):
            assert ask(worker.url, timeout_seconds=READY_SECONDS)[0] == letter_of(last.version)
        ring.require_equal(last, one, two)
        two.stop()
        assert two.process is not None
        assert two.process.returncode == 0


def updates_and_rollbacks(
    ring: Ring, engines: list[str], agents: list[str], num_updates: int
) -> None:
    """Both workers move, each by itself; nobody who asks them or the gateway gets no answer, and
    both and the gateway answer from every version."""
    with Traffic([*engines, *agents]) as traffic:
        for _ in range(num_updates):
            manifest = ring.publish()
            ring.promote(manifest)
            ring.wait_until_served(manifest, BOTH)
            ring.wait_for(functools.partial(traffic.has_met, manifest.version, engines, agents))
        for back in (1, min(20, num_updates - 1)):
            manifest = ring.manifests[-1 - back]
            ring.promote(manifest)
            ring.wait_until_served(manifest, BOTH)
            ring.require_equal(manifest, *ring.workers)
    assert (traffic.wrong, traffic.failed) == ([], [])
    ring.wait_for(is_answered(agents[0], manifest.version))


def killed_in_a_burst(ring: Ring, agents: list[str]) -> WeightsManifest:
    """One worker is killed while it follows a burst of versions; the version it comes back to."""
    one, two = ring.workers
    with Traffic([two.url, *agents]) as traffic:
        for _ in range(4):
            ring.promote(ring.publish())
        family = one.kill()
        assert len(family) > 1
        last = ring.publish()  # so that what it says of this one, it says when it is back
        ring.promote(last)
        ring.wait_for(lambda: not any(is_alive(member) for member in family), 10.0)
        ring.wait_until_served(last, {"two"})
        answered = traffic.num_answers
        ring.wait_for(lambda: traffic.num_answers > answered + 2 * len(agents))
        traffic.breath_seconds = 0.5  # an engine that starts needs the processor most
        one.start()
        ring.wait_until_served(last, BOTH, READY_SECONDS)
    assert traffic.wrong == []
    # What `one` was answering when it died breaks off; every other call goes to `two`.
    assert len(traffic.failed) <= len(agents), traffic.failed
    assert not any(at.startswith(two.url) for at in traffic.failed)
    return last
