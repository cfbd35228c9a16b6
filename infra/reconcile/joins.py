"""Trajectories against their steps, in the store: assembly leaves no trace of a single record."""

import time

from infra.reconcile.report import Joins, Unjoined
from infra.store import Reader

_SHOWN = 10
#: A step is stored before its trajectory's row is; what differs twice, this far apart, differs.
_PAUSE_SECONDS = 3.0
_TOTAL = """
SELECT uniqExact(tenant_id, trajectory_id) AS number FROM steps_log WHERE trajectory_id != ''
"""
#: A step without a trajectory asks for no decision and is joined to nothing.
_DIFFERENT = """
SELECT s.tenant_id AS tenant_id, s.trajectory_id AS trajectory_id, s.steps AS steps,
       t.num_steps AS joined, count() OVER () AS number
FROM (
    SELECT tenant_id, trajectory_id, countIf(attempt_of IS NULL) AS steps
    FROM steps WHERE trajectory_id != '' GROUP BY tenant_id, trajectory_id
) AS s
LEFT JOIN (SELECT tenant_id, trajectory_id, num_steps FROM trajectories) AS t
    ON t.tenant_id = s.tenant_id AND t.trajectory_id = s.trajectory_id
WHERE t.num_steps != s.steps
ORDER BY tenant_id, trajectory_id LIMIT 10
"""


def join(store: Reader) -> Joins:
    """Compare the number of steps of each trajectory with what its row says."""
    if store.rows(_DIFFERENT):
        time.sleep(_PAUSE_SECONDS)
    rows = store.rows(_DIFFERENT)
    first = tuple(
        Unjoined(row["tenant_id"], row["trajectory_id"], row["steps"], row["joined"])
        for row in rows[:_SHOWN]
    )
    (total,) = store.rows(_TOTAL)
    return Joins(total["number"], rows[0]["number"] if rows else 0, first)
