"""The bus of the running deployment, with sentences for a broker that does not answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from infra.local.launch import find_settings
from schemas.errors import TransientError
from schemas.settings import Settings

if TYPE_CHECKING:
    from schemas.bus import Admin
    from schemas.bus.kafka import KafkaBus

_DELIVERY_SECONDS = 30.0
#: Above the topics' own limit, so that the broker decides.
_MAX_RECORD_BYTES = 2_097_152


@contextmanager
def open_bus(data_dir: Path | None) -> Iterator[tuple[Settings, "KafkaBus", "Admin"]]:
    """Settings, bus and admin. TransientError when no broker answers."""
    from schemas.bus.kafka import KafkaBus

    settings = find_settings(data_dir)
    servers = settings.kafka.bootstrap_servers
    bus = KafkaBus.from_settings(
        settings.kafka,
        max_record_bytes=_MAX_RECORD_BYTES,
        delivery_timeout_seconds=_DELIVERY_SECONDS,
    )
    admin = bus.admin()
    try:
        admin.topics()
    except TransientError as error:
        raise TransientError(
            f"Kafka at {servers} does not answer. `headrace up` starts it, `headrace doctor` says "
            "what is missing; HEADRACE_KAFKA__BOOTSTRAP_SERVERS names another one."
        ) from error
    try:
        yield settings, bus, admin
    finally:
        admin.close()
