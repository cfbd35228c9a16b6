"""`python -m streams.redaction` runs the redaction processor."""

from schemas import topics
from streams.redaction.agent import build
from streams.runtime.shell import run_processor

if __name__ == "__main__":
    run_processor(topics.REDACTION, build)
