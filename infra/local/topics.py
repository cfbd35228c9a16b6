"""python -m infra.local.topics: create every topic of the registry that does not exist yet."""

import sys

import structlog

from schemas.bus.kafka import KafkaBus
from schemas.errors import ConfigError, HeadraceError
from schemas.settings import Settings, load_settings
from schemas.telemetry import configure_logging
from schemas.topics import all_topics

log = structlog.get_logger("topics")


def create_topics(settings: Settings) -> list[str]:
    """Create what is missing; returns the names. Existing topics are left as they are."""
    admin = KafkaBus.from_settings(settings.kafka).admin()
    created: list[str] = admin.create_topics(
        list(all_topics()), settings.kafka.num_partitions, settings.kafka.replication_factor
    )
    return created


def main() -> int:
    """0 when all topics exist, 2 for a setting to correct, 1 for a broker to wait for."""
    configure_logging("topics")
    try:
        log.info("topics created", names=create_topics(load_settings()))
    except ConfigError as error:
        print(error, file=sys.stderr)  # noqa: T201  # the process is a program of its own
        return 2
    except HeadraceError as error:
        print(error, file=sys.stderr)  # noqa: T201  # the process is a program of its own
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
