"""How the demo tells what it is doing, whoever shows it."""

from typing import Protocol


class Progress(Protocol):
    """Shows how far a phase is. A phase without a total has no known end."""

    def begin(self, what: str, total: int | None) -> None: ...

    def advance(self, num: int = 1) -> None: ...

    def remaining(self, num: int) -> None: ...

    def end(self) -> None: ...


class Silent:
    """Shows nothing: whoever plays speaks for itself."""

    def begin(self, what: str, total: int | None) -> None:
        """A phase begins."""

    def advance(self, num: int = 1) -> None:
        """Some of it is done."""

    def remaining(self, num: int) -> None:
        """So much is left."""

    def end(self) -> None:
        """A phase ends."""
