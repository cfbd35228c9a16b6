"""ATDP v1, the agent trajectory data protocol: what one decision of an agent carries.

`types` is the source of truth; the `.avsc` files follow it (`python -m schemas.atdp.avro` writes
them, a test compares). Every released version stays in `released/` for ever.
"""

from schemas.atdp.types import *  # noqa: F403 - the protocol's names are this package's names
