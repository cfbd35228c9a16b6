"""python -m streams.sink"""

from schemas import topics
from streams.runtime.shell import run_processor
from streams.sink.agent import build

run_processor(topics.SINK, build)
