"""From a checkpoint to a version that is proposed: what was promised on the disk is published.

    checkpoint (durable) ─▶ chunks or snapshot ─▶ manifest ─▶ baseline moves ─▶ proposal

Whoever dies in between goes on from the checkpoint: `catch_up` publishes the version that it
names when its manifest is missing, and proposes it when nobody has.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from schemas import codec, topics
from schemas.atdp.internal import PartitionOffset
from schemas.atdp.weights import Proposal, RingAssignment, RingState, VersionRef, WeightsManifest
from schemas.bus.api import Bus, Received, Record, deliver_now
from schemas.bus.following import Following
from schemas.errors import ConfigError, PermanentError
from schemas.rings import TRAINER, proposal_key
from schemas.store import BlobStore
from schemas.weights.publish import Publisher, Training
from schemas.weights.shadow import Shadow
from schemas.weights.tensors import Tensors, digests_of, layout_of, root_of
from schemas.weights.versions import restore

_DELIVERY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Promise:
    """What the checkpoint says of its weights, and of what they have seen."""

    version: int
    root: str
    base_version: int | None
    num_steps: int
    next_offset: int | None
    statistics: Mapping[str, float]


def root_of_all(tensors: Tensors) -> str:
    """The root that a manifest of these weights will have."""
    return root_of(layout_of(tensors), digests_of(tensors))


class Versions:
    """The versions of one policy from the trainer's side. Blocks; for one thread."""

    def __init__(
        self,
        bus: Bus,
        blobs: BlobStore,
        policy: str,
        ring: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        key: bytes | None = None,
    ) -> None:
        """Fence earlier trainers of the policy. TransientError when Kafka is away."""
        self._bus, self._blobs, self._now = bus, blobs, now
        self._policy, self._ring = policy, ring
        self._publisher = Publisher(bus, blobs, policy, key=key)
        self._proposals = bus.producer(f"trainer.{policy}.proposals")
        self._following = Following(bus, [topics.WEIGHTS_PROMOTIONS])
        self._assignment: RingAssignment | None = None
        self._proposed: dict[int, Proposal] = {}

    @property
    def newest(self) -> int | None:
        """The highest committed version."""
        return max(self._publisher.history.versions, default=None)

    @property
    def baseline(self) -> int | None:
        """The committed version that the next delta starts from."""
        return self._publisher.baseline_version

    def root_of(self, tensors: Tensors) -> str:
        """The root that a manifest of these tensors will have."""
        return root_of_all(tensors)

    def begin(self) -> tuple[int, str, Tensors] | None:
        """What a policy that has learned nothing goes on from: the newest version, its root, and
        what is in it. None where there is none: the policy's own weights are to be published.
        """
        newest = self._publisher.history.newest_weights
        if newest is None:
            return None
        return newest.version, newest.root, self.fork_from(newest.version)

    def tensors_of(self, version: int) -> Tensors:
        """What is in a committed version, proved."""
        return restore(self._bus, self._blobs, self._publisher.history, version).tensors

    def recent(self, version: int, number: int) -> list[int]:
        """A version and those that it was made from, at most so many, the oldest first."""
        chain: list[int] = []
        at: int | None = version
        while at is not None and len(chain) < number:
            chain.append(at)
            manifest = self._publisher.history.versions.get(at)
            at = None if manifest is None else manifest.from_version
        return chain[::-1]

    def catch_up(self, promise: Promise, tensors: Tensors) -> None:
        """Make true what the checkpoint says; called once, before anything else is published.

        ConfigError when another writer has taken the version in the meantime.
        """
        manifest = self._publisher.history.versions.get(promise.version)
        if manifest is None:
            if promise.base_version is not None:
                self._go_on_from(promise.base_version, self.tensors_of(promise.base_version))
            self.publish(promise, tensors)
            return
        if manifest.root != promise.root:
            raise ConfigError(
                f"Somebody else published version {promise.version} of {self._policy}. Move the "
                "trainer's folder away: it then begins anew from the newest version."
            )
        self._go_on_from(promise.version, tensors)
        self._follow_to_end()
        if promise.version not in self._proposed:
            self._propose(manifest, promise)

    def publish(self, promise: Promise, tensors: Tensors) -> WeightsManifest:
        """Publish the version of a durable checkpoint, then propose it."""
        offset = promise.next_offset
        watermark = () if offset is None else (
            PartitionOffset(topic=topics.MICROBATCHES, partition=0, offset=offset),
        )  # fmt: skip
        training = Training(promise.num_steps, watermark, tuple(promise.statistics.items()))

        def propose(manifest: WeightsManifest) -> None:
            if (manifest.version, manifest.root) != (promise.version, promise.root):
                raise ConfigError(
                    f"Version {manifest.version} of {self._policy} is not what the checkpoint "
                    f"promised ({promise.version}). Stop other writers of this policy."
                )
            self._propose(manifest, promise)

        return self._put_out(tensors, training, propose)

    def fork_from(self, version: int) -> Tensors:
        """Go on from another committed version: what the ring went back to."""
        tensors = self.tensors_of(version)
        self._go_on_from(version, tensors)
        return tensors

    def rolled_back(self, after_sequence: int) -> RingAssignment | None:
        """The ring's assignment when it is a later one that took a version back."""
        for record in self._following.poll(0.0):
            self._take(record)
        found = self._assignment
        if found is None or found.sequence <= after_sequence:
            return None
        return found if found.state is RingState.ROLLED_BACK else None

    def close(self) -> None:
        """Release the connections."""
        self._publisher.close()
        self._proposals.close()
        self._following.close()

    def _go_on_from(self, version: int, tensors: Tensors) -> None:
        """The next delta starts from that version."""
        self._publisher.start_from(version, Shadow(tensors))

    def _put_out(
        self, tensors: Tensors, training: Training, on_committed: Callable[[WeightsManifest], None]
    ) -> WeightsManifest:
        return self._publisher.publish(tensors, training, on_committed)

    def _follow_to_end(self) -> None:
        while not self._following.is_caught_up:
            for record in self._following.poll(0.2):
                self._take(record)

    def _take(self, record: Received) -> None:
        try:
            event = codec.decode(record.value)
        except PermanentError:
            return  # a tombstone, or not ours to judge
        match event:
            case RingAssignment() if (event.policy, event.ring) == (self._policy, self._ring):
                self._assignment = event
            case Proposal() if (event.policy, event.ring) == (self._policy, self._ring):
                self._proposed[event.target.version] = event

    def _propose(self, manifest: WeightsManifest, promise: Promise) -> None:
        proposal = Proposal(
            policy=self._policy,
            target=VersionRef(version=manifest.version, root=manifest.root),
            proposed_by=TRAINER,
            reason=f"step {promise.num_steps} of the trainer",
            evidence=json.dumps(dict(promise.statistics)),
            epoch=self._publisher.epoch,
            ring=self._ring,
            proposed_at=self._now(),
        )
        key = proposal_key(self._policy, manifest.version, self._ring)
        record = Record(topics.WEIGHTS_PROMOTIONS, key, codec.encode(proposal))
        deliver_now(self._proposals, [record], _DELIVERY_SECONDS)
