"""Which upstreams are left alone for a while, and how often a call may be tried elsewhere. Pure,
save for the clock that is given.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from schemas.settings import GatewaySettings


@dataclass(slots=True)
class _Record:
    """What is known of one upstream."""

    num_failures: int = 0
    open_until: float = 0.0
    #: The last failure was an answer, so that the upstream may still say something of its own.
    answers: bool = False


class Breakers:
    """One circuit breaker for each upstream, by its address.

    closed ──`breaker_failures` in a row──▶ open ──`breaker_seconds`──▶ one call is let through:
    it closes the circuit, or opens it for as long again.
    """

    def __init__(
        self, settings: GatewaySettings, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_failures = settings.breaker_failures
        self._seconds = settings.breaker_seconds
        self._monotonic = monotonic
        self._records: dict[str, _Record] = {}

    def is_open(self, base: str) -> bool:
        """Whether calls go past this upstream now."""
        record = self._records.get(base)
        return record is not None and self._monotonic() < record.open_until

    def is_silent(self, base: str) -> bool:
        """Whether nothing came back from it when it was last tried, and it is not tried again."""
        return self.is_open(base) and not self._records[base].answers

    def takes(self, base: str) -> None:
        """A call goes to it. Where it is being tried again no other call follows meanwhile."""
        record = self._records.get(base)
        if record is not None and record.num_failures >= self._max_failures:
            record.open_until = self._monotonic() + self._seconds

    def succeeded(self, base: str) -> None:
        """An answer began."""
        self._records.pop(base, None)

    def spoke(self, base: str) -> None:
        """It refused one client. So it is not silent; whether it can answer is not known."""
        record = self._records.get(base)
        if record is not None:
            record.answers = True

    def failed(self, base: str, *, answered: bool) -> None:
        """Nothing came back, or only that it cannot answer now."""
        record = self._records.setdefault(base, _Record())
        record.num_failures += 1
        record.answers = answered
        if record.num_failures >= self._max_failures:
            record.open_until = self._monotonic() + self._seconds


class RetryBudget:
    """How many calls may be tried again: a share of all, and a few at once.

    Without it, an upstream that is overloaded would get its load twice.
    """

    def __init__(self, share: float, reserve: int) -> None:
        self._share, self._reserve = share, float(reserve)
        self._left = float(reserve)

    def call(self) -> None:
        """A call began."""
        self._left = min(self._reserve, self._left + self._share)

    def take(self) -> bool:
        """Use one retry; False where none is left."""
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
