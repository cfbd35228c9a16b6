"""One trajectory with its steps and rewards, read from the store.

The one part of `inference` that speaks to ClickHouse. The gateway imports it when the first such
request comes, so that it starts, and fits into an image, without the store's client.
"""

from inference.trajectories.read import read_trajectory

__all__ = ["read_trajectory"]
