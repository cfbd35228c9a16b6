"""Waiting until everything that was sent has arrived, within a bound."""

from __future__ import annotations

import time
from collections.abc import Callable

from infra.demo.ledger import Ledger
from infra.demo.verify import Evidence, Verdict, is_complete, judge, read_evidence
from infra.replay.plan import INPUTS
from infra.store import Reader
from schemas import topics
from schemas.bus.api import Bus
from schemas.errors import TransientError

_POLL_SECONDS = 1.0
#: Nothing new for so long means that nothing more will come.
_PATIENCE_SECONDS = 90.0
_MAX_SECONDS = 1200.0


def num_unread(bus: Bus) -> int:
    """Records that some processor has not committed yet. Ticks do not count: they never end."""
    admin = bus.admin()
    try:
        unread = 0
        for group, inputs in INPUTS.items():
            names = [name for name in inputs if name != topics.TICKS]
            committed = admin.committed(group, names)
            for name in names:
                for partition, (first, end) in admin.watermarks(name).items():
                    unread += end - max(first, committed.get((name, partition), first))
        return unread
    finally:
        admin.close()


def settle(
    reader: Reader,
    bus: Bus,
    ledger: Ledger,
    tenant_id: str,
    on_progress: Callable[[int], None] = lambda _num_missing: None,
) -> tuple[Evidence, Verdict]:
    """Wait until the store shows all that the ledger holds and nothing is on its way any more.

    Returns what is there when nothing has changed for the time of patience, complete or not: the
    numbers then say what is missing. `on_progress` gets the number of calls and rewards missing.
    """
    started = last_change = time.monotonic()
    before: tuple[Verdict, int] | None = None
    while True:
        evidence = read_evidence(reader, bus)
        verdict = judge(ledger, evidence, tenant_id)
        unread = num_unread(bus)
        on_progress(verdict.num_lost + verdict.num_unmatched)
        now = time.monotonic()
        if (verdict, unread) != before:
            before, last_change = (verdict, unread), now
        elif unread == 0 and is_complete(ledger, verdict):
            return evidence, verdict  # the same twice in a row, with nothing on its way
        elif now - last_change > _PATIENCE_SECONDS:
            return evidence, verdict
        if now - started > _MAX_SECONDS:
            raise TransientError(
                f"{unread} records are still on their way after {_MAX_SECONDS:.0f} s. "
                "`headrace status` and `headrace logs` show why."
            )
        time.sleep(_POLL_SECONDS)
