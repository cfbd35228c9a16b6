"""Where the jars of the Kafka broker come from.

Order: KAFKA_HOME → the cache → Maven → the Apache archive.
`kafka_jars.json` lists every jar with its SHA-256; what Maven hands over is compared
with it before it may enter the cache. A cache directory appears by one rename, complete.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from infra.local.locks import in_turn
from schemas.errors import ConfigError

APACHE_ARCHIVE = "https://archive.apache.org/dist/kafka"
_MAVEN_TIMEOUT_SECONDS = 600.0
_HTTP_TIMEOUT_SECONDS = 60.0
#: How long one process waits for what another one fetches.
_FETCH_SECONDS = 900.0


@dataclass(frozen=True)
class JarList:
    """The jars of one broker version: `group:artifact:version` → SHA-256 in hex."""

    kafka_version: str
    digests: dict[str, str]

    @property
    def digest_of_file(self) -> dict[str, str]:
        """File name → SHA-256."""
        return {_file_name(coordinates): digest for coordinates, digest in self.digests.items()}


@dataclass(frozen=True)
class KafkaJars:
    """A directory whose jars run a broker, and how it was found."""

    directory: Path
    source: str


class ResolveError(Exception):
    """One source could not deliver; the next one is tried."""


def load_jar_list() -> JarList:
    """The committed list."""
    content = json.loads(files("infra.local").joinpath("kafka_jars.json").read_text())
    return JarList(content["kafka_version"], content["jars"])


def cache_root() -> Path:
    """Directory for the jars of all versions, by the XDG rules."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "headrace" / "kafka"


def find_jars() -> KafkaJars | None:
    """Jars that are on this machine already: KAFKA_HOME, then the cache. Opens no connection."""
    if home := os.environ.get("KAFKA_HOME"):
        libs = Path(home) / "libs"
        if not any(libs.glob("kafka-server-*.jar")):
            raise ConfigError(
                f"KAFKA_HOME is {home}, but {libs} holds no Kafka 4 broker. "
                "Point KAFKA_HOME at an unpacked Apache Kafka 4.x, or unset it."
            )
        return KafkaJars(libs, "KAFKA_HOME")
    jars = load_jar_list()
    cached = cache_root() / jars.kafka_version
    if (cached / ".from-archive").exists():
        return KafkaJars(cached, "cache")
    complete = cached.is_dir() and all((cached / name).exists() for name in jars.digest_of_file)
    return KafkaJars(cached, "cache") if complete else None


def resolve_jars(say: Callable[[str], None]) -> KafkaJars:
    """Find the jars or fetch them; `say` is told what takes long. ConfigError if none delivers."""
    if found := find_jars():
        return found
    lock = cache_root() / f"{load_jar_list().kafka_version}.lock"
    with in_turn(lock, "the broker's jars", _FETCH_SECONDS, say):
        return find_jars() or _fetched(say)  # another process may have fetched them meanwhile


def _fetched(say: Callable[[str], None]) -> KafkaJars:
    jars = load_jar_list()
    failures = []
    sources: tuple[tuple[str, Callable[[JarList, Path], None]], ...] = (
        ("Maven", fetch_with_maven),
        ("the Apache archive", fetch_from_archive),
    )
    for name, fetch in sources:
        say(f"fetching Apache Kafka {jars.kafka_version} from {name} (once, about 60 MB)")
        try:
            return KafkaJars(_into_cache(jars, fetch), name)
        except ResolveError as error:
            failures.append(f"{name}: {error}")
    raise ConfigError(
        f"Apache Kafka {jars.kafka_version} could not be fetched. "
        + "; ".join(failures)
        + ". Allow one of these, or unpack Apache Kafka 4.x and set KAFKA_HOME to it, "
        "or set HEADRACE_KAFKA__BOOTSTRAP_SERVERS to a broker that runs already."
    )


def _into_cache(jars: JarList, fetch: Callable[[JarList, Path], None]) -> Path:
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    final = root / jars.kafka_version
    with tempfile.TemporaryDirectory(prefix=".incoming-", dir=root) as incoming:
        libs = Path(incoming) / "libs"
        libs.mkdir()
        fetch(jars, libs)
        if final.exists():
            # An earlier process died or fetched at the same time; a complete copy is as good.
            final.rename(Path(incoming) / "replaced")
        libs.rename(final)
    return final


def fetch_with_maven(jars: JarList, libs: Path) -> None:
    """Let Maven resolve the pom, so that the mirrors in its settings are honoured."""
    maven = shutil.which("mvn")
    if maven is None:
        raise ResolveError("mvn is not on PATH")
    with tempfile.TemporaryDirectory() as project:
        pom = Path(project) / "pom.xml"
        pom.write_text(files("infra.local").joinpath("kafka_pom.xml").read_text())
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        try:
            subprocess.run(
                [*command, f"-DoutputDirectory={libs}"],
                check=True,
                capture_output=True,
                timeout=_MAVEN_TIMEOUT_SECONDS,
            )
        except subprocess.CalledProcessError as error:
            raise ResolveError(f"mvn ended with exit code {error.returncode}") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ResolveError(f"mvn did not finish ({type(error).__name__})") from error
    verify(jars, libs)


def verify(jars: JarList, libs: Path) -> None:
    """Compare a directory with the list; a jar too many is as wrong as one too few."""
    expected = jars.digest_of_file
    present = {path.name for path in libs.iterdir()}
    if present != set(expected):
        odd = sorted(present ^ set(expected))
        raise ResolveError(f"the set of jars differs: {', '.join(odd[:5])}")
    for name, digest in expected.items():
        if hashlib.sha256((libs / name).read_bytes()).hexdigest() != digest:
            raise ResolveError(f"{name} has another SHA-256 than listed")


def fetch_from_archive(jars: JarList, libs: Path, archive: str = APACHE_ARCHIVE) -> None:
    """Download the release tarball, check the SHA-512 published beside it, keep its jars."""
    name = f"kafka_2.13-{jars.kafka_version}.tgz"
    url = f"{archive}/{jars.kafka_version}/{name}"
    published = _download(f"{url}.sha512").decode("ascii", "replace")
    content = _download(url)
    # The file reads `name: ABCD 0123 …` over several lines, or `abcd0123…  name`.
    hex_digits = "".join(published.replace(name, "").replace(":", "").split()).lower()
    if hashlib.sha512(content).hexdigest() != hex_digits:
        raise ResolveError(f"{name} does not match its SHA-512")
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        with tarfile.open(fileobj=file) as tar:
            _extract_jars(tar, libs)
    (libs / ".from-archive").touch()


def _extract_jars(tar: tarfile.TarFile, libs: Path) -> None:
    for member in tar:
        path = Path(member.name)
        if member.isfile() and path.suffix == ".jar" and path.parent.name == "libs":
            source = tar.extractfile(member)
            assert source is not None
            (libs / path.name).write_bytes(source.read())


def _download(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=_HTTP_TIMEOUT_SECONDS) as response:  # noqa: S310  # our own constants
            content: bytes = response.read()
            return content
    except OSError as error:
        raise ResolveError(f"{url} is not reachable ({error})") from error


def _file_name(coordinates: str) -> str:
    _, artifact, version = coordinates.split(":")
    return f"{artifact}-{version}.jar"
