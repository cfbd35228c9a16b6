"""Waiting for a condition, within a bound."""

import asyncio
import time
from collections.abc import Callable

_POLL_SECONDS = 0.1


async def until(condition: Callable[[], bool], seconds: float) -> bool:
    """True once the condition holds, False when it does not within that time."""
    deadline = time.monotonic() + seconds
    while True:
        if condition():
            return True
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_SECONDS)
