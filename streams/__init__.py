"""Stream processors: raw events become clean, joined, queryable trajectories."""
