"""Documents whose private data is known, read where they lie and split by a hash of their text.

Recognisers are tuned on one half only; published figures come from the other. A document never
changes its half, whatever else is added. Templates of the synthetic sets occur in both halves.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

Half = Literal["tuning", "reporting"]

#: Entity names of the corpora → the kinds of the tables. What is not listed is not looked for.
_KINDS: Final = {
    "PERSON": "name", "person": "name",
    "ADDRESS": "address", "STREET_ADDRESS": "address", "address": "address",
    "ZIP_CODE": "postal code", "postcode": "postal code",
    "GPE": "place", "LOCATION": "place",
    "PHONE_NUMBER": "phone", "phone": "phone",
    "EMAIL_ADDRESS": "e-mail", "email": "e-mail",
    "CREDIT_CARD": "card", "credit_card": "card", "bank_card": "card",
    "IBAN_CODE": "IBAN", "iban": "IBAN",
    "US_SSN": "SSN", "ssn": "SSN",
    "IP_ADDRESS": "IP address",
    "US_DRIVER_LICENSE": "driving licence",
    "id_number": "resident id",
    "aadhaar": "other national id", "pan": "other national id", "rrn": "other national id",
    "tax_id": "other national id", "nino": "other national id",
    "my_number": "other national id", "nhs_number": "other national id",
    "license_plate": "plate",
    "openai_api_key": "secret", "anthropic_api_key": "secret", "aws_access_key": "secret",
    "github_token": "secret", "jwt": "secret", "ssh_private_key": "secret",
}  # fmt: skip
#: Kinds of the research set that no tier looks for: they do not name a person by themselves.
NOT_SOUGHT: Final = ("ORGANIZATION", "TITLE", "DATE_TIME", "AGE", "NRP", "DOMAIN_NAME")


@dataclass(frozen=True, slots=True)
class Value:
    """Private data at `text[start:end]`. `is_loose` where only its presence is known."""

    kind: str
    start: int
    end: int
    is_loose: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A text, its language, and everything private in it as far as its corpus says.

    `is_complete` says that nothing else in the text is private, so that any further finding is
    wrong. `benign` lists what is marked but not sought: a finding there is no error.
    """

    corpus: str
    language: str
    text: str
    values: tuple[Value, ...]
    benign: tuple[tuple[int, int], ...] = ()
    is_complete: bool = True


def half_of(text: str) -> Half:
    """The half that a text belongs to, for ever."""
    return "tuning" if hashlib.sha256(text.encode()).digest()[0] % 2 == 0 else "reporting"


def documents(shared: Path, half: Half) -> list[Document]:
    """The documents of one half of every corpus under `shared`."""
    found = [
        *_research(shared / "pii"),
        *_single_kinds(shared / "pii"),
        *_scenarios(shared / "pii"),
    ]
    return [document for document in found if half_of(document.text) == half]


def _research(folder: Path) -> Iterator[Document]:
    for path in sorted(folder.glob("presidio-research-*.json")):
        for case in json.loads(path.read_text()):
            spans = [
                (span["entity_type"], span["start_position"], span["end_position"])
                for span in case["spans"]
            ]
            values = tuple(Value(_KINDS[t], s, e) for t, s, e in spans if t in _KINDS)
            benign = tuple((s, e) for t, s, e in spans if t in NOT_SOUGHT)
            yield Document("research", "en", case["full_text"], values, benign)


def _single_kinds(folder: Path) -> Iterator[Document]:
    for path in sorted((folder / "argus-redact").glob("*.json")):
        for case in json.loads(path.read_text()):
            if "should_match" not in case:
                continue
            text, expected = case["input"], case.get("expected_text")
            values: tuple[Value, ...] = ()
            if case["should_match"]:
                kind = _KINDS[case["type"]]
                if expected is None:
                    values = (Value(kind, 0, len(text), is_loose=True),)
                else:
                    values = tuple(_everywhere(text, expected, kind))
            language = "zh" if not text.isascii() else "en"
            complete = not case["should_match"]
            yield Document(path.stem, language, text, values, is_complete=complete)


def _scenarios(folder: Path) -> Iterator[Document]:
    for name in ("realistic_scenarios", "function_calling"):
        for case in json.loads((folder / "argus-redact" / f"{name}.json").read_text()):
            text = case["input"]
            values = tuple(_valued(text, case))
            yield Document(
                name, _language(case["lang"]), text, values,
                is_complete=name == "realistic_scenarios" and not case["pii_values"],
            )  # fmt: skip


def _valued(text: str, case: dict[str, Any]) -> Iterator[Value]:
    """Values have no positions, and types are listed one for one only where the counts agree."""
    types, values = case.get("pii_types") or [], case["pii_values"]
    aligned = len(types) == len(values)
    for index, value in enumerate(values):
        kind = _KINDS[types[index]] if aligned else _guessed(value)
        yield from _everywhere(text, value, kind)


def _guessed(value: str) -> str:
    if "@" in value:
        return "e-mail"
    digits = sum(character.isdigit() for character in value)
    if value.count("-") == 2 and digits == 9:
        return "SSN"
    if digits in (15, 16, 19):
        return "card"
    return "resident id" if len(value) == 18 and digits >= 17 else "phone" if digits else "name"


def _everywhere(text: str, value: str, kind: str) -> Iterator[Value]:
    start = text.find(value)
    while start >= 0:
        yield Value(kind, start, start + len(value))
        start = text.find(value, start + len(value))


def _language(given: str | Iterable[str]) -> str:
    """`uk` and `in` are English of those countries; mixed texts count under the other language."""
    languages = [given] if isinstance(given, str) else list(given)
    others = [each for each in languages if each not in ("en", "uk", "in")]
    return others[0] if others else "en"
