"""How much is taken at a time out of what was fetched.

A fetch lies compressed in memory, up to a megabyte of each partition. Of small records that may be
100,000, and of large ones that say the same over and over 200 MB. aiokafka makes objects of all of
them at once, and Faust has no room for so many. Here a bounded part is taken of each partition at
a time, so that what waits stays compressed.
"""

from typing import Any

from aiokafka.consumer import fetcher

from streams.runtime.sizes import num_bytes_of

#: Of one partition. The record that crosses it still belongs to it.
MAX_TAKEN_BYTES = 4 * 1024**2
MAX_TAKEN_RECORDS = 4_000


class PartlyTaken(fetcher.FetchResult):  # type: ignore[misc]  # aiokafka has no types
    """What was fetched of one partition."""

    _partition_records: Any

    def getall(self, max_records: int | None = None) -> list[Any]:
        """The next of the records; the rest comes with the next calls."""
        if not self.check_assignment(self._topic_partition) or not self.has_more():
            return []
        places = min(max_records or MAX_TAKEN_RECORDS, MAX_TAKEN_RECORDS)
        num_bytes = 0
        taken: list[Any] = []
        for record in self._partition_records:
            taken.append(record)
            num_bytes += num_bytes_of(record)
            if len(taken) >= places or num_bytes >= MAX_TAKEN_BYTES:
                self._update_position()
                return taken
        self._update_position()
        self._partition_records = None  # as aiokafka says that nothing is left
        return taken


def install() -> None:
    """Let aiokafka's fetcher keep its results so."""
    fetcher.FetchResult = PartlyTaken
