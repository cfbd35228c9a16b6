"""A bus on which one bit of each chunk of weights flips on its way, as on a bad disk or network.

The digests in the manifest are those of what was meant, so every reader can see it.
"""

from dataclasses import replace

from schemas.bus.api import Admin, Bus, Consumer, OnDelivery, Producer, Record, Transactions


class FlippingBus:
    """The bus behind it in all else."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def producer(self, client_id: str, *, compress: bool = True) -> Producer:
        """Writes other bytes than it is given."""
        return _FlippingProducer(self._bus.producer(client_id, compress=compress))

    def transactions(self, transactional_id: str) -> Transactions:
        """Writes what it is given."""
        return self._bus.transactions(transactional_id)

    def consumer(self, *, reads_ahead: bool = True) -> Consumer:
        """Reads what is there."""
        return self._bus.consumer(reads_ahead=reads_ahead)

    def admin(self) -> Admin:
        """Sees what is there."""
        return self._bus.admin()


class _FlippingProducer:
    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def send(self, record: Record, on_delivery: OnDelivery) -> None:
        value = bytearray(record.value or b"")
        value[len(value) // 2] ^= 1
        self._producer.send(replace(record, value=bytes(value)), on_delivery)

    def flush(self, timeout_seconds: float) -> int:
        return self._producer.flush(timeout_seconds)

    def trouble(self) -> str:
        return self._producer.trouble()

    def close(self) -> None:
        self._producer.close()
