"""A promotion process that is killed at a chosen step of its writing, for `test_killed_promotion`.

Every call that leaves the process counts as two steps: before it and after it. Run as
`python -m tests.integration.routing.dying SERVERS PREFIX STEP`.
"""

import sys
from typing import Any

from controlplane.promotion.process import Promotion
from schemas.bus.access import KafkaAccess
from schemas.bus.kafka import KafkaBus
from schemas.settings import PromotionSettings
from tests.integration.weights.dying import Clock, Watched


def main(arguments: list[str]) -> None:
    """Decide until the step comes."""
    servers, prefix, step = arguments
    bus: Any = Watched(KafkaBus(KafkaAccess(servers, prefix=prefix)), Clock(int(step)))
    Promotion(bus, PromotionSettings()).run()


if __name__ == "__main__":
    main(sys.argv[1:])
