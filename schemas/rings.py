"""Rings of workers: keys of what is said about them, and who of them serves which version.

A ring is the workers of one policy that serve the same assignment. `controlplane.promotion` writes
assignments, workers follow them, gateways route by them.
"""

import math
import re
from collections.abc import Collection

from schemas.atdp.weights import Proposal, RingAssignment, VersionRef
from schemas.ids import derive_id

DEFAULT_RING = "default"
#: Who proposes what a trainer made. Whoever types a command has another name.
TRAINER = "trainer"
#: A worker whose last heartbeat is older than this is taken for gone. One comes every 2 s.
STALE_SECONDS = 10.0
#: As many earlier versions an assignment remembers at most.
MAX_SERVED = 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")


def is_name(text: str) -> bool:
    """Whether a policy or a ring may have that name: it becomes part of keys and headers."""
    return _NAME.match(text) is not None


def proposal_key(policy: str, version: int, ring: str = DEFAULT_RING) -> bytes:
    """The key of a proposal; the latest one of a version for a ring counts."""
    return f"{policy}/proposal/{version}{_of_ring(ring)}".encode()


def answer_key(policy: str, version: int, ring: str = DEFAULT_RING) -> bytes:
    """The key of what became of the latest proposal of a version for a ring."""
    return f"{policy}/answer/{version}{_of_ring(ring)}".encode()


def _of_ring(ring: str) -> str:
    """Two rings may be offered one version at once, and compaction keeps one record a key."""
    return "" if ring == DEFAULT_RING else f"/{ring}"


def ring_key(policy: str, ring: str) -> bytes:
    """The key of a ring's assignment."""
    return f"{policy}/ring/{ring}".encode()


def proposal_id(proposal: Proposal) -> str:
    """A function of who proposed what and when, so that a repetition is the same proposal."""
    share = proposal.canary_share
    return derive_id(
        "proposal", proposal.policy, proposal.ring, proposal.target.version, proposal.target.root,
        proposal.proposed_by, share, proposal.proposed_at.isoformat(),
    )  # fmt: skip


def canary_workers(workers: Collection[str], share: float) -> tuple[str, ...]:
    """Who of a ring takes a trial: the first by id, as many as the share asks for, never all.

    None where there are fewer than two.
    """
    wanted = math.ceil(share * len(workers))
    return tuple(sorted(workers)[: max(0, min(wanted, len(workers) - 1))])


def target_of(assignment: RingAssignment, worker_id: str) -> VersionRef:
    """The version that a worker of the ring has to serve."""
    if assignment.canary is not None and worker_id in assignment.canary_workers:
        return assignment.canary
    return assignment.stable
