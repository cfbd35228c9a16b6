"""The redaction processor in its shell: two lanes in one consumer group."""

from schemas import topics
from schemas.secrets import load_root_secret
from schemas.store import BlobStore
from streams.redaction.aliases import AliasProcessor
from streams.redaction.processor import RedactionProcessor
from streams.redaction.tenants import Tenants
from streams.runtime.shell import Shell


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
            BlobStore(settings.blobs),
            context.mark,
            settings.redaction.hold_seconds,
            settings.training_eligible_tenants,
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
