"""Names as lists, out of two packages: Faker (of the world), names (of the United States' census).

Loaded once a process, in half a second. Beside each spelling stands the one without accents.
"""

import pkgutil
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import ModuleType
from typing import Final

from schemas.errors import ConfigError

_PART: Final = re.compile(r"[^\W\d_]{2,}(?:['’-][^\W\d_]+)*")
#: Rarer family names of the census look like any other word.
_MAX_RANK: Final = 40_000
_HAN: Final = re.compile(r"[\u4e00-\u9fff]{1,4}")
_HANGUL: Final = re.compile(r"[\uac00-\ud7a3]{1,3}")


@dataclass(frozen=True, slots=True)
class NameLists:
    """Parts of names, in lower case; for Chinese, Japanese and Korean as they are written."""

    version: str
    given: frozenset[str]
    family: frozenset[str]
    east_given: frozenset[str]
    east_family: frozenset[str]

    def holds(self, word: str) -> bool:
        """Whether a lower-case word is in one of the lists."""
        return word in self.given or word in self.family


@cache
def name_lists() -> NameLists:
    """The lists. ConfigError where the package is not installed."""
    try:
        package = import_module("faker.providers.person")
        census = files("names")
        numbers = f"faker-{version('faker')}+names-{version('names')}"
    except (ImportError, PackageNotFoundError):
        raise ConfigError(
            "The name lists are not installed: pip install 'headrace[redaction]', "
            "or set the redaction tier to 'regex'."
        ) from None
    given, family = _listed(package, "first_names"), _listed(package, "last_names")
    return NameLists(
        version=numbers,
        given=frozenset(
            [
                *_parts(given),
                *_counted(census, "dist.female.first"),
                *_counted(census, "dist.male.first"),
            ]
        ),
        family=frozenset([*_parts(family), *_counted(census, "dist.all.last")]),
        east_given=frozenset(name for name in given if _is_east_asian(name)),
        east_family=frozenset(name for name in family if _is_east_asian(name)),
    )


def _listed(package: ModuleType, prefix: str) -> set[str]:
    names: set[str] = set()
    for module in pkgutil.iter_modules(package.__path__):
        provider = import_module(f"{package.__name__}.{module.name}").Provider
        for attribute in dir(provider):
            listed = getattr(provider, attribute) if attribute.startswith(prefix) else ()
            if isinstance(listed, tuple | list | dict):
                names.update(name for name in listed if isinstance(name, str))
    return names


def _counted(census: Traversable, name: str) -> Iterator[str]:
    """The more common names of a census table: name, share, cumulative share, rank."""
    for line in (census / name).read_text(encoding="ascii").splitlines():
        word, _, _, rank = line.split()
        if int(rank) <= _MAX_RANK and len(word) > 2:
            yield word.lower()


def _is_east_asian(name: str) -> bool:
    return _HAN.fullmatch(name) is not None or _HANGUL.fullmatch(name) is not None


def _parts(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        for part in _PART.findall(name):
            lower = part.casefold()
            yield lower
            plain = unicodedata.normalize("NFKD", lower)
            if plain != lower:
                yield "".join(letter for letter in plain if not unicodedata.combining(letter))
