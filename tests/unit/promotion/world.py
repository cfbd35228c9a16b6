"""What the promotion process reads and writes, in one place and compacted as the topics are."""

from dataclasses import dataclass, field
from typing import Any, Literal

from controlplane.promotion.changes import Change, Moment, Rules, next_change
from controlplane.promotion.state import State
from schemas import codec, topics
from schemas.atdp.weights import ProposalAnswer, RingAssignment
from schemas.bus import Received, Record
from schemas.rings import answer_key, ring_key
from schemas.roster import Reading
from tests.ring_events import POLICY, RING, at, record

_MAX_CHANGES = 200


@dataclass
class World:
    """Time passes only when a test says so."""

    mode: Literal["auto", "manual"] = "auto"
    seconds: float = 0.0
    state: State = field(default_factory=State)
    epoch: int = 1
    written: list[Change] = field(default_factory=list)
    _log: list[tuple[Received, float]] = field(default_factory=list)
    _ends: dict[str, int] = field(default_factory=dict)

    def add(self, *events: Any) -> None:
        """Somebody else writes."""
        for event in events:
            self._append(record(event))

    def _append(self, made: Record) -> None:
        offset = self._ends.get(made.topic, 0)
        self._ends[made.topic] = offset + 1
        received = Received(made.topic, 0, offset, made.key, made.value)
        self._log.append((received, self.seconds))
        self.state.take(received, Reading(at(self.seconds), self.seconds, is_live=True))

    def step(self) -> Change | None:
        """One change, written whole."""
        moment = Moment(at(self.seconds), self.seconds)
        change = next_change(self.state, moment, Rules(self.mode, self.epoch))
        if change is None:
            return None
        self.written.append(change)
        if change.assignment is not None:
            made = change.assignment
            key = ring_key(made.policy, made.ring)
            self._append(Record(topics.WEIGHTS_PROMOTIONS, key, codec.encode(made)))
        if change.answer is not None:
            answer = change.answer
            key = answer_key(answer.policy, answer.version, answer.ring)
            self._append(Record(topics.WEIGHTS_PROMOTIONS, key, codec.encode(answer)))
        return change

    def settle(self) -> None:
        """All changes that are due."""
        for _ in range(_MAX_CHANGES):
            if self.step() is None:
                return
        raise AssertionError("the changes do not come to an end")

    def restart(self) -> None:
        """Another process reads what compaction left."""
        latest = {(r.topic, r.key): r.offset for r, _ in self._log}
        kept = [(r, t) for r, t in self._log if latest[r.topic, r.key] == r.offset]
        self.state = State()
        for received, _ in kept:
            self.state.take(received, Reading(at(self.seconds), self.seconds, is_live=False))
        self.epoch = self.state.epoch + 1

    @property
    def ring(self) -> RingAssignment:
        return self.state.rings[POLICY, RING]

    def answer(self, version: int, ring: str = RING) -> ProposalAnswer:
        return self.state.answers[POLICY, ring, version]
