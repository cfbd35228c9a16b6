"""What stands where private data stood: `<EMAIL_ADDRESS_qkzvbnwmxyabc>`.

The letters are a keyed digest of kind and normalised value: the same value has the same
placeholder in every turn and every process of a tenant, and no relation to any other tenant's.
There are letters only, so no detector fires on them. The last three letters authenticate the rest:
text that merely looks like a placeholder is scanned like any other text. Where an id is private as
a whole, as `mia_li_3668`, its field holds the same placeholder without the brackets.
"""

import hashlib
import hmac
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from streams.redaction.detect.dates import calendar_parts

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_PAIRS: Final = tuple(first + second for second in _LETTERS for first in _LETTERS)
_NUM_VALUE_LETTERS: Final = 10
_NUM_CHECK_LETTERS: Final = 3
_PLACEHOLDER: Final = re.compile(
    rf"<(?P<kind>[A-Z][A-Z_]{{1,40}})_(?P<value>[a-z]{{{_NUM_VALUE_LETTERS}}})"
    rf"(?P<check>[a-z]{{{_NUM_CHECK_LETTERS}}})>"
)


@dataclass(frozen=True, slots=True)
class Replacement:
    """`placeholder` goes where `text[start:end]` stands."""

    start: int
    end: int
    kind: str
    placeholder: str


class Placeholders:
    """Makes the placeholders of one tenant and knows its own work."""

    def __init__(self, tenant_key: bytes) -> None:
        """`tenant_key` is secret and never changes while placeholders must stay comparable."""
        self._key = hashlib.sha256(b"headrace/placeholder/" + tenant_key).digest()

    def make(self, kind: str, value: str) -> str:
        """The placeholder for `value`, which differs in spelling only if it differs in meaning."""
        letters = self._letters(f"{kind}\x00{normalised(kind, value)}", _NUM_VALUE_LETTERS)
        return f"<{kind}_{letters}{self._check(kind, letters)}>"

    def find(self, text: str) -> list[tuple[int, int]]:
        """Where `text` holds placeholders this tenant's key made, in order."""
        if "<" not in text:
            return []
        return [
            match.span()
            for match in _PLACEHOLDER.finditer(text)
            if match["check"] == self._check(match["kind"], match["value"])
        ]

    def is_bare(self, text: str) -> bool:
        """Whether this is one of our placeholders as it stands in fields of ids."""
        return self.find(f"<{text}>") == [(0, len(text) + 2)]

    def pseudonym(self, value: str) -> str:
        """A stable stand-in for an identifier that holds private data beside other text."""
        return "anon-" + self._letters(f"identifier\x00{value}", 2 * _NUM_VALUE_LETTERS)

    def _check(self, kind: str, letters: str) -> str:
        return self._letters(f"check\x00{kind}\x00{letters}", _NUM_CHECK_LETTERS)

    def _letters(self, message: str, num_letters: int) -> str:
        encoded = message.encode("utf-8", "surrogatepass")
        number = int.from_bytes(hmac.digest(self._key, encoded, "sha256")[:16])
        letters = []
        for _ in range(0, num_letters, 2):
            number, place = divmod(number, len(_PAIRS))
            letters.append(_PAIRS[place])
        return "".join(letters)[:num_letters]


def bare(text: str) -> str | None:
    """A placeholder without its brackets, as fields of ids have it: they become keys and parts of
    addresses. None where the text is anything else."""
    return text[1:-1] if _PLACEHOLDER.fullmatch(text) else None


def normalised(kind: str, value: str) -> str:
    """One spelling for the spellings of one value; kinds without a rule are kept as they are."""
    value = unicodedata.normalize("NFKC", value)
    rule = _RULES.get(kind)
    return rule(value) if rule else value


def _letters_and_digits(value: str) -> str:
    return "".join(character for character in value.casefold() if character.isalnum())


def _words(value: str) -> str:
    return " ".join(value.casefold().split())


def _email(value: str) -> str:
    return re.sub(r"%40|&#(?:64|x40);", "@", value.casefold())


def _date(value: str) -> str:
    parts = calendar_parts(value)
    return "{:04}-{:02}-{:02}".format(*parts) if parts else _letters_and_digits(value)


_RULES: Final[Mapping[str, Callable[[str], str]]] = {
    "EMAIL_ADDRESS": _email,
    "DATE_OF_BIRTH": _date,
    "PHONE_NUMBER": _letters_and_digits,
    "CREDIT_CARD": _letters_and_digits,
    "IBAN_CODE": _letters_and_digits,
    "US_SSN": _letters_and_digits,
    "NATIONAL_ID": _letters_and_digits,
    "STREET_ADDRESS": _words,
    "PERSON": _words,
    "LOCATION": _words,
    "USER_HANDLE": str.casefold,
}
