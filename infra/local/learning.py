"""What `--with learning` adds to the stack.

samples ─▶ batching ─▶ micro-batches ─▶ trainer ─▶ versions
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from infra.local.children import ChildSpec, FileProbe, Port
from infra.local.state import run_dir
from schemas import topics


def batching_child(environment: Mapping[str, str], data_dir: Path, port: int) -> ChildSpec:
    """The processor that makes micro-batches; `port` is that of its metrics."""
    return ChildSpec(
        name="batching",
        command=[sys.executable, "-m", topics.BATCHING],
        probe=FileProbe(run_dir(data_dir) / f"{topics.BATCHING}.ready"),
        after=["topics"],
        environment={
            **environment,
            "HEADRACE_WORKER_NAME": "local",
            "HEADRACE_METRICS_PORT": str(port),
        },
        ports=(Port(port, "metrics of batching", "--gateway-port"),),
    )
