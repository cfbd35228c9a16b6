"""The Faust shell of assembly: four topics in, one table, and the ticker beside it."""

import asyncio
from collections.abc import Callable, Coroutine

import structlog

from schemas import topics
from schemas.atdp.internal import Tick
from schemas.bus import Producer, Record, deliver
from schemas.clock import Clock, ForwardClock, SystemClock
from schemas.codec import encode
from schemas.errors import TransientError
from schemas.telemetry import Metrics
from streams.assembly.processor import Assembly
from streams.runtime.shell import Shell

log = structlog.get_logger()

INPUTS = (topics.STEPS, topics.REWARDS, topics.ENDS, topics.TICKS)


def build(shell: Shell) -> None:
    """Put the processor and the ticker into the shell. ConfigError for an unknown policy."""
    context = shell.context
    settings = context.settings.assembly
    processor = Assembly(settings, context.mark, context.metrics)
    shell.add_processor(INPUTS, processor, table=topics.TRAJECTORIES_TABLE)
    shell.add_task(
        ticker(
            context.bus.producer(f"{topics.ASSEMBLY}.ticker"),
            num_partitions=context.settings.kafka.num_partitions,
            tick_seconds=settings.tick_seconds,
            # set back, it would stop the clock of every trajectory until it has caught up
            clock=ForwardClock(SystemClock()),
            metrics=context.metrics,
        )
    )


def ticker(
    producer: Producer,
    *,
    num_partitions: int,
    tick_seconds: float,
    clock: Clock,
    metrics: Metrics,
) -> Callable[[], Coroutine[None, None, None]]:
    """A task that publishes one tick per partition every `tick_seconds`, for ever.

    Every process ticks every partition: one is enough, more are harmless. A tick that cannot be
    delivered is counted and not repeated, since the next one says more.
    """

    async def run() -> None:
        while True:
            try:
                await deliver(producer, ticks(num_partitions, clock))
            except TransientError as error:
                metrics.counter("headrace_retries", group=topics.ASSEMBLY).inc()
                log.warning("tick_not_delivered", why=str(error))
            await asyncio.sleep(tick_seconds)

    return run


def ticks(num_partitions: int, clock: Clock) -> list[Record]:
    """One tick for each partition, at the clock's time."""
    now = clock.now()
    return [
        Record(
            topics.TICKS,
            str(partition).encode(),
            encode(Tick(partition=partition, at=now)),
            partition=partition,
        )
        for partition in range(num_partitions)
    ]
