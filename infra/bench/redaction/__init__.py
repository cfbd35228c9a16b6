"""What redaction finds and what it costs.

    speed.py    seconds for a text of 4 kB, unseen and seen before (part of `python -m infra.bench`)
    gold.py     the documents with known private data, read where they lie, split into two halves
    score.py    recall, precision, over-redaction: pure
    systems.py  the tiers and stock Presidio behind one call

`python -m infra.bench.redaction` prints the tables of docs/redaction.md.
"""
