"""What tests of publishing and reading share."""

from pathlib import Path

import pytest

from schemas import topics
from schemas.bus.memory import MemoryBus
from schemas.store import BlobStore


@pytest.fixture
def bus() -> MemoryBus:
    made = MemoryBus()
    made.admin().create_topics(topics.TOPICS, 1, 1)
    return made


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path.as_uri())
