"""`headrace demo --learn`: an agent's model gets better while the agent uses it.

tasks ─▶ agent (the openai client, another base_url) ─▶ gateway ─▶ worker
             └─ later: /v1/feedback ─▶ … ─▶ batching ─▶ trainer ─▶ versions ─▶ worker
"""
