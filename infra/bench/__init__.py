"""`make bench`: measures what headrace costs and writes the figures into docs/benchmarks.md.

Each section starts what it needs, measures for a bounded time, and turns samples into figures in
a pure function. Beside wall times stand CPU seconds of the processes: those stay comparable
between runs on a machine that does other work too.
"""
