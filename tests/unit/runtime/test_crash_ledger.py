"""What counts as a crash of a record, and when it has caused too many."""

from pathlib import Path

import pytest

from schemas.errors import PermanentError, Reason, TransientError
from streams.runtime.crashes import MAX_CRASHES, CrashLedger

WHERE = ("a.topic", 1, 7)


def fail(ledger: CrashLedger, error: Exception) -> None:
    with pytest.raises(type(error)), ledger.counting(WHERE):
        raise error


def test_a_bug_is_counted_on_disk_before_it_goes_on(tmp_path: Path) -> None:
    fail(CrashLedger(tmp_path / "crashes.json"), KeyError("a bug"))
    assert CrashLedger(tmp_path / "crashes.json").count(WHERE) == 1


@pytest.mark.parametrize("error", [TransientError("away"), PermanentError(Reason.UNDECODABLE)])
def test_the_other_outcomes_are_no_crash(tmp_path: Path, error: Exception) -> None:
    ledger = CrashLedger(tmp_path / "crashes.json")
    fail(ledger, error)
    assert ledger.count(WHERE) == 0


def test_a_record_that_crashed_too_often_is_not_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "crashes.json"
    for _ in range(MAX_CRASHES):
        fail(CrashLedger(path), RuntimeError("a bug"))
    entered = False
    with pytest.raises(PermanentError) as refused, CrashLedger(path).counting(WHERE):
        entered = True
    assert refused.value.reason is Reason.BUG
    assert not entered
