"""What a gateway has seen and Kafka does not have yet, on the local disk.

    gateway ──append──▶ segment files ──read──▶ publisher ──acks=all──▶ raw.events.v1
                             ▲                      │
                             └──── delete a file once all it holds is delivered

A frame is in the file (`write(2)`) before the bytes it describes are released, so killing the
process loses nothing. Loss of power does, unless `gateway.spool_fsync` is set. Each process has
a folder of its own under an `flock`; whoever finds a folder whose lock is free publishes it.
"""

from inference.spool.publisher import Publisher
from inference.spool.writer import Spool, SpoolFullError, SpoolWriteError

__all__ = ["Publisher", "Spool", "SpoolFullError", "SpoolWriteError"]
