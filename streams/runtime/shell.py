"""The Faust application of a processor: topics in, lanes behind, signals and exits around.

Faust gives consumption, partition assignment and the recovery of tables from their changelogs.
Writing a changelog, delivering outputs and acknowledging are ours (see `lane`), because Faust
acknowledges a record whose agent raised and does not wait for a changelog before it commits.
"""

import asyncio
import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from schemas import topics
from schemas.bus.access import KafkaAccess
from schemas.bus.api import Bus, Position, Producer
from schemas.bus.kafka import KafkaBus
from schemas.clock import SystemClock
from schemas.errors import ConfigError, Reason, TransientError
from schemas.settings import Settings, load_settings
from schemas.telemetry import Metrics, configure_logging
from schemas.tracing import make_tracing
from streams.runtime.crashes import CrashLedger
from streams.runtime.door import open_door
from streams.runtime.gaps import GapRecorder, OnGap
from streams.runtime.health import HealthWatch
from streams.runtime.holds import BusLogEnds
from streams.runtime.lane import Processor, RecordLane
from streams.runtime.lots import lots
from streams.runtime.pump import MAX_BYTES, Lane, LooksAhead, Pump
from streams.runtime.replays import ReplayMark, read_replay_mark
from streams.runtime.tables import FaustTable, sweeper

os.environ.setdefault("FAUST_LOOP", "asyncio")
import faust

from streams.runtime.consumer import Transport
from streams.runtime.monitor import Monitor

log = structlog.get_logger()

EXIT_CONFIG = 2
REFRESH_SECONDS = 5.0
#: New objects after which the young ones are looked through for cycles, Python's own being 700.
COLLECT_AFTER = 10_000
#: Records that wait in Faust before a stream, where their bytes allow it (`handover.py`).
MAX_BUFFERED = 900


@dataclass(frozen=True, slots=True)
class Context:
    """What a processor may build itself from."""

    settings: Settings
    bus: Bus
    metrics: Metrics
    mark: ReplayMark
    producer: Producer
    crashes: CrashLedger


class Shell:
    """One process of one consumer group."""

    def __init__(self, group: str, settings: Settings) -> None:
        # Processors write what their topics take, whatever gateways keep their records to.
        largest = max(topic.max_bytes for topic in topics.all_topics())
        self._access = KafkaAccess.from_settings(settings.kafka)
        self._tracing = make_tracing(group, settings.tracing)
        bus = KafkaBus(self._access, largest + 64 * 1024)
        self.context = Context(
            settings,
            bus,
            Metrics(),
            read_replay_mark(bus, group),
            bus.producer(group),
            CrashLedger(settings.data_dir / "run" / f"{group}.crashes.json"),
        )
        self._group = group
        (settings.data_dir / "run" / group).mkdir(parents=True, exist_ok=True)  # Faust's own folder
        self._pumps: list[tuple[Pump, Sequence[str]]] = []
        self._tasks: list[Callable[[], Any]] = []
        self._assignment: frozenset[Position] = frozenset()
        self._rebalanced_at = time.monotonic()
        self._is_ready = threading.Event()
        self._health: HealthWatch | None = None
        #: A processor whose batches make many objects and no cycles may set more.
        self.collect_after = COLLECT_AFTER
        gaps = GapRecorder(
            group=group,
            producer=self.context.producer,
            clock=SystemClock(),
            metrics=self.context.metrics,
        )
        self.app = _faust_app(group, settings, self._access, gaps.record)
        self.app.on_partitions_revoked.connect(self._forget)
        self.app.on_partitions_assigned.connect(self._assign)
        self.app.on_rebalance_complete.connect(self._recovered)

    def add_processor(
        self,
        inputs: Sequence[str],
        processor: Processor,
        *,
        table: str | None = None,
        max_batch: int = 200,
        max_held: int = 10_000,
        decides_once: bool = False,
    ) -> None:
        """Run `processor` over the co-partitioned topics `inputs`, with state in `table`.

        The options are those of `RecordLane`.
        """
        lane = RecordLane(
            group=self._group,
            processor=processor,
            table=self.table(table) if table else None,
            producer=self.context.producer,
            crashes=self.context.crashes,
            clock=SystemClock(),
            metrics=self.context.metrics,
            log_ends=BusLogEnds(self.context.bus.admin()),
            max_held=max_held,
            decides_once=decides_once,
        )
        self.add_lane(
            inputs, lane, max_batch=max_batch,
            linger_seconds=self.context.settings.kafka.linger_seconds,
        )  # fmt: skip

    def add_lane(
        self,
        inputs: Sequence[str],
        lane: Lane | LooksAhead,
        *,
        max_batch: int,
        linger_seconds: float,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """Run a lane of one's own over `inputs`; it makes its effects durable itself.

        The options are those of `Pump`.
        """
        pump = Pump(
            group=self._group,
            lane=lane,
            acknowledge=_acknowledge,
            logical=self._access.logical,
            metrics=self.context.metrics,
            max_batch=max_batch,
            linger_seconds=linger_seconds,
            tracing=self._tracing,
            max_bytes=max_bytes,
        )
        self._pumps.append((pump, inputs))
        topic = self.app.topic(
            *map(self._access.physical, inputs),
            key_type=bytes,
            value_type=bytes,
            key_serializer="raw",
            value_serializer="raw",
            partitions=None,
        )

        name = f"{self._group}.{len(self._pumps)}"
        self.app.agent(topic, name=name)(feeding(pump))

    def add_task(self, task: Callable[[], Any]) -> None:
        """Run a coroutine function beside the lanes, such as a ticker. Its failure is a bug."""
        self._tasks.append(task)

    def run(self) -> None:
        """Run until a signal. Does not return."""
        self._watch()
        for coroutine in [*(pump.run for pump, _ in self._pumps), *self._tasks]:
            self.app.task(_guarded(coroutine))
        # Faust runs tasks once its tables are recovered: from then on this process works.
        self.app.task(self._announce)
        for library in ("faust", "mode", "aiokafka"):
            logging.getLogger(library).setLevel(logging.WARNING)
        worker = faust.Worker(self.app, loglevel="WARN", override_logging=False, quiet=True)
        worker.execute_from_commandline()

    def _watch(self) -> None:
        """Begin to look at this process's progress, and answer whoever asks for it."""
        settings, metrics = self.context.settings, self.context.metrics
        watch = HealthWatch(
            group=self._group,
            bus=self.context.bus,
            inputs=[topic for _, inputs in self._pumps for topic in inputs],
            assigned=lambda: self._assignment,
            is_ready=self._is_ready.is_set,
            waits_for=self._waits_for,
            metrics=metrics,
            stalled_after_seconds=settings.stalled_after_seconds,
        )
        watch.start()
        self._health = watch
        for reason in Reason:  # from zero on, so that the first one shows as an increase
            metrics.counter("headrace_dead_letters", group=self._group, reason=reason.value)
        for topic in watch.inputs:
            metrics.counter("headrace_log_gap_records", group=self._group, topic=topic)
        if settings.metrics_port is None:
            return
        where = (settings.metrics_host, settings.metrics_port)
        try:
            open_door(*where, metrics.registry, watch.current)
        except OSError as error:  # whoever has the port may leave it: a supervisor tries again
            hint = "set HEADRACE_METRICS_PORT to a free port"
            _die(1, "metrics_port_refused", where=where, why=error.strerror, hint=hint)

    def _waits_for(self) -> str:
        if self.app.in_recovery:
            return "it reads its state from the changelog"
        return next((pump.waits_for for pump, _ in self._pumps if pump.waits_for), "")

    async def _announce(self) -> None:
        """Touch the file by which a supervisor sees that the processor is ready."""
        self._is_ready.set()
        collect_seldom(self.collect_after)
        if self._health is not None:  # whoever sees the file finds the health of a ready process
            await asyncio.to_thread(self._health.refresh, REFRESH_SECONDS)
        path = self.context.settings.data_dir / "run" / f"{self._group}.ready"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def table(self, name: str) -> FaustTable:
        """A table of the group, co-partitioned with its inputs; for one lane."""
        table = self.app.Table(
            name,
            key_type=bytes,
            value_type=bytes,
            partitions=self.context.settings.kafka.num_partitions,
        )
        # what the broker deletes from the changelog goes from memory too
        forgets = self._group in topics.FORGETTING_GROUPS
        kept = FaustTable(
            table,
            topics.changelog_topic(self._group, name),
            topics.STATE_HOURS if forgets else None,
            SystemClock(),
        )
        self.add_task(sweeper(kept, self._group, name, self.context.metrics))
        return kept

    async def _forget(self, _app: Any, revoked: Any, **_kwargs: Any) -> None:
        positions = self._positions(revoked)
        self._assignment -= positions
        self._rebalanced_at = time.monotonic()
        for pump, inputs in self._pumps:
            await pump.forget({position for position in positions if position[0] in inputs})

    async def _assign(self, _app: Any, assigned: Any, **_kwargs: Any) -> None:
        self._assignment = self._positions(assigned)

    async def _recovered(self, _app: Any, **_kwargs: Any) -> None:
        self.context.metrics.histogram("headrace_recovery_seconds", group=self._group).observe(
            time.monotonic() - self._rebalanced_at
        )

    def _positions(self, partitions: Any) -> frozenset[Position]:
        return frozenset((self._access.logical(tp.topic), tp.partition) for tp in partitions)


def feeding(pump: Pump) -> Callable[[Any], Awaitable[None]]:
    """The agent that gives a stream's records to a pump. Its failure ends the process: Faust would
    start it again, behind what it had taken."""

    async def feed(stream: Any) -> None:
        stream.enable_acks = False
        await _guarded(lambda: pump.feed(lots(stream)))()

    return feed


def _guarded(coroutine: Callable[[], Any]) -> Callable[[], Any]:
    """A task that ends the process at once when it fails: nothing more may be acknowledged."""

    async def guarded() -> None:
        try:
            await coroutine()
        except asyncio.CancelledError:
            raise
        except ConfigError as error:
            _die(EXIT_CONFIG, "stopped_by_configuration", why=str(error))
        except Exception:  # noqa: BLE001 - the supervised loop: a bug stops the process
            _die(1, "stopped_by_bug", exc_info=True)

    return guarded


def _die(code: int, event: str, **details: Any) -> None:
    log.error(event, **details)
    sys.stderr.flush()
    os._exit(code)


def collect_seldom(num_objects: int) -> None:
    """Look for cycles only among what is new, and after so many new objects.

    A batch makes hundreds of thousands of objects that are in no cycle. With Python's own
    thresholds, looking through them and through all modules took a fifth of the CPU time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(num_objects, 20, 50)


async def _acknowledge(event: Any) -> None:
    event.ack()


def _instance_id(group: str, worker_name: str | None) -> str | None:
    """Name of a static member of the group (KIP-345), None for one that comes and goes."""
    return None if worker_name is None else f"{group}.{worker_name}"


def _credentials(access: KafkaAccess) -> Any:
    """The same proofs of identity that librdkafka gives, for Faust's client."""
    context = access.ssl_context()
    if access.user is None:
        return None if context is None else faust.SSLCredentials(context)
    return faust.SASLCredentials(
        username=access.user,
        password=access.password,
        mechanism=access.mechanism,
        ssl_context=context,
    )


def _faust_app(group: str, settings: Settings, access: KafkaAccess, on_gap: OnGap) -> Any:
    """Faust knows topics by their names on the cluster; `on_gap` is told ours."""

    async def told(topic: str, partition: int, first: int, end: int) -> None:
        await on_gap(access.logical(topic), partition, first, end)

    servers = access.bootstrap_servers.split(",")
    app = faust.App(
        access.physical(group),
        broker=[f"kafka://{server}" for server in servers],
        broker_credentials=_credentials(access),
        datadir=str(Path(settings.data_dir) / "run" / group),
        store="memory://",
        web_enabled=False,
        topic_disable_leader=True,
        topic_allow_declare=False,
        topic_partitions=settings.kafka.num_partitions,
        consumer_auto_offset_reset="earliest",
        broker_commit_interval=0.5,
        broker_session_timeout=15.0,  # a killed worker without a name holds its partitions so long
        consumer_group_instance_id=_instance_id(group, settings.worker_name),
        broker_max_poll_interval=3600.0,
        stream_wait_empty=False,
        stream_buffer_maxsize=MAX_BUFFERED,
        table_standby_replicas=0,  # a store in memory would be read again anyway
        logging_config=None,
        Monitor=Monitor,
    )
    transactional = frozenset(access.physical(name) for name in topics.TRANSACTIONAL)
    app.transport = Transport(
        app.conf.broker_consumer, app, on_gap=told, transactional=transactional
    )
    return app


def run_processor(group: str, build: Callable[[Shell], None]) -> None:
    """Entry point of a processor: settings, logs, shell; exit 2 with a sentence if it cannot."""
    try:
        settings = load_settings()
        configure_logging(group, settings.log_level)
        shell = Shell(group, settings)
        build(shell)
    except ConfigError as error:
        sys.stderr.write(f"{group}: {error}\n")
        sys.exit(EXIT_CONFIG)
    except TransientError as error:
        # whoever supervises the process starts it again
        sys.stderr.write(f"{group}: {error}\n")
        sys.exit(1)
    shell.run()
