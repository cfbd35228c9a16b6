"""Making the spool of this process where the settings say."""

from pathlib import Path

from inference.spool.disk import Disk
from inference.spool.writer import Spool
from schemas.errors import ConfigError
from schemas.settings import Settings

_MIN_BYTES = 1024**2


def open_spool(settings: Settings, root: Path) -> Spool:
    """A spool in a folder of its own, with its share of the room. ConfigError without one."""
    gateway = settings.gateway
    max_bytes = max(_MIN_BYTES, gateway.spool_max_bytes // gateway.workers)
    try:
        return Spool(root, max_bytes=max_bytes, disk=Disk(fsync=gateway.spool_fsync))
    except OSError as error:
        raise ConfigError(
            f"The spool cannot be made in {root} ({error.strerror}). Set HEADRACE_DATA_DIR to a "
            "folder that this user may write, on a disk with room."
        ) from error
