"""`python -m streams.assembly` runs one process of group `streams.assembly`."""

from schemas import topics
from streams.assembly.agent import build
from streams.runtime.shell import run_processor

if __name__ == "__main__":
    run_processor(topics.ASSEMBLY, build)
