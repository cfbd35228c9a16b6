"""Between the agent and its model: relay, capture, routing, workers."""
