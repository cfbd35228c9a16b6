"""What is known of versions, proposals, rings and workers. Pure: a function of what was read."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from schemas import codec, topics
from schemas.atdp.weights import (
    Proposal,
    ProposalAnswer,
    RingAssignment,
    WeightsAck,
    WeightsManifest,
    WorkerHeartbeat,
)
from schemas.bus.api import Received
from schemas.errors import PermanentError
from schemas.rings import proposal_id
from schemas.roster import Reading, Roster
from schemas.weights.manifests import History, require_signature
from schemas.weights.refusals import RefusedError

TOPICS = (
    topics.WEIGHTS_VERSIONS,
    topics.WEIGHTS_PROMOTIONS,
    topics.WEIGHTS_ACKS,
    topics.WORKERS,
)
RingName = tuple[str, str]
"""Policy and ring."""
Offered = tuple[str, str, int]
"""Policy, ring and version: what the latest proposal counts for."""


@dataclass(frozen=True, slots=True)
class Proposed:
    """The latest proposal of a version for a ring, and when we read it on our own clock."""

    proposal: Proposal
    offset: int
    read_at: float


@dataclass(slots=True)
class State:
    """All of it. `take` is the only way in."""

    histories: dict[str, History] = field(default_factory=dict)
    proposals: dict[Offered, Proposed] = field(default_factory=dict)
    answers: dict[Offered, ProposalAnswer] = field(default_factory=dict)
    _open: dict[Offered, Proposed] = field(default_factory=dict)
    rings: dict[RingName, RingAssignment] = field(default_factory=dict)
    #: With it, manifests that are not signed with it do not count.
    key: bytes | None = None
    #: Worker → its latest ack, with the offset that it lies at.
    acks: dict[str, tuple[WeightsAck, int]] = field(default_factory=dict)
    roster: Roster = field(default_factory=Roster)
    #: Offset after the last ack that was read.
    acks_end: int = 0
    #: Records that could not be read, by topic. They are passed over.
    num_unreadable: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def take(self, received: Received, reading: Reading) -> None:
        """Add one record."""
        if received.topic == topics.WEIGHTS_ACKS:
            self.acks_end = received.offset + 1
        try:
            event = codec.decode(received.value) if received.value else None
        except PermanentError:
            self.num_unreadable[received.topic] += 1
            return
        if event is None:
            self._forget(received, reading)
        else:
            self._add(event, received, reading)

    def _add(self, event: Any, received: Received, reading: Reading) -> None:
        match event:
            case WeightsManifest():
                self._take_manifest(event)
            case Proposal():
                at = event.policy, event.ring, event.target.version
                self.proposals[at] = Proposed(event, received.offset, reading.monotonic)
                self._note_open(at)
            case ProposalAnswer():
                at = event.policy, event.ring, event.version
                self.answers[at] = event
                self._note_open(at)
            case RingAssignment():
                self._take_assignment(event)
            case WeightsAck():
                self.acks[event.worker_id] = event, received.offset
            case WorkerHeartbeat():
                self.roster.take(event.worker_id, event, reading)
            case _:
                self.num_unreadable[received.topic] += 1

    def _forget(self, received: Received, reading: Reading) -> None:
        name = (received.key or b"").decode("utf-8", "replace")
        if received.topic == topics.WORKERS:
            self.roster.take(name, None, reading)
        elif received.topic == topics.WEIGHTS_ACKS:
            self.acks.pop(name, None)

    def _take_manifest(self, manifest: WeightsManifest) -> None:
        history = self.histories.setdefault(manifest.policy, History(manifest.policy))
        try:
            if self.key is not None:
                require_signature(manifest, self.key)
            # Only the chain matters here; lists of parts and tensors would be most of the memory.
            history.take(replace(manifest, tensors=(), parts=(), blobs=()))
        except RefusedError:
            return  # readers refuse it too

    def _take_assignment(self, assignment: RingAssignment) -> None:
        name = assignment.policy, assignment.ring
        known = self.rings.get(name)
        if known is None or assignment.sequence > known.sequence:
            self.rings[name] = assignment

    @property
    def epoch(self) -> int:
        """The highest number of a process that assigned something, 0 where none did."""
        return max((ring.epoch for ring in self.rings.values()), default=0)

    def root_of(self, policy: str, version: int) -> str | None:
        """The root of a version, None for one that nobody published."""
        history = self.histories.get(policy)
        manifest = history.versions.get(version) if history is not None else None
        return None if manifest is None else manifest.root

    def _note_open(self, at: Offered) -> None:
        """Keep the open ones apart: there are as many proposals as versions, and few are open."""
        proposed, answer = self.proposals.get(at), self.answers.get(at)
        if proposed is None:
            return
        if answer is None or answer.proposal_id != proposal_id(proposed.proposal):
            self._open[at] = proposed
        else:
            self._open.pop(at, None)

    def pending(self) -> list[Proposed]:
        """Proposals without an answer, in the order in which they were made."""
        return sorted(self._open.values(), key=lambda proposed: proposed.offset)
