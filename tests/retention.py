"""What retention does, at once and to the offset: the first records of a partition are deleted."""

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

REQUEST_SECONDS = 20.0


def delete_before(bootstrap_servers: str, topic: str, partition: int, offset: int) -> None:
    """Delete the records before `offset`; returns once the broker did."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    wanted = [TopicPartition(topic, partition, offset)]
    for future in admin.delete_records(wanted, request_timeout=REQUEST_SECONDS).values():
        assert future.result(REQUEST_SECONDS).low_watermark == offset
