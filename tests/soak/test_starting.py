"""What a processor says that starts while the broker is away."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.secrets import create_root_secret
from tests.ports import free_ports

pytestmark = [pytest.mark.integration, pytest.mark.soak]


def test_it_ends_with_a_sentence_so_that_its_supervisor_tries_again(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    create_root_secret(tmp_path / "secrets" / "root")
    environment = {
        "HEADRACE_DATA_DIR": str(tmp_path),
        "HEADRACE_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{port}",
    }
    ended = subprocess.run(
        [sys.executable, "-m", "streams.assembly"],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 1, ended.stderr  # 2 would mean that trying again cannot help
    assert ended.stderr.startswith("streams.assembly: Kafka"), ended.stderr
    assert "Traceback" not in ended.stderr
