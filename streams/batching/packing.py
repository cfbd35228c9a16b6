"""Which of the waiting candidates make the next micro-batch. Pure.

A batch is due when enough sequences or tokens wait, or when the first has waited long enough. It is
filled in the order of arrival, a sample whole or not at all. While several tenants wait, none fills
more than its share of a batch; what is over it waits for the next one.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from schemas.atdp.training import MicroBatch
from schemas.ids import derive_id
from streams.batching.admission import Candidate, num_trained

Where = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Limits:
    """Size of a batch, and how long the first sample of one waits."""

    num_sequences: int
    num_tokens: int
    max_wait_seconds: float
    tenant_share: float
    max_waiting: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """A candidate that waits, where its record lies, and since when (monotonic).

    `is_told`: that it is held was said already.
    """

    where: Where
    candidate: Candidate
    since: float
    is_told: bool = False

    @property
    def tenant_id(self) -> str:
        """Who owns it."""
        return self.candidate.sample.tenant_id


@dataclass(frozen=True, slots=True)
class Choice:
    """The next batch, and what was passed over because its tenant has its share."""

    chosen: tuple[Waiting, ...]
    over_share: tuple[Waiting, ...]


def is_due(waiting: Sequence[Waiting], now: float, limits: Limits) -> bool:
    """Whether a batch of these shall go out."""
    if not waiting:
        return False
    return (
        sum(len(w.candidate.sequences) for w in waiting) >= limits.num_sequences
        or sum(w.candidate.num_tokens for w in waiting) >= limits.num_tokens
        or now - waiting[0].since >= limits.max_wait_seconds
    )


def choose(waiting: Sequence[Waiting], limits: Limits) -> Choice:
    """The next batch, never empty where something waits. What is larger than a batch goes alone."""
    whole = limits.num_sequences
    are_several = len({w.tenant_id for w in waiting}) > 1
    share = max(1, int(whole * limits.tenant_share))
    chosen: list[Waiting] = []
    over: list[Waiting] = []
    taken: Counter[str] = Counter()
    num_tokens = 0
    for one in waiting:
        number = len(one.candidate.sequences)
        mine = taken[one.tenant_id]
        if are_several and mine and mine + number > share:
            over.append(one)
        elif not chosen or (
            taken.total() + number <= whole
            and num_tokens + one.candidate.num_tokens <= limits.num_tokens
        ):
            chosen.append(one)
            taken[one.tenant_id] += number
            num_tokens += one.candidate.num_tokens
    return Choice(tuple(chosen), tuple(over))


def crowding(waiting: Sequence[Waiting], limits: Limits) -> Waiting | None:
    """The oldest sample of the tenant that fills a full waiting room, unless it waits alone."""
    counts = Counter(w.tenant_id for w in waiting)
    if len(waiting) <= limits.max_waiting or len(counts) == 1:
        return None
    (tenant, _), *_ = counts.most_common(1)
    return next(w for w in waiting if w.tenant_id == tenant)


def pack(
    policy: str, chosen: Sequence[Waiting], newest: int | None, created_at: datetime, epoch: int
) -> MicroBatch:
    """The micro-batch of these candidates. Its id depends on what is in it alone."""
    found = [s for w in chosen for s in w.candidate.sequences]
    versions = [t.version for s in found for t in s.trained if t.version is not None]
    parts = [
        part
        for w in chosen
        for part in (w.tenant_id, w.candidate.sample.sample_id, w.candidate.revision)
    ]
    return MicroBatch(
        batch_id=derive_id("microbatch", policy, *parts),
        policy=policy,
        created_at=created_at,
        sequences=tuple(found),
        num_sequences=len(found),
        num_tokens=sum(len(s.token_ids) for s in found),
        num_trained_tokens=sum(map(num_trained, found)),
        sample_ids=tuple(dict.fromkeys(s.sample_id for s in found)),
        tenant_ids=tuple(dict.fromkeys(s.tenant_id for s in found)),
        oldest_version=min(versions, default=None),
        newest_version=max(versions, default=None),
        policy_version=newest,
        replay_epoch=epoch,
    )
