"""Jars enter the cache only whole and only as listed."""

import hashlib
import io
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.local.kafka_jars import (
    JarList,
    ResolveError,
    cache_root,
    fetch_from_archive,
    find_jars,
    load_jar_list,
    resolve_jars,
    verify,
)
from infra.local.locks import in_turn
from schemas.errors import ConfigError

CONTENT = b"jar content"
JARS = JarList("9.9.9", {"org.example:thing:1.0": hashlib.sha256(CONTENT).hexdigest()})


@pytest.fixture
def libs(tmp_path: Path) -> Path:
    path = tmp_path / "libs"
    path.mkdir()
    return path


def test_a_changed_jar_is_refused(libs: Path) -> None:
    (libs / "thing-1.0.jar").write_bytes(b"changed")
    with pytest.raises(ResolveError, match="another SHA-256"):
        verify(JARS, libs)


def test_a_jar_too_many_is_refused(libs: Path) -> None:
    (libs / "thing-1.0.jar").write_bytes(CONTENT)
    (libs / "surplus.jar").write_bytes(b"")
    with pytest.raises(ResolveError, match=r"surplus\.jar"):
        verify(JARS, libs)


def test_the_listed_jars_are_accepted(libs: Path) -> None:
    (libs / "thing-1.0.jar").write_bytes(CONTENT)
    verify(JARS, libs)
    assert load_jar_list().digests


def _archive(root: Path, *, tamper: bool) -> str:
    directory = root / "9.9.9"
    directory.mkdir(parents=True)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in ("kafka/libs/thing-1.0.jar", "kafka/bin/run.sh", "../../escape.jar"):
            member = tarfile.TarInfo(name)
            member.size = len(CONTENT)
            tar.addfile(member, io.BytesIO(CONTENT))
    digest = hashlib.sha512(buffer.getvalue() + (b"x" if tamper else b"")).hexdigest().upper()
    lines = "\n ".join(digest[i : i + 8] for i in range(0, len(digest), 8))
    (directory / "kafka_2.13-9.9.9.tgz").write_bytes(buffer.getvalue())
    (directory / "kafka_2.13-9.9.9.tgz.sha512").write_text(f"kafka_2.13-9.9.9.tgz: {lines}\n")
    return root.as_uri()


def test_only_the_jars_of_the_tarball_are_kept(tmp_path: Path, libs: Path) -> None:
    fetch_from_archive(JARS, libs, _archive(tmp_path / "archive", tamper=False))
    assert {path.name for path in libs.iterdir()} == {"thing-1.0.jar", ".from-archive"}


def test_a_tarball_with_another_digest_is_refused(tmp_path: Path, libs: Path) -> None:
    with pytest.raises(ResolveError, match="SHA-512"):
        fetch_from_archive(JARS, libs, _archive(tmp_path / "archive", tamper=True))


def test_kafka_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka-server-4.3.1.jar").touch()
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    found = find_jars()
    assert found is not None
    assert (found.source, found.directory) == ("KAFKA_HOME", tmp_path / "libs")


def test_a_wrong_kafka_home_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="KAFKA_HOME"):
        find_jars()


def test_an_incomplete_cache_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cached = tmp_path / "headrace" / "kafka" / load_jar_list().kafka_version
    cached.mkdir(parents=True)
    names = list(load_jar_list().digest_of_file)
    for name in names[1:]:
        (cached / name).touch()
    assert find_jars() is None
    (cached / names[0]).touch()
    found = find_jars()
    assert found is not None
    assert found.source == "cache"


def test_of_two_processes_one_fetches_and_the_other_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    version, waits = load_jar_list().kafka_version, threading.Event()
    with ThreadPoolExecutor(1) as pool:
        with in_turn(cache_root() / f"{version}.lock", "the jars", 1.0, print):
            second = pool.submit(resolve_jars, lambda _: waits.set())
            assert waits.wait(10)
            (cache_root() / version).mkdir()
            for name in load_jar_list().digest_of_file:
                (cache_root() / version / name).touch()
        assert second.result(10).source == "cache"


def test_the_list_holds_a_whole_broker() -> None:
    jars = load_jar_list()
    assert f"org.apache.kafka:kafka-server:{jars.kafka_version}" in jars.digests
    assert len(jars.digest_of_file) == len(jars.digests)
    assert all(len(digest) == 64 for digest in jars.digests.values())
