"""The examination: held-out tasks, marked by a checker that shares no code with who rewards.

It reads the answer as a program would that has to act on it, and knows by a list of its own which
words ask for which tool.
"""

import re
from dataclasses import dataclass

_CALL = re.compile(r"\s*(?P<tool>[a-z]+)\s*:\s*(?P<first>[a-z]+)\s*,\s*(?P<second>[a-z]+)\s*\Z")
_ASKED = (
    ("refund", re.compile(r"\b(money back|refund|pay)\b")),
    ("cancel", re.compile(r"\b(no longer want|stop|do not send|forget)\b")),
    ("track", re.compile(r"\b(where is|when will|still wait|anyone seen)\b")),
    ("repair", re.compile(r"\b(broken|does not work|fix|fault)\b")),
)
_THING = re.compile(r"\bthe (?!order\b)(?P<first>[a-z]+) (?P<second>[a-z]+)\b")


def is_right(request: str, answer: str) -> bool:
    """Whether acting on the answer would serve the customer."""
    call, thing = _CALL.match(answer), _THING.search(request)
    if call is None or thing is None:
        return False
    wanted = next((tool for tool, words in _ASKED if words.search(request)), None)
    same = (call["first"], call["second"]) == (thing["first"], thing["second"])
    return same and call["tool"] == wanted


@dataclass(frozen=True, slots=True)
class Marks:
    """How an examination went: of each task, in order, whether its answer was right. `diversity`
    is the share of answers that differ."""

    right: tuple[bool, ...]
    num_distinct: int

    @property
    def num_tasks(self) -> int:
        """How many were asked."""
        return len(self.right)

    @property
    def score(self) -> float:
        """Share of right answers."""
        return sum(self.right) / len(self.right) if self.right else 0.0

    @property
    def diversity(self) -> float:
        """Distinct answers, as a share of all."""
        return self.num_distinct / len(self.right) if self.right else 0.0


def mark(pairs: list[tuple[str, str]]) -> Marks:
    """Marks for requests and answers."""
    right = tuple(is_right(request, answer) for request, answer in pairs)
    return Marks(right, len({answer for _, answer in pairs}))
