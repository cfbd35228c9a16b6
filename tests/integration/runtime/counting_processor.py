"""A tiny processor in the real shell: per key it remembers the numbers seen and says them all.

`python -m tests.integration.runtime.counting_processor`; the environment names its group, topic
and, for a crash on purpose, the send before which the process kills itself.
"""

import dataclasses
import os
import signal

from schemas.bus import Producer, Received, Record
from schemas.bus.api import OnDelivery
from schemas.errors import PermanentError, Reason
from streams.runtime import Effects, Hold, State
from streams.runtime.shell import Shell, run_processor

GROUP = "HEADRACE_TEST_GROUP"
TOPIC = "HEADRACE_TEST_TOPIC"
KILL_BEFORE_SEND = "HEADRACE_TEST_KILL_BEFORE_SEND"
TABLE = "numbers"
#: The shortest that brokers allow, so that a killed worker is missed soon.
SESSION_SECONDS = 6.0
#: Longer than any test: what is held is released by its number or never.
HOLD_SECONDS = 3600.0


def output_topic(topic: str) -> str:
    return f"{topic}.out"


class Counting:
    """Key and number in, all numbers of the key so far out. Idempotent, as every processor.

    `7<9` is the number 7, held until its key has seen 9.
    """

    def __init__(self, output: str) -> None:
        self._output = output

    def handle(self, record: Received, state: State, *, overdue: bool) -> Effects | Hold:
        text, _, awaited = (record.value or b"").decode("ascii", "replace").partition("<")
        if text == "bug":
            raise ZeroDivisionError
        if not text.isdigit():
            raise PermanentError(Reason.UNDECODABLE)
        key = (record.key or b"").decode()
        seen = {*(state.get(key) or b"").decode().split(",")} - {""}
        if awaited and awaited not in seen and not overdue:
            return Hold(HOLD_SECONDS)
        seen.add(text)
        value = ",".join(sorted(seen, key=int)).encode()
        return Effects((Record(self._output, record.key, value),), ((key, value),))


class Killing:
    """A producer that ends the process before one of its sends, as a power cut would."""

    def __init__(self, inner: Producer, before: int) -> None:
        self._inner = inner
        self._left = before

    def send(self, record: Record, on_delivery: OnDelivery) -> None:
        self._left -= 1
        if self._left == 0:
            self._inner.flush(5)
            os.kill(os.getpid(), signal.SIGKILL)
        self._inner.send(record, on_delivery)

    def flush(self, timeout_seconds: float) -> int:
        return self._inner.flush(timeout_seconds)

    def trouble(self) -> str:
        return self._inner.trouble()

    def close(self) -> None:
        self._inner.close()


def build(shell: Shell) -> None:
    topic = os.environ[TOPIC]
    before = int(os.environ.get(KILL_BEFORE_SEND, "0"))
    if before:
        producer = Killing(shell.context.producer, before)
        shell.context = dataclasses.replace(shell.context, producer=producer)
    shell.app.conf.broker_session_timeout = SESSION_SECONDS
    shell.app.conf.broker_heartbeat_interval = 1.0
    shell.add_processor([topic], Counting(output_topic(topic)), table=TABLE, max_batch=5)


if __name__ == "__main__":
    run_processor(os.environ[GROUP], build)
