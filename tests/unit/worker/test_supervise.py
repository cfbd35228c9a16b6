"""The life of an engine, on a clock that the test turns."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from inference.worker import supervise
from inference.worker.supervise import Phase, Supervisor
from schemas.errors import ConfigError


@dataclass
class Fake:
    code: int | None = None
    stopped: bool = False

    def exit_code(self) -> int | None:
        return self.code

    def stop(self) -> None:
        self.stopped = True


@dataclass
class Bench:
    folder: Path
    now: float = 100.0
    healthy: bool = False
    started: list[Fake] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.supervisor = Supervisor(
            self.start, lambda: self.healthy, self.folder / "log", 50.0, lambda: self.now
        )

    def start(self) -> Fake:
        self.started.append(Fake())
        return self.started[-1]

    def phases(self, number: int) -> list[Phase]:
        return [self.supervisor.tend() for _ in range(number)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_it_comes_up_once(bench: Bench) -> None:
    assert bench.phases(3) == [Phase.STARTING] * 3
    bench.healthy = True
    assert bench.phases(3) == [Phase.CAME_UP, Phase.READY, Phase.READY]
    assert len(bench.started) == 1


def test_an_engine_that_ends_is_started_again_after_a_while(bench: Bench) -> None:
    bench.healthy = True
    bench.phases(2)
    bench.started[0].code = -9
    assert bench.phases(2) == [Phase.WENT_DOWN, Phase.DOWN]
    assert bench.started[0].stopped
    bench.now += 1.0
    assert bench.phases(2) == [Phase.STARTING, Phase.CAME_UP]


def test_one_that_was_ended_on_purpose_is_replaced_at_once(bench: Bench) -> None:
    bench.healthy = True
    bench.phases(2)
    bench.supervisor.end()
    assert bench.started[0].stopped
    assert bench.phases(2) == [Phase.STARTING, Phase.CAME_UP]


def test_the_pause_before_the_next_start_grows(bench: Bench) -> None:
    for seconds in (1.0, 2.0, 4.0):
        assert bench.supervisor.tend() is Phase.STARTING
        bench.started[-1].code = 1
        assert bench.supervisor.tend() is Phase.WENT_DOWN
        bench.now += seconds - 0.01
        assert bench.supervisor.tend() is Phase.DOWN
        bench.now += 0.01


def test_one_that_never_comes_up_is_given_up_with_its_last_words(bench: Bench) -> None:
    (bench.folder / "log").write_text("ValueError: no such model\nsomething else\n")
    for _ in range(4):
        assert bench.supervisor.tend() is Phase.STARTING
        bench.started[-1].code = 1
        assert bench.supervisor.tend() is Phase.WENT_DOWN
        bench.now += 30.0
    assert bench.supervisor.tend() is Phase.STARTING
    bench.started[-1].code = 1
    with pytest.raises(ConfigError, match=r"ended with 1.*ValueError: no such model"):
        bench.supervisor.tend()


def test_one_that_came_up_and_is_of_no_use_is_given_up_too(bench: Bench) -> None:
    bench.healthy = True
    for seconds in (1.0, 2.0, 4.0, 8.0):
        assert bench.phases(2) == [Phase.STARTING, Phase.CAME_UP]
        bench.supervisor.reject("it holds nothing")
        assert bench.started[-1].stopped
        assert bench.supervisor.tend() is Phase.DOWN
        bench.now += seconds
    bench.phases(2)
    with pytest.raises(ConfigError, match="it holds nothing"):
        bench.supervisor.reject("it holds nothing")


def test_one_that_has_proved_itself_may_fail_anew(bench: Bench) -> None:
    bench.healthy = True
    for _ in range(12):
        assert bench.phases(2) == [Phase.STARTING, Phase.CAME_UP]
        bench.supervisor.has_proved_itself()
        bench.started[-1].code = -9
        assert bench.supervisor.tend() is Phase.WENT_DOWN
        bench.now += 1.0


def test_one_that_hangs_is_started_anew_but_not_one_that_is_slow(bench: Bench) -> None:
    bench.healthy = True
    bench.phases(2)
    bench.supervisor.has_proved_itself()
    for _ in range(3):
        for healthy, seconds in ((False, 50.0), (True, 6.0)):
            bench.healthy = healthy
            bench.now += seconds
            assert bench.supervisor.tend() is Phase.READY
    bench.healthy = False
    bench.now += 61.0
    assert bench.supervisor.tend() is Phase.WENT_DOWN
    assert bench.started[0].stopped


def test_the_log_of_one_that_runs_for_long_is_bounded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "_MAX_LOG_BYTES", 100)
    log = bench.folder / "engine.log"
    bench.supervisor = Supervisor(bench.start, lambda: True, log, 50.0, lambda: bench.now)
    bench.phases(2)
    with log.open("ab") as file:
        file.write(b"x" * 101)
        file.flush()
        bench.now += 6.0
        bench.supervisor.tend()
        assert (log.stat().st_size, log.with_suffix(".log.1").stat().st_size) == (0, 101)
        file.write(b"more")
    assert log.read_bytes() == b"more"


def test_one_that_takes_too_long_is_ended(bench: Bench) -> None:
    bench.phases(2)
    bench.now += 50.1
    assert bench.supervisor.tend() is Phase.WENT_DOWN
    assert bench.started[0].stopped
