"""Updates of a real vLLM: bit-exact in fused and tied tensors, and labelled truly."""

import threading
import time
import urllib.error
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from inference.worker.client import EngineClient
from inference.worker.engine.middleware import Label
from inference.worker.update import EngineError, Fault, PauseMode, UpdateFailedError, Updater
from schemas.weights.shadow import Shadow
from tests.live_engine import LiveEngine, ask, status_of
from tests.tiny_model import letter_of, next_version

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

NUM_VERSIONS = 30


@dataclass
class Bench:
    """Engine and shadow, moved together."""

    engine: LiveEngine
    folder: Path
    shadow: Shadow
    mode: PauseMode = "wait"

    def __post_init__(self) -> None:
        self.version = self.engine.answers
        self.updater = Updater(self.engine.client, self.folder / "patch", self.mode, 30.0)
        self.updater.relabel(self.shadow, Label("main", self.version, self.shadow.root))

    def move(self, density: float = 0.01) -> None:
        """To the next version."""
        self.version += 1
        before = dict(self.shadow.digests)
        new = next_version(dict(self.shadow.tensors), self.version, density=density)
        patch = self.shadow.apply(self.shadow.diff(new)[0])
        label = Label("main", self.version, patch.root)
        try:
            self.updater.update(patch, before, self.shadow, label)
        except UpdateFailedError:
            self.shadow.write(patch.inverse())
            self.version -= 1
            raise

    def require_equal(self) -> None:
        """Every tensor of the engine is that of the shadow, and the answer is the version's."""
        assert self.engine.client.digests() == dict(self.shadow.digests)
        text, headers = self.engine.ask()
        assert text == letter_of(self.version)
        assert headers["policy-version"] == str(self.version)
        assert headers["weights-root"] == self.shadow.root


@contextmanager
def benches(engine: LiveEngine, folder: Path, mode: PauseMode = "wait") -> Iterator[Bench]:
    made = Bench(engine, folder, Shadow(engine.held), mode)
    try:
        yield made
    finally:  # the engine is shared: a test that fails must not make others fail
        engine.held, engine.answers = dict(made.shadow.tensors), made.version


@pytest.fixture
def bench(live_engine: LiveEngine, tmp_path: Path) -> Iterator[Bench]:
    with benches(live_engine, tmp_path) as made:
        yield made


def test_many_versions_are_bit_exact(bench: Bench) -> None:
    for step in range(NUM_VERSIONS):
        # Sparse, dense and whole changes take different ways through the engine.
        bench.move(density=[0.001, 0.05, 1.0][step % 3])
        bench.require_equal()


def test_an_error_in_the_middle_is_undone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.move()
    write = EngineClient.write
    failing = iter([7])

    def half(self: EngineClient, patch: Path, names: Sequence[str] | None) -> dict[str, bytes]:
        return write(self, patch, names, fail_after=next(failing, None))

    monkeypatch.setattr(EngineClient, "write", half)
    with pytest.raises(UpdateFailedError) as caught:
        bench.move()
    assert caught.value.fault is Fault.ENGINE_FAILED
    bench.require_equal()
    bench.move()
    bench.require_equal()


def test_a_torn_patch_is_refused_before_anything_is_written(bench: Bench) -> None:
    torn = bench.folder / "torn"
    bench.move()
    whole = (bench.folder / "patch").read_bytes()
    torn.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(EngineError):
        bench.engine.client.write(torn, None)
    bench.require_equal()


def test_under_constant_traffic_every_label_is_right_and_no_request_fails(bench: Bench) -> None:
    bench.move()
    stop, wrong, seen = threading.Event(), [], set()

    def client() -> None:
        while not stop.wait(0.02):  # what writes the weights needs the processor too
            try:
                text, headers = bench.engine.ask()
            except urllib.error.URLError as error:
                wrong.append(str(error))
                return
            version = int(headers["policy-version"])
            seen.add(version)
            if text != letter_of(version):
                wrong.append(f"{text} from version {version}")

    threads = [threading.Thread(target=client) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(15):
            bench.move()
            _wait_for(lambda: bench.version in seen or bool(wrong))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    bench.require_equal()


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline, pause = time.monotonic() + 60.0, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        pause.wait(0.01)


def test_an_answer_that_stood_still_says_from_which_token_on(
    live_engine: LiveEngine, tmp_path: Path
) -> None:
    with benches(live_engine, tmp_path, "keep") as bench:
        bench.move()
        old, text, headers = _moved_during_an_answer(live_engine, bench)
        (first, second) = headers["policy-spans"].split(",")
        boundary = int(second.partition(":")[0])
        assert (first, second) == (f"0:{bench.version - 1}", f"{boundary}:{bench.version}")
        assert "policy-version" not in headers
        # A token is a letter here: up to the boundary the old weights have answered.
        assert 0 < boundary < 300
        assert text[:boundary] == old[:boundary]
        bench.require_equal()


def _moved_during_an_answer(engine: LiveEngine, bench: Bench) -> tuple[str, str, dict[str, str]]:
    """What the weights before answer, and an answer during which they changed. On a busy machine
    an answer may be over before anybody sees that it is under way; then another one is asked for.
    """
    for _ in range(20):
        old, _headers = engine.ask(tokens=300)
        answers: list[tuple[str, dict[str, str]]] = []
        thread = threading.Thread(
            target=lambda into=answers: into.append(ask(engine.url, tokens=300))
        )
        thread.start()
        while thread.is_alive() and not any(engine.client.progress().values()):
            pass
        if thread.is_alive():
            bench.move()
        thread.join()
        text, headers = answers[0]
        if "policy-spans" in headers:
            return old, text, headers
    raise AssertionError("no answer was under way when the weights changed")


def test_strangers_reach_none_of_the_worker_s_routes(bench: Bench) -> None:
    for path in ("/pause", "/update_weights", "/collective_rpc", "/headrace/label", "/sleep"):
        assert status_of(bench.engine.url, path) == 403
    assert status_of(bench.engine.url, "/health", "GET") == 200
    bench.require_equal()
