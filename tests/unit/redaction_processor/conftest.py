"""Redaction in process for every test of this folder."""

from pathlib import Path

import pytest

from tests.unit.redaction_processor.parts import Redaction


@pytest.fixture
def redaction(tmp_path: Path) -> Redaction:
    return Redaction(tmp_path)
