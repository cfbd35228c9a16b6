"""Tasks of the demo: a customer writes, the agent answers with one call of a tool.

    where is my old red lamp  ─▶  track: red, lamp

The answer names the tool that the words ask for, and the goods. Some goods are held out: neither
what the model is made from, nor the traffic, ever names them together.
"""

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass

#: Tool → what customers write when they want it; {} is the thing.
TOOLS = {
    "refund": ("i want my money back for {}", "please refund {}", "pay me back for {}",
               "i should not have to pay for {}"),
    "cancel": ("i no longer want {}", "stop the order of {}", "do not send {} after all",
               "please forget about {}"),
    "track": ("where is {}", "when will i get {}", "i still wait for {}",
              "has anyone seen {} on its way"),
    "repair": ("{} is broken", "{} does not work", "please fix {}", "there is a fault in {}"),
}  # fmt: skip
KINDS = ("red", "blue", "green", "white", "black", "large", "small", "heavy", "light", "wooden",
         "round", "square", "cheap", "fine", "plain", "soft")  # fmt: skip
GOODS = ("lamp", "chair", "table", "shelf", "clock", "radio", "kettle", "pan", "bowl", "mirror",
         "carpet", "pillow", "blanket", "basket", "ladder", "hammer", "bucket", "candle", "vase",
         "drawer", "stool", "bench", "heater", "fan")  # fmt: skip
#: One pair of kind and goods in so many is held out.
_HELD_OUT_OF = 6


@dataclass(frozen=True, slots=True)
class Task:
    """What is written, and the tool and the goods that it is about."""

    request: str
    tool: str
    kind: str
    goods: str

    @property
    def answer(self) -> str:
        """The call that is right, as the model writes it."""
        return f" {self.tool}: {self.kind}, {self.goods}"

    @property
    def key(self) -> str:
        """What is attempted: baselines are tracked for it."""
        return f"desk.{self.tool}"


def is_held_out(kind: str, goods: str) -> bool:
    """Whether this pair is kept for the examination."""
    return hashlib.sha256(f"{kind} {goods}".encode()).digest()[0] % _HELD_OUT_OF == 0


def tasks(seed: int, *, held_out: bool = False) -> Iterator[Task]:
    """Tasks without an end, the same for the same seed."""
    chosen = random.Random(f"{seed} {held_out}")
    while True:
        tool, kind, goods = chosen.choice([*TOOLS]), chosen.choice(KINDS), chosen.choice(GOODS)
        if is_held_out(kind, goods) is not held_out:
            continue
        sentence = chosen.choice(TOOLS[tool]).format(f"the {kind} {goods}")
        yield Task(sentence, tool, kind, goods)


def lessons(seed: int, right_share: float = 0.5) -> Iterator[tuple[str, str]]:
    """Request and answer, for pre-training: the goods always right, the tool in this share."""
    chosen = random.Random(f"lessons {seed}")
    for task in tasks(seed):
        tool = task.tool
        if chosen.random() >= right_share:
            tool = chosen.choice([name for name in TOOLS if name != task.tool])
        yield task.request, f" {tool}: {task.kind}, {task.goods}"
