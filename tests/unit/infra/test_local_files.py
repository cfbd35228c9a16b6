"""State, logs, passwords, processes: what lies in the data directory, and who may read it."""

import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from infra.local.doctor import examine, parse_available_memory
from infra.local.launch import find_settings
from infra.local.passwords import ensure_password
from infra.local.processes import ProcessIdentity, identify, is_alive, reap
from infra.local.rotating_log import RotatingLog, last_lines
from infra.local.state import (
    ChildState,
    StackState,
    Status,
    is_owned,
    owned,
    read_state,
    state_file,
    write_state,
)
from schemas.errors import ConfigError
from schemas.settings import load_settings


def _state(data_dir: Path) -> StackState:
    child = ChildState("kafka", Status.READY, pid=7, start_ticks=8, ports=(9092,))
    endpoints = {
        "HEADRACE_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:21999",
        "HEADRACE_CLICKHOUSE__HOST": "127.0.0.1",
        "HEADRACE_CLICKHOUSE__PORT": "21998",
        "HEADRACE_GATEWAY__PORT": "21997",
    }
    return StackState(str(data_dir), 1, "2026-01-01T00:00:00+00:00", endpoints, (child,))


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_state_comes_back_as_written(tmp_path: Path) -> None:
    with owned(tmp_path):
        write_state(_state(tmp_path))
    assert read_state(tmp_path) == _state(tmp_path)
    assert _mode(state_file(tmp_path)) == 0o600


def test_broken_state_counts_as_none(tmp_path: Path) -> None:
    state_file(tmp_path).parent.mkdir()
    state_file(tmp_path).write_text('{"children": 3')
    assert read_state(tmp_path) is None


def test_one_stack_owns_a_directory(tmp_path: Path) -> None:
    with owned(tmp_path):
        assert is_owned(tmp_path)
        with pytest.raises(ConfigError, match="headrace down"), owned(tmp_path):
            pass
    assert not is_owned(tmp_path)


def test_clients_find_the_running_stack(tmp_path: Path) -> None:
    with owned(tmp_path):
        write_state(_state(tmp_path))
    settings = find_settings(tmp_path)
    assert settings.kafka.bootstrap_servers == "127.0.0.1:21999"
    assert (settings.clickhouse.port, settings.gateway.port) == (21_998, 21_997)


def test_what_the_environment_names_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with owned(tmp_path):
        write_state(_state(tmp_path))
    monkeypatch.setenv("HEADRACE_KAFKA__BOOTSTRAP_SERVERS", "broker.example:9092")
    assert find_settings(tmp_path).kafka.bootstrap_servers == "broker.example:9092"


def test_logs_are_bounded(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "logs" / "a.log", max_bytes=100, num_old_files=2)
    for number in range(100):
        log.write(f"line {number:04}\n".encode())
    log.close()
    files = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert files == ["a.log", "a.log.1", "a.log.2"]
    assert sum(path.stat().st_size for path in (tmp_path / "logs").iterdir()) <= 3 * 110
    assert last_lines(tmp_path / "logs" / "a.log.1", 1)[0] <= "line 0099"
    assert _mode(tmp_path / "logs" / "a.log") == 0o600


def test_the_end_of_a_log_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("".join(f"{n}\n" for n in range(1000)))
    assert last_lines(tmp_path / "a.log", 2) == ["998", "999"]
    assert last_lines(tmp_path / "absent.log", 2) == []


def test_a_password_is_random_private_and_stays(tmp_path: Path) -> None:
    first = ensure_password(tmp_path / "secrets" / "one")
    assert ensure_password(tmp_path / "secrets" / "one") == first
    assert ensure_password(tmp_path / "secrets" / "two") != first
    assert _mode(tmp_path / "secrets" / "one") == 0o600
    assert _mode(tmp_path / "secrets") == 0o700
    assert len(first) >= 32


def test_a_reused_pid_is_another_process() -> None:
    own = identify(os.getpid())
    assert own is not None
    assert is_alive(own)
    assert not is_alive(ProcessIdentity(own.pid, own.start_ticks + 1))


def test_a_leftover_is_ended_and_a_stranger_is_not() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, process_group=0
    )
    try:
        identity = identify(process.pid)
        assert identity is not None
        assert not reap(ProcessIdentity(identity.pid, identity.start_ticks + 1))
        assert process.poll() is None
        reap(identity, grace_seconds=5)
        assert process.wait(5) < 0
    finally:
        process.kill()
        process.communicate()


def test_the_doctor_names_every_part(tmp_path: Path) -> None:
    findings = {finding.name: finding for finding in examine(load_settings(data_dir=tmp_path))}
    assert {"python", "java", "kafka", "chdb", "spacy model", "disk", "memory"} <= set(findings)
    assert all(finding.mend for finding in findings.values() if finding.verdict != "ok")


def test_the_doctor_says_how_to_mend_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.local.java.candidates", list)
    findings = {finding.name: finding for finding in examine(load_settings(data_dir=tmp_path))}
    assert findings["java"].verdict == "broken"
    assert "pip install" in findings["java"].mend


def test_available_memory_is_read() -> None:
    assert parse_available_memory("MemTotal: 9 kB\nMemAvailable:  2048 kB\n") == 2048 * 1024


def test_a_log_whose_disk_is_full_goes_on_and_says_what_is_missing(tmp_path: Path) -> None:
    """A file-size limit of the process is the disk that is full."""
    log = RotatingLog(tmp_path / "logs" / "a.log", max_bytes=1_000)
    log.write(b"before\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        log.write(b"during\n")
        log.write(b"lost\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    log.write(b"after\n")
    log.close()
    lines = (tmp_path / "logs" / "a.log").read_text().splitlines()
    assert lines == [
        "before", "dur", "[9 bytes of output are missing: the disk was full]", "after",
    ]  # fmt: skip


def test_a_log_that_cannot_be_rotated_grows_until_it_can(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    log = RotatingLog(path, max_bytes=10, num_old_files=1)
    (tmp_path / "a.log.1").mkdir()
    (tmp_path / "a.log.1" / "in the way").touch()
    log.write(b"0123456789")
    log.write(b"more")
    assert path.read_bytes() == b"0123456789more"
    (tmp_path / "a.log.1" / "in the way").unlink()
    (tmp_path / "a.log.1").rmdir()
    log.write(b"!")
    log.write(b"new")
    log.close()
    assert (tmp_path / "a.log.1").read_bytes() == b"0123456789more!"
    assert path.read_bytes() == b"new"
