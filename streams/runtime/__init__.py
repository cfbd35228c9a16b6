"""The one shell in which every processor runs.

    Kafka ──▶ Faust stream ──▶ Pump (inbox, batches) ──▶ Lane (handle, deliver, state) ──▶ ack

A processor is a pure `handle(record, state)`; everything that can be lost is moved here, in one
place and in one order:

    1. outputs are produced and their delivery reports awaited,
    2. state changes go to the changelog and their reports are awaited,
    3. state changes are applied in memory,
    4. the records are acknowledged; Faust commits acknowledged prefixes.

A process that dies between any two of these handles the same records again. Handling is
idempotent: a known event makes the same ids again.
"""

from streams.runtime.lane import Effects, Hold, Processor, RecordLane, State
from streams.runtime.pump import Lane, Pump
from streams.runtime.replays import ReplayMark, read_replay_mark

__all__ = [
    "Effects",
    "Hold",
    "Lane",
    "Processor",
    "Pump",
    "RecordLane",
    "ReplayMark",
    "State",
    "read_replay_mark",
]
