"""Reconcile: is every record of every topic accounted for? `ledger` counts, `proofs` look.

ledger.py   each offset marked once, by kind; pure
report.py   what came out, and which replay brings back what is missing; pure
reading.py  the log and the store, as far as proofs ask them
proofs.py   where a record of each topic must show
run.py      topic by topic, with a bounded number of offsets in memory
joins.py    trajectories against their steps
"""
