"""What topics are made with: nothing that is acknowledged may hang on one broker or one clock."""

import pytest

from schemas import topics
from schemas.bus.kafka_admin import topic_config


@pytest.mark.parametrize("topic", list(topics.all_topics()), ids=lambda topic: topic.name)
def test_on_three_brokers_two_have_what_counts_as_taken(topic: topics.Topic) -> None:
    assert topic_config(topic, 3)["min.insync.replicas"] == "2"
    # one of two copies may be lost without ending all writes; Kafka's default of one stays
    assert "min.insync.replicas" not in topic_config(topic, 2)
    assert "min.insync.replicas" not in topic_config(topic, 1)


@pytest.mark.parametrize("topic", list(topics.all_topics()), ids=lambda topic: topic.name)
def test_what_expires_does_so_by_the_clock_of_the_broker(topic: topics.Topic) -> None:
    expires = topic.cleanup != "compact"
    assert ("retention.ms" in topic_config(topic, 1)) is expires
    assert (topic_config(topic, 1).get("message.timestamp.type") == "LogAppendTime") is expires
