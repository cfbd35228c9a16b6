"""The only way onto a topic.

`api` says what a bus can do, `kafka` does it with librdkafka, `memory` does it in process for
unit tests. One contract suite runs over both.
"""

from schemas.bus.api import (
    Admin,
    Bus,
    Consumer,
    Delivery,
    FencedError,
    Position,
    Producer,
    Received,
    Record,
    Transactions,
    deliver,
    deliver_now,
    partition_for,
    read_to_end,
    transact,
)

__all__ = [
    "Admin",
    "Bus",
    "Consumer",
    "Delivery",
    "FencedError",
    "Position",
    "Producer",
    "Received",
    "Record",
    "Transactions",
    "deliver",
    "deliver_now",
    "partition_for",
    "read_to_end",
    "transact",
]
