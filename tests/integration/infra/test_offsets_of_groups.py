"""Whoever asks for a group's offsets outlives whatever the broker is doing."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from schemas import topics
from schemas.bus.kafka import KafkaBus
from tests import services
from tests.ports import free_ports

pytestmark = pytest.mark.integration

#: Asks again and again, in a process of its own: the fault that this is about ended the process.
ASKING = """
import sys
from contextlib import suppress
from schemas.bus.kafka import KafkaBus
from schemas.errors import HeadraceError
from schemas import topics

bus = KafkaBus(sys.argv[1], request_seconds=2.0)
for line in sys.stdin:
    admin = bus.admin()
    try:
        if line == "prepare\\n":
            admin.create_topics([topics.topic(topics.RAW_EVENTS)], 2, 1)
        elif line == "commit\\n":
            with suppress(HeadraceError):  # asked too early, it asks for the offsets all the same
                admin.commit("a.group", {(topics.RAW_EVENTS, 1): 0})
        print(len(admin.committed("a.group", [topics.RAW_EVENTS])), flush=True)
    except HeadraceError:
        print("later", flush=True)
"""


class Asker:
    """A process that asks when told to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, how: str) -> str:
        """What it says; nothing once it is dead."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{how}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return ""
        return self._process.stdout.readline().strip()

    def ask_until(self, how: str, wanted: str) -> None:
        """Ask until it says so; fails when it died or the time is over."""
        over = threading.Event()
        timer = threading.Timer(120.0, over.set)
        timer.start()
        said = ""
        while said != wanted:
            said = self.ask(how)
            assert said, f"the process died with {self._process.wait()}"
            assert not over.is_set(), said
        timer.cancel()


@contextmanager
def asking(bootstrap_servers: str) -> Iterator[Asker]:
    with subprocess.Popen(
        [sys.executable, "-c", ASKING, bootstrap_servers],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield Asker(process)
        finally:
            process.kill()


def test_asking_for_offsets_outlives_a_broker_that_is_new_or_starts_again(tmp_path: Path) -> None:
    port, controller_port = free_ports(2)
    with asking(f"127.0.0.1:{port}") as asker:
        assert asker.ask("ask") == "later"
        with services.running_kafka(tmp_path, (port, controller_port)):
            asker.ask_until("prepare", "0")
            asker.ask_until("commit", "1")
        assert asker.ask("ask") == "later"
        with services.running_kafka(tmp_path, (port, controller_port)):
            asker.ask_until("ask", "1")


def test_the_first_one_to_ask_a_new_broker_is_answered(tmp_path: Path) -> None:
    """Its question is what makes the broker elect coordinators."""
    port, controller_port = free_ports(2)
    with services.running_kafka(tmp_path, (port, controller_port)):
        admin = KafkaBus(f"127.0.0.1:{port}").admin()
        admin.create_topics([topics.topic(topics.RAW_EVENTS)], 2, 1)
        for group in topics.GROUPS:
            assert admin.committed(group, [topics.RAW_EVENTS]) == {}
            assert admin.num_members(group) == 0
