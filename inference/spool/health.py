"""What the gateway says of itself: facts, and from them, pure, a judgement with a sentence."""

import time
from dataclasses import dataclass
from typing import Literal

from inference.access.keys import KeyFollower
from inference.routing.follow import RouteFollower
from inference.spool.publisher import Publisher
from inference.spool.writer import Spool
from schemas.settings import GatewaySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The gateway at one moment. `kafka_delivers` is None until Kafka answered the first event;
    the two times are those of the oldest waiting event and of the last one that Kafka took."""

    alive: bool
    keys_known: bool
    kafka_delivers: bool | None
    spool_bytes: int
    spool_max_bytes: int
    spool_is_full: bool
    spool_events_waiting: int
    spool_age_seconds: float
    still_seconds: float
    waits_for: str
    when_spool_full: Literal["block", "shed"]
    #: False while calls are relayed without a record, as `gateway.capture` says.
    captures: bool = True
    #: Where calls go to a ring: whether its workers are known, and how many may get calls.
    routes_known: bool | None = None
    routable_workers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayHealth:
    """The answer of /health and /ready. `ready`: calls are taken, and recorded as far as the
    settings say. `healthy`: what is recorded gets on to Kafka too. `why` is a sentence for a
    person, empty where all is well."""

    alive: bool
    ready: bool
    healthy: bool
    why: str
    keys_known: bool
    kafka_delivers: bool | None
    spool_bytes: int
    spool_events_waiting: int
    spool_age_seconds: float
    still_seconds: float
    routable_workers: int | None = None


def look(
    publisher: Publisher,
    spool: Spool,
    keys: KeyFollower,
    gateway: GatewaySettings,
    routes: RouteFollower | None = None,
    *,
    captures: bool = True,
) -> Facts:
    """The facts of now."""
    now, oldest_at = time.monotonic(), publisher.oldest_at
    return Facts(
        alive=publisher.is_alive and keys.is_alive and (routes is None or routes.is_alive),
        keys_known=keys.is_ready,
        kafka_delivers=publisher.is_delivering,
        spool_bytes=spool.backlog_bytes,
        spool_max_bytes=spool.max_bytes,
        spool_is_full=spool.is_full,
        spool_events_waiting=publisher.num_spooled,
        spool_age_seconds=0.0 if oldest_at is None else now - oldest_at,
        still_seconds=0.0 if oldest_at is None else now - publisher.progressed_at,
        waits_for=publisher.waits_for or keys.waits_for or (routes.waits_for if routes else ""),
        when_spool_full=gateway.when_spool_full,
        captures=captures,
        routes_known=routes.is_ready if routes else None,
        routable_workers=len(routes.routes.worker_ids) if routes else None,
    )


def judge(facts: Facts, stalled_after_seconds: float) -> GatewayHealth:
    """The gateway is healthy while Kafka takes what waits in the spool, or nothing waits."""
    not_ready = _why_not_ready(facts)
    why = not_ready or _why_not_on(facts, stalled_after_seconds)
    return GatewayHealth(
        alive=facts.alive,
        ready=not not_ready,
        healthy=not why,
        why=why,
        keys_known=facts.keys_known,
        kafka_delivers=facts.kafka_delivers,
        spool_bytes=facts.spool_bytes,
        spool_events_waiting=facts.spool_events_waiting,
        spool_age_seconds=round(facts.spool_age_seconds, 1),
        still_seconds=round(facts.still_seconds, 1),
        routable_workers=facts.routable_workers,
    )


def _why_not_ready(facts: Facts) -> str:
    if not facts.alive:
        return "A thread of the gateway has ended; its log says why, and it starts anew."
    if not facts.keys_known:
        return f"It knows no key yet: {facts.waits_for.rstrip('.') or 'Kafka has not answered'}."
    if facts.routes_known is False:
        return f"It knows no worker yet: {facts.waits_for.rstrip('.') or 'it reads the topics'}."
    if facts.spool_is_full and facts.captures and facts.when_spool_full == "block":
        return _full(facts, "new calls, feedback and events are refused")
    return ""


def _full(facts: Facts, effect: str) -> str:
    return (
        f"The spool is full ({facts.spool_bytes:,} of {facts.spool_max_bytes:,} bytes): {effect} "
        "until Kafka takes what waits."
    )


def _why_not_on(facts: Facts, stalled_after_seconds: float) -> str:
    if facts.spool_is_full and not facts.captures:
        return _full(facts, "feedback and events are refused")
    if facts.spool_is_full:
        return _full(
            facts, "new calls are relayed without a record, feedback and events are refused"
        )
    if facts.still_seconds <= stalled_after_seconds:
        return ""
    return (
        f"{facts.spool_events_waiting:,} events wait in the spool and Kafka has taken none for "
        f"{facts.still_seconds:.0f} s: {facts.waits_for.rstrip('.') or 'no answer yet'}."
    )
