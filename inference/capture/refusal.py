"""What a client is told when its call or event cannot be recorded."""

from inference.dialects.refusal import RefusedError
from inference.spool import SpoolFullError, SpoolWriteError


def spool_refusal(error: SpoolFullError | SpoolWriteError) -> RefusedError:
    """What a client is told while nothing more can be recorded."""
    return RefusedError(
        503, "spool_full" if isinstance(error, SpoolFullError) else "spool_write_failed",
        f"{error} Try again soon; `headrace status` shows what is down.", retry_after_seconds=2,
    )  # fmt: skip
