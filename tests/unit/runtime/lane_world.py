"""A lane over a memory bus, with a processor that does as its records say."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from schemas import topics
from schemas.bus import Delivery, Producer, Received, Record
from schemas.bus.api import OnDelivery
from schemas.bus.memory import MemoryBus
from schemas.clock import ManualClock
from schemas.errors import PermanentError, QuarantineError, Reason, TransientError
from streams.runtime import Effects, Hold, State
from streams.runtime.crashes import CrashLedger
from tests.unit.runtime_harness import START, DictTable, lane_over, memory_bus, records_of

OUT = topics.STEPS
CHANGELOG = DictTable.changelog


def record(offset: int, value: str = "ok", key: bytes = b"k", partition: int = 0) -> Received:
    return Received(topics.RAW_EVENTS, partition, offset, key, value.encode())


class Appending:
    """Keeps the offsets seen under a key, in order, each once; repeats its output when asked."""

    def handle(self, record: Received, state: State, *, overdue: bool) -> Effects | Hold:
        match record.value:
            case b"broken":
                raise PermanentError(Reason.WRONG_TYPE, "name")
            case b"unsure":
                raise QuarantineError(Reason.DETECTOR_TIMEOUT)
            case b"later":
                raise TransientError("the store is away")
            case b"bug":
                raise ZeroDivisionError("alice@example.com")
            case b"waits" if not overdue and state.get("open") is None:
                return Hold(5.0)
            case b"delete":
                return Effects(state=(("k", None),))
            case b"opens":
                return Effects(state=(("open", b"yes"),))
        key = (record.key or b"").decode()
        seen = [*filter(None, (state.get(key) or b"").decode().split(","))]
        offset = str(record.offset)
        changed = seen if offset in seen else [*seen, offset]
        output = Record(OUT, record.key, f"{key}:{offset}".encode())
        return Effects((output,), ((key, ",".join(changed).encode()),))


class Failing:
    """A producer that fails the sends whose numbers are given, by raising or by its report."""

    def __init__(self, inner: Producer, fails: set[int], *, by_report: bool) -> None:
        self._inner = inner
        self._fails = fails
        self._by_report = by_report
        self.num_sent = 0

    def send(self, record: Record, on_delivery: OnDelivery) -> None:
        self.num_sent += 1
        if self.num_sent not in self._fails:
            self._inner.send(record, on_delivery)
        elif self._by_report:
            on_delivery(Delivery(record.topic, error=TransientError("lost")))
        else:
            raise TransientError("full")

    def flush(self, timeout_seconds: float) -> int:
        return self._inner.flush(timeout_seconds)

    def trouble(self) -> str:
        return self._inner.trouble()

    def close(self) -> None:
        self._inner.close()


class World:
    """A lane over a memory bus, and everything it can touch."""

    def __init__(self, folder: Path, fails: Sequence[int] = (), *, by_report: bool = True) -> None:
        self.bus: MemoryBus = memory_bus(2)
        self.table = DictTable()
        self.clock = ManualClock(START)
        self.producer = Failing(self.bus.producer("t"), set(fails), by_report=by_report)
        self.crashes = CrashLedger(folder / "crashes.json")
        self._folder = folder

    def lane(self, **options: Any) -> Any:
        arguments = {"table": self.table, "producer": self.producer, "clock": self.clock,
                     "crashes": self.crashes}  # fmt: skip
        return lane_over(self.bus, Appending(), self._folder, **{**arguments, **options})

    def values(self, topic: str) -> list[bytes | None]:
        return [found.value for found in records_of(self.bus, topic)]

    def ids(self, topic: str) -> set[bytes | None]:
        """Keys: a dead letter's is derived from where its record lies."""
        return {found.key for found in records_of(self.bus, topic)}
