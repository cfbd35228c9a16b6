"""How the demo tells what it is doing, whoever shows it."""

from typing import Protocol


class Progress(Protocol):
    """Shows how far a phase is. A phase without a total has no known end."""

    def begin(self, what: str, total: int | None) -> None: ...

    def advance(self, num: int = 1) -> None: ...

    def remaining(self, num: int) -> None: ...

    def end(self) -> None: ...
