"""Proposals become assignments of rings; refused versions are taken back.

    weights.versions.v1 ──┐                        ┌─▶ RingAssignment (sequence + 1)
    weights.promotions.v1 ─┼─▶ state ─▶ next_change ┤     both in one transaction
    weights.acks.v1 ───────┤     (pure)             └─▶ ProposalAnswer
    inference.workers.v1 ──┘

One process lives for a cluster: starting one ends the one before it. A process that is killed
between any two steps leaves either both records of a change or none, so the next one goes on.
"""
