"""TCP ports for what tests start.

Two processes that run tests at the same time never get the same number, and the kernel gives none
of these to anybody who asks for any port: a server that is started again, or a port where nobody
may listen, is never somebody else's meanwhile.
"""

import itertools
import os
import random
from collections.abc import Iterator
from functools import cache

from infra.local.ports import is_free
from infra.local.stack import Ports

#: Below what Linux and macOS give out by themselves, above the ports of the stack and of the soak.
_PORTS = range(28_200, 32_700)
#: Beside its broker's and its gateway's port a stack takes others: those are given out much later.
_ROOM = 10


def block(number: int, count: int) -> range:
    """The ports of one of `count` processes, counted from 0."""
    size = len(_PORTS) // count
    return _PORTS[number * size : (number + 1) * size]


@cache
def _numbers() -> Iterator[int]:
    """The ports of this process, again and again, from a random one on: two runs may meet."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    mine = block(int(worker), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    apart = [port for first in range(_ROOM) for port in mine[first::_ROOM]]
    start = random.SystemRandom().randrange(len(apart))
    return itertools.cycle([*apart[start:], *apart[:start]])


def free_ports(number: int) -> list[int]:
    """That many different ports of 127.0.0.1 nobody listens on."""
    tried = itertools.islice(_numbers(), len(_PORTS))
    found = list(itertools.islice(filter(is_free, tried), number))
    assert len(found) == number, f"no free port between {_PORTS[0]} and {_PORTS[-1]}"
    return found


def stack_ports() -> Ports:
    """Those of a whole stack."""
    kafka, clickhouse, gateway, worker = free_ports(4)
    return Ports(kafka, kafka + 1, clickhouse, gateway, worker)
