"""How often a worker tries to come to a version. All counts belong to one assignment. Pure."""

from dataclasses import dataclass

from schemas.atdp.weights import VersionRef

_MAX_BACKOFF_SECONDS = 30.0
#: Waits for an engine that is busy, or for room on the disk: some three minutes of pauses.
MAX_WAITS = 10
#: Engines that may be lost over one version before it is given up, and then over going back.
MAX_LOSSES = 2


@dataclass(slots=True)
class Patience:
    """Waits and lost engines over what a ring was last assigned."""

    _about: tuple[VersionRef, int] | None = None
    num_waits: int = 0
    num_losses: int = 0
    _retry_at: float = 0.0

    def turn_to(self, target: VersionRef, sequence: int) -> None:
        """Another assignment is tried at once, and anew."""
        if self._about != (target, sequence):
            self._about = target, sequence
            self.has_succeeded()

    def has_succeeded(self) -> None:
        """Forget what went wrong."""
        self.num_waits, self.num_losses, self._retry_at = 0, 0, 0.0

    def wait(self, now: float) -> float:
        """Try again later; in how many seconds."""
        seconds = min(float(2 ** min(self.num_waits, 10)), _MAX_BACKOFF_SECONDS)
        self.num_waits += 1
        self._retry_at = now + seconds
        return seconds

    def is_waiting(self, now: float) -> bool:
        """Whether it is too early to try again."""
        return now < self._retry_at

    @property
    def has_waited_enough(self) -> bool:
        """Whether what is not there by now will not come by waiting."""
        return self.num_waits >= MAX_WAITS

    @property
    def gives_the_version_up(self) -> bool:
        """Whether it has cost so many engines that no further one is risked."""
        return self.num_losses >= MAX_LOSSES

    @property
    def gives_all_up(self) -> bool:
        """Whether going back to what was served before has cost as many again."""
        return self.num_losses >= 2 * MAX_LOSSES
