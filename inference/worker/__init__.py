"""A process that serves one policy with vLLM and follows its versions.

    weights.promotions.v1 ─┐
    weights.versions.v1 ───┼─▶ plan ─▶ shadow: stage, prove ─▶ hold ─▶ write ─▶ prove ─▶ label ─▶ go
    weights.chunks.v1 ─────┘                                   └──────── the engine ────────┘
                                                ▼
                          weights.acks.v1, inference.workers.v1

`engine/` runs inside vLLM's processes and needs numpy and xxhash of ours; all else runs in a
process of its own, which starts vLLM and takes it along when it ends, however it ends.
"""
