"""The process: reads to the end, makes the changes that are due, reads on.

waits for                        what unblocks it
------------------------------   --------------------------------------------
records                          they come, or a tenth of a second passes
a transaction                    it is committed, or fails after at most 40 s
Kafka, when it is away           a pause of 1 s, then everything is read anew
"""

import threading
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from controlplane.promotion.changes import Change, Moment, Rules, next_change
from controlplane.promotion.state import TOPICS, State
from schemas import codec, topics
from schemas.atdp.weights import ProposalAnswer, RingAssignment
from schemas.bus import Bus, FencedError, Received, Record, Transactions, transact
from schemas.bus.following import Following
from schemas.errors import TransientError
from schemas.rings import answer_key, ring_key
from schemas.roster import Reading
from schemas.settings import PromotionSettings

_log = structlog.get_logger("promotion")

_POLL_SECONDS = 0.1
_RETRY_SECONDS = 1.0


class Promotion:
    """One writer of assignments. `run` blocks; `stop` may come from another thread."""

    def __init__(
        self,
        bus: Bus,
        settings: PromotionSettings,
        *,
        key: bytes | None = None,
        on_ready: Callable[[], None] = lambda: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """With `key` versions that are not signed with it are not assigned.

        `on_ready` is called when everything there was has been read for the first time.
        """
        self._bus, self._settings, self._key = bus, settings, key
        self._on_ready, self._now = on_ready, now
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Make `run` return soon."""
        self._stopping.set()

    def run(self) -> None:
        """Decide until stopped. FencedError once another process has taken this one's place.

        After a failed transaction it is not known what readers see, so everything is read anew.
        """
        transactions: Transactions | None = None
        while not self._stopping.is_set():
            try:
                transactions = self._bus.transactions(topics.PROMOTION)
                self._follow(transactions)
            except TransientError as error:
                _log.warning("promotion_waits_for_kafka", error=str(error))
                self._stopping.wait(_RETRY_SECONDS)
            finally:
                if transactions is not None:
                    transactions.close()
                    transactions = None

    def _follow(self, transactions: Transactions) -> None:
        # Made after the transactions: what an earlier process wrote is all there by now.
        following = Following(self._bus, TOPICS)
        state = State(key=self._key)
        rules: Rules | None = None
        try:
            while not self._stopping.is_set():
                self._read(state, following)
                if following.as_of is None:
                    continue
                if rules is None:
                    rules = Rules(self._settings.mode, state.epoch + 1)
                    _log.info("promotion_decides", epoch=rules.epoch, mode=rules.mode)
                    self._on_ready()
                if state.epoch > rules.epoch:  # fencing itself is told only to who writes
                    raise FencedError(topics.PROMOTION)
                self._decide(state, following, rules, transactions)
        finally:
            following.close()

    def _read(self, state: State, following: Following) -> None:
        is_live = following.is_caught_up
        received = following.poll(_POLL_SECONDS)
        reading = Reading(self._now(), following.clock(), is_live)
        for record in received:
            state.take(record, reading)

    def _decide(
        self, state: State, following: Following, rules: Rules, transactions: Transactions
    ) -> None:
        moment = Moment(self._now(), following.as_of or 0.0)
        while change := next_change(state, moment, rules):
            self._write(state, change, transactions, following.clock())

    def _write(
        self, state: State, change: Change, transactions: Transactions, read_at: float
    ) -> None:
        """Write both records or none, and know them at once: reading them back takes time."""
        records = [_record(event) for event in (change.assignment, change.answer) if event]
        deliveries = transact(transactions, records)
        reading = Reading(self._now(), read_at, is_live=True)
        for record, delivery in zip(records, deliveries, strict=True):
            at = record.topic, delivery.partition, delivery.offset
            state.take(Received(*at, record.key, record.value), reading)
        _tell(change)


def _record(event: RingAssignment | ProposalAnswer) -> Record:
    if isinstance(event, RingAssignment):
        key = ring_key(event.policy, event.ring)
    else:
        key = answer_key(event.policy, event.version, event.ring)
    return Record(topics.WEIGHTS_PROMOTIONS, key, codec.encode(event))


def _tell(change: Change) -> None:
    ring, answer = change.assignment, change.answer
    if ring is not None:
        _log.info(
            "ring_assigned", policy=ring.policy, ring=ring.ring, sequence=ring.sequence,
            stable=ring.stable.version, canary=ring.canary and ring.canary.version,
            state=ring.state.value, reason=ring.reason,
        )  # fmt: skip
    if answer is not None:
        _log.info(
            "proposal_answered", policy=answer.policy, ring=answer.ring, version=answer.version,
            status=answer.status.value, reason=answer.reason,
        )  # fmt: skip
