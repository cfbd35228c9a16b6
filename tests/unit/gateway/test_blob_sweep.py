"""The gateway's own sweep: what it counts, and what a disk that refuses costs."""

import os
import time
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from inference.spool import sweeping
from inference.spool.sweeping import BlobSweep
from schemas.settings import Settings
from schemas.store import BlobStore, Swept
from schemas.telemetry import Metrics


def test_old_bodies_go_and_what_others_keep_stays(tmp_path: Path) -> None:
    settings, metrics = Settings(data_dir=tmp_path), Metrics()
    BlobStore(settings.original_blobs).put("acme", b"body")
    weights = BlobStore(settings.blobs)
    old = time.time() - 46 * 24 * 3600
    for path in tmp_path.rglob("*"):
        if path.is_file() and "acme" in path.parts:
            os.utime(path, (old, old))
    other = weights.put("acme", b"a snapshot")
    for path in (tmp_path / "blobs" / "acme").rglob("*"):
        os.utime(path, (old, old))
    BlobSweep(settings, metrics).look()
    assert b"headrace_blobs_swept_total 1.0" in generate_latest(metrics.registry)
    assert weights.get("acme", other) == b"a snapshot"


def test_what_the_disk_refuses_is_told_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = Metrics()
    monkeypatch.setattr(sweeping, "sweep", lambda *_: Swept(num_refused=2))
    sweep = BlobSweep(Settings(data_dir=tmp_path), metrics)
    with capture_logs() as logs:
        sweep.look()
    assert [(line["event"], line["num_blobs"]) for line in logs] == [("blobs_not_swept", 2)]
    assert b"headrace_blobs_not_swept_total 2.0" in generate_latest(metrics.registry)


def test_it_ends_when_it_is_told_to(tmp_path: Path) -> None:
    sweep = BlobSweep(Settings(data_dir=tmp_path), Metrics())
    sweep.start()
    assert sweep.is_alive
    sweep.stop(30.0)
    assert not sweep.is_alive
