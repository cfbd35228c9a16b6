"""The redaction processor in its shell: two lanes in one consumer group."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path

from schemas import topics
from schemas.errors import ConfigError
from schemas.secrets import load_root_secret
from schemas.store import BlobStore
from schemas.telemetry import Metrics
from streams.redaction.aliases import AliasProcessor
from streams.redaction.cache import CacheCounters
from streams.redaction.processor import RedactionProcessor
from streams.redaction.retokenise import Tokenizer
from streams.redaction.tenants import Tenants
from streams.runtime.shell import Shell

_REPORT_SECONDS = 5.0


def build(shell: Shell) -> None:
    """Add the lanes: raw events with the lineage table, aliases with the alias table."""
    context = shell.context
    settings = context.settings
    root = load_root_secret(settings.root_secret_file)
    tenants = Tenants(root, settings.redaction)
    shell.add_processor(
        [topics.RAW_EVENTS],
        RedactionProcessor(
            tenants,
            BlobStore(settings.original_blobs),
            context.mark,
            settings.redaction.hold_seconds,
            settings.training_eligible_tenants,
            tokenizers_of(settings.redaction.tokenizers),
        ),
        table=topics.LINEAGES_TABLE,
        max_held=settings.redaction.max_held_events,
        decides_once=True,
    )
    shell.add_processor(
        [topics.RAW_ALIASES, topics.RAW_UNRESOLVED],
        AliasProcessor(tenants, context.mark),
        table=topics.ALIASES_TABLE,
    )
    shell.add_task(cache_reporter(tenants.cache_counters, context.metrics))


def tokenizers_of(files: Mapping[str, Path]) -> dict[str, Tokenizer]:
    """The tokenizer of each policy, read at start. ConfigError for one that cannot be used."""
    if not files:
        return {}
    # Imported where needed, so that redaction runs without the package.
    try:
        from streams.redaction.huggingface import HuggingFaceTokenizer
    except ImportError:
        raise ConfigError(
            "redaction.tokenizers needs the package tokenizers: pip install 'headrace[redaction]'."
        ) from None
    return {policy: HuggingFaceTokenizer.of_file(path) for policy, path in files.items()}


def cache_reporter(
    counters: CacheCounters, metrics: Metrics
) -> Callable[[], Coroutine[None, None, None]]:
    """A task that counts, every few seconds and for ever, what the cache has counted since."""

    async def run() -> None:
        told = CacheCounters()
        while True:
            now = replace(counters)
            for result, number in (
                ("hit", now.num_hits - told.num_hits),
                ("miss", now.num_misses - told.num_misses),
                ("evicted", now.num_evicted - told.num_evicted),
            ):
                metrics.counter("headrace_redaction_cache", result=result).inc(number)
            told = now
            await asyncio.sleep(_REPORT_SECONDS)

    return run
