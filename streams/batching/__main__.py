"""`python -m streams.batching` runs one process of group `streams.batching`."""

from schemas import topics
from streams.batching.agent import build
from streams.runtime.shell import run_processor

if __name__ == "__main__":
    run_processor(topics.BATCHING, build)
