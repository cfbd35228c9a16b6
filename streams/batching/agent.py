"""The Faust shell of batching: samples in, one lane, one table."""

from schemas import topics
from schemas.clock import SystemClock
from schemas.settings import BatchingSettings
from schemas.store import BlobStore
from streams.batching.admission import Rules
from streams.batching.desk import Desk
from streams.batching.lane import BatchingLane, Readers
from streams.batching.packing import Limits
from streams.batching.reading import PolicyReader, SentReader, reward_reader, step_reader
from streams.runtime.shell import Shell

#: Records of one batch; their steps are read together.
MAX_BATCH = 200
LINGER_SECONDS = 0.05
#: A memory is kept this much longer than assembly can still make samples of its trajectory.
_MARGIN_HOURS = 24.0


def build(shell: Shell) -> None:
    """Put the lane into the shell."""
    context = shell.context
    settings = context.settings
    blobs = BlobStore(settings.blobs)
    bus = context.bus
    lane = BatchingLane(
        desk=make_desk(settings.batching, context.mark.epoch),
        table=shell.table(topics.LEARNED_TABLE),
        producer=context.producer,
        blobs=blobs,
        readers=Readers(
            step_reader(bus), reward_reader(bus), PolicyReader(bus), SentReader(bus, blobs)
        ),
        crashes=context.crashes,
        clock=SystemClock(),
        metrics=context.metrics,
        num_partitions=settings.kafka.num_partitions,
        retention_hours=settings.assembly.retention_hours + _MARGIN_HOURS,
        mark=context.mark,
    )
    shell.add_lane([topics.SAMPLES], lane, max_batch=MAX_BATCH, linger_seconds=LINGER_SECONDS)


def make_desk(settings: BatchingSettings, epoch: int) -> Desk:
    """The desk that these settings ask for."""
    rules = Rules(
        success_reward=settings.success_reward,
        max_staleness=settings.max_staleness,
        max_sample_tokens=settings.max_sample_tokens,
        retrain=settings.retrain,
        demonstrations=settings.demonstrations,
        preferences=settings.preferences,
    )
    limits = Limits(
        num_sequences=settings.batch_sequences,
        num_tokens=settings.batch_tokens,
        max_wait_seconds=settings.max_wait_seconds,
        tenant_share=settings.tenant_share,
        max_waiting=settings.max_waiting,
    )
    return Desk(rules, limits, max_tokens_ahead=settings.max_tokens_ahead, epoch=epoch)
