"""Which worker gets a call: a table that every gateway derives from topics.

    weights.promotions.v1 ─┐
    weights.acks.v1 ───────┼─▶ table ─▶ routes (pure) ─▶ workers for a call, the best one first
    inference.workers.v1 ──┘

There is no hop more and no state to lose: a new gateway reads the topics and knows what the others
know. While Kafka is away a gateway goes on with what it knew.
"""
