"""What the topics say to a worker: the versions of its policy, and what its ring shall serve."""

from collections.abc import Sequence

from schemas import codec, topics
from schemas.atdp.weights import RingAssignment, VersionRef, WeightsManifest
from schemas.bus.api import Received
from schemas.errors import PermanentError
from schemas.rings import target_of
from schemas.weights.manifests import History, require_signature
from schemas.weights.refusals import RefusedError

#: Versions behind the newest whose manifests are kept whole. Older ones are proved by their root
#: alone: the lines of all tensors are most of a manifest, and versions never end.
KEPT_LINES = 100


class Follower:
    """The latest of each, fed record by record. Records that are not for this worker pass by."""

    def __init__(
        self, worker_id: str, policy: str, rings: Sequence[str], key: bytes | None = None
    ) -> None:
        """With `key` manifests that are not signed with it are refused."""
        self._worker_id, self._policy, self._rings = worker_id, policy, tuple(rings)
        self._key = key
        self._assignments: dict[str, RingAssignment] = {}
        self.history = History(policy)
        #: Grows with every manifest: what was refused may be had now.
        self.num_manifests = 0

    def take(self, record: Received) -> None:
        """Learn from a record of either topic."""
        try:
            event = codec.decode(record.value)
        except PermanentError:
            return  # a tombstone, or from a later headrace
        if isinstance(event, WeightsManifest):
            self._take_manifest(event)
        elif isinstance(event, RingAssignment) and record.topic == topics.WEIGHTS_PROMOTIONS:
            self._take_assignment(event)

    def _take_manifest(self, manifest: WeightsManifest) -> None:
        if manifest.policy != self._policy:
            return
        self.num_manifests += 1
        try:
            if self._key is not None:
                require_signature(manifest, self._key)
            self.history.take(manifest)
            self.history.forget_lines(manifest.version - KEPT_LINES)
        except RefusedError as error:
            self.history.refuse(manifest, error.refusal)

    def _take_assignment(self, assignment: RingAssignment) -> None:
        known = self._assignments.get(assignment.ring)
        if assignment.policy != self._policy or assignment.ring not in self._rings:
            return
        if known is None or assignment.sequence >= known.sequence:
            self._assignments[assignment.ring] = assignment

    @property
    def assignment(self) -> RingAssignment | None:
        """That of the first of the rings which has one."""
        found = (self._assignments.get(ring) for ring in self._rings)
        return next((assignment for assignment in found if assignment is not None), None)

    @property
    def target(self) -> VersionRef | None:
        """What this worker shall serve."""
        assignment = self.assignment
        return None if assignment is None else target_of(assignment, self._worker_id)
