"""Ask Kafka, the store, the gateway and the processors how they are. Every question is bounded."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from infra.local.state import StackState, Status
from infra.status.report import (
    INPUTS,
    KAFKA,
    LEARNING_INPUTS,
    STORE,
    Lag,
    Part,
    Report,
    Sample,
    gap_sentence,
    groups_of,
    lags_of,
    waits_of,
)
from schemas import topics
from schemas.bus import Bus
from schemas.bus.api import Admin
from schemas.bus.kafka import KafkaBus
from schemas.bus.lag import standings, waiting_since
from schemas.errors import ConfigError, HeadraceError
from schemas.log_gaps import GAP_RECORDED, Why
from schemas.settings import Settings

_KAFKA_SECONDS = 4.0
_HTTP_SECONDS = 3.0
_SINCE_SECONDS = 4.0
_GAPS = f"""
SELECT actor, JSONExtractString(details, 'topic') AS topic,
       sum(JSONExtractInt(details, 'end') - JSONExtractInt(details, 'first')) AS num_records,
       max(occurred_at)
FROM audit_events
WHERE action = '{GAP_RECORDED}' AND JSONExtractString(details, 'why') = '{Why.RETENTION}'
  AND occurred_at > now() - INTERVAL 7 DAY
GROUP BY actor, topic ORDER BY actor, topic
"""  # noqa: S608 - our own names
_QUARANTINED = """
SELECT count() FROM quarantined_events WHERE quarantine_id NOT IN (
    SELECT subject FROM audit_events WHERE action IN ('quarantine.released', 'quarantine.dropped')
)
"""
_PROCESSORS = {
    group.rpartition(".")[2]: group for group in (*topics.GROUPS, *topics.LEARNING_GROUPS)
}


def collect(
    settings: Settings, state: StackState | None, *, sample_seconds: float, is_whole: bool = True
) -> Report:
    """One report. `state` is that of the local stack, where one runs here.

    Where something waits, a second look after `sample_seconds` tells at which rate. `is_whole`:
    the store and the gateway belong to it; a stack of a few processes is asked for those alone.
    """
    names = {child.name for child in state.children} if state else set()
    processes = _processes(settings, state)
    store = [_store(settings)] if is_whole or "clickhouse" in names else []
    bus = KafkaBus.from_settings(settings.kafka, request_seconds=_KAFKA_SECONDS)
    admin = bus.admin()
    try:
        sample = look(admin)
        lags, sample = _lags(bus, admin, sample, sample_seconds)
        groups = groups_of(sample, {group: admin.num_members(group) for group in sample.standings})
        replays = _replays(bus, sample)
    except HeadraceError as error:
        where = settings.kafka.bootstrap_servers
        kafka = Part(KAFKA, healthy=False, why=_sentence(error, f"Kafka at {where}"))
        parts = (kafka, *store, *processes)
        return Report(parts, waits=waits_of(parts, (), ()))
    finally:
        admin.close()
    parts = (Part(KAFKA, healthy=True), *store, *processes)
    asks = bool(store) and all(part.healthy for part in store)
    gaps, num_quarantined = _stored(settings) if asks else ((), 0)
    waits = waits_of(parts, groups, replays)
    return Report(parts, groups, lags, waits, replays, gaps, num_quarantined)


def look(admin: Admin) -> Sample:
    """Where every group stands now."""
    ran = {g: names for g, names in LEARNING_INPUTS.items() if admin.committed(g, names)}
    found = {group: standings(admin, group, names) for group, names in (INPUTS | ran).items()}
    return Sample(datetime.now(UTC), found)


def _lags(
    bus: Bus, admin: Admin, sample: Sample, sample_seconds: float
) -> tuple[tuple[Lag, ...], Sample]:
    waits = any(s.behind for found in sample.standings.values() for s in found.values())
    if not waits or sample_seconds <= 0:
        return lags_of(sample, None, _since(bus, sample) if waits else {}), sample
    started = time.monotonic()
    since = _since(bus, sample)
    time.sleep(max(0.0, sample_seconds - (time.monotonic() - started)))
    second = look(admin)
    return lags_of(sample, second, since), second


def _since(bus: Bus, sample: Sample) -> dict[str, Mapping[Any, datetime]]:
    deadline = time.monotonic() + _SINCE_SECONDS
    return {
        group: waiting_since(bus, found, max_seconds=max(0.0, deadline - time.monotonic()))
        for group, found in sample.standings.items()
    }


def _replays(bus: Bus, sample: Sample) -> tuple[str, ...]:
    """A sentence for each group that still handles again what it had handled before."""
    from streams.runtime.replays import read_replays

    newest = {replay.group: replay for replay in sorted(read_replays(bus), key=lambda r: r.epoch)}
    sentences = []
    for group, replay in newest.items():
        found = sample.standings.get(group, {})
        before = {(o.topic, o.partition): o.offset for o in replay.committed_before}
        left = sum(max(0, before.get(p, 0) - standing.committed) for p, standing in found.items())
        if left:
            sentences.append(
                f"{group} replays: {left:,} records are left of those that it had handled before "
                f"{replay.started_at:%Y-%m-%d %H:%M:%S} UTC."
            )
    return tuple(sentences)


def _store(settings: Settings) -> Part:
    from streams.sink.store import open_client

    try:
        open_client(settings).close()
    except HeadraceError as error:
        where = f"{settings.clickhouse.host}:{settings.clickhouse.port}"
        return Part(STORE, healthy=False, why=_sentence(error, f"The store at {where}"))
    return Part(STORE, healthy=True)


def _stored(settings: Settings) -> tuple[tuple[str, ...], int]:
    """A sentence for each group and topic that lost records to retention in the last days; how many
    records wait in quarantine for a decision."""
    from streams.sink.store import ClickHouseStore, open_client

    try:
        store = ClickHouseStore(open_client(settings, database=settings.clickhouse.database))
    except HeadraceError:
        return (), 0
    try:
        gaps = tuple(gap_sentence(*row) for row in store.rows(_GAPS))
        ((num_quarantined,),) = store.rows(_QUARANTINED)
        return gaps, int(num_quarantined)
    except HeadraceError:  # without tables nothing was recorded
        return (), 0
    finally:
        store.close()


def _processes(settings: Settings, state: StackState | None) -> list[Part]:
    """Those of the local stack that run; who does not run is told by the supervisor."""
    if state is None:
        return []
    parts = []
    for child in state.children:
        if child.status is not Status.READY or not child.ports:
            continue
        if child.name == "gateway":
            host = settings.gateway.host
        elif child.name in _PROCESSORS:
            host = settings.metrics_host
        else:
            continue
        parts.append(_process(child.name, f"http://{host}:{child.ports[0]}/health"))
    return parts


def _process(name: str, url: str) -> Part:
    answer = _ask(url)
    if answer is None:
        why = f"It does not answer {url} within {_HTTP_SECONDS:.0f} s; its log says what it does."
        return Part(name, healthy=False, why=why)
    return Part(name, healthy=bool(answer["healthy"]), why=str(answer["why"]), answer=answer)


def _ask(url: str) -> dict[str, Any] | None:
    try:
        with urllib.request.urlopen(url, timeout=_HTTP_SECONDS) as response:  # noqa: S310  # our own
            text = response.read()
    except urllib.error.HTTPError as error:
        with error:
            text = error.read()
    except (urllib.error.URLError, OSError):
        return None
    try:
        answer: dict[str, Any] = json.loads(text)
    except json.JSONDecodeError:
        return None
    return answer if {"healthy", "why"} <= answer.keys() else None


def _sentence(error: HeadraceError, who: str) -> str:
    """A wrong setting tells itself; of what is away we know that it does not answer."""
    if isinstance(error, ConfigError):
        return str(error)
    return f"{who} does not answer ({str(error).rstrip('.')})."
