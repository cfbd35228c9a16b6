"""A worker with a real vLLM, killed by SIGKILL at steps of an update: ADR 0023 tells of all steps.

Each round starts one engine: it heals from the kill before it, and is killed over the next version.
"""

import signal
from pathlib import Path

import pytest

from infra.local.processes import is_alive
from tests.integration.worker.dying_worker import STEPS
from tests.integration.worker.test_two_workers import Traffic
from tests.live_engine import ask
from tests.tiny_model import letter_of
from tests.worker_processes import READY_SECONDS, rings

pytestmark = [pytest.mark.integration, pytest.mark.soak, pytest.mark.timeout(1800)]

WORKER = "tests.integration.worker.dying_worker"


def test_a_worker_killed_with_its_engine_serves_nothing_wrong_and_heals(
    kafka: str, engine_python: Path, tmp_path: Path
) -> None:
    with rings(kafka, engine_python, tmp_path, ("one",), tied=True, starts=False) as ring:
        (worker,) = ring.workers
        healed = ring.publish()
        ring.promote(healed)
        for step in STEPS:
            worker.start(WORKER, DIES_AT=step, DIES_OVER=str(healed.version + 1))
            ring.wait_for_ack_of("one", healed, READY_SECONDS)
            ring.require_equal(healed, worker)
            family = worker.family()
            with Traffic([worker.url]) as traffic:
                ring.wait_for(lambda: traffic.num_answers > 0)
                newer = ring.publish()
                ring.promote(newer)
                assert worker.process is not None
                assert worker.process.wait(60) == -signal.SIGKILL, step
                # Nothing of the engine outlives its worker, and so nothing torn.
                ring.wait_for(lambda: not any(map(is_alive, family)), 10.0)  # noqa: B023
            assert traffic.wrong == [], step
            assert traffic.seen_by(worker.url) <= {healed.version, newer.version}
            healed = newer
        worker.start()
        ring.wait_for_ack_of("one", healed, READY_SECONDS)
        ring.require_equal(healed, worker)
        text, headers = ask(worker.url)
        assert (text, headers["weights-root"]) == (letter_of(healed.version), healed.root)
