"""Seeded private values: made up, valid in form, and unlike any word of the conversations.

Every value passes the check digit of its kind (Luhn, mod 97, the resident id's weights), since a
detector that checks digits would rightly let a wrong one through. Numbers come from ranges that
are reserved for fiction where such a range exists.
"""

from __future__ import annotations

import datetime
import random
import string
from dataclasses import dataclass
from typing import Literal, get_args

# The kinds are those of the redaction's regex tier; a test holds the two lists together.
Kind = Literal[
    "SECRET",
    "CREDIT_CARD",
    "IBAN_CODE",
    "US_SSN",
    "NATIONAL_ID",
    "EMAIL_ADDRESS",
    "USER_HANDLE",
    "DATE_OF_BIRTH",
    "PHONE_NUMBER",
    "IP_ADDRESS",
    "STREET_ADDRESS",
    "POSTAL_CODE",
    "PERSON",
    "LOCATION",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

Place = Literal[
    "system_prompt", "user_text", "tool_arguments", "escaped_arguments", "tool_result", "answer"
]
PLACES: tuple[Place, ...] = get_args(Place)

GIVEN_NAMES = (
    "Thessaly", "Oriel", "Caspian", "Lorcan", "Isaura", "Benedikt", "Marisela", "Anneke", "Tobiah",
    "Yevgenia", "Cosmo", "Philippa", "Radmila", "Ignatius", "Solveig", "Bronagh",
)  # fmt: skip
FAMILY_NAMES = (
    "Brackenridge", "Vantongeren", "Okonjo", "Lindqvist", "Castellanos", "Hawtrey", "Mirzoyan",
    "Pellegrin", "Dumbleby", "Szymborska", "Achterberg", "Quisenberry", "Tregaskis", "Wolstencroft",
)  # fmt: skip
STREETS = (
    "Larkspur Lane", "Juniper Hollow Road", "Copperfield Avenue", "Windmill Street",
    "Old Tannery Drive", "Saltmarsh Court", "Bellflower Boulevard", "Quarry Hill Road",
)  # fmt: skip
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
TOWNS = ("Oxmere", "Tarnbridge", "Wexcombe", "Hollinsward", "Eskelby", "Marchfold")
HANDLE_WORDS = ("quill", "fern", "otter", "maple", "cobalt", "thistle", "ember", "plover")


@dataclass(frozen=True)
class Planted:
    """One private value, its kind, and the place of the conversation it was put into."""

    kind: Kind
    value: str
    place: Place


def luhn_digit(digits: str) -> str:
    """The digit that completes `digits` to a number that passes the Luhn check."""
    total = 0
    for position, char in enumerate(reversed(digits)):
        number = int(char)
        if position % 2 == 0:
            number = number * 2 - 9 if number > 4 else number * 2
        total += number
    return str(-total % 10)


def iban(country: str, account: str) -> str:
    """`account` with its country and the two mod-97 check digits in front."""
    as_digits = "".join(str(int(char, 36)) for char in account + country + "00")
    return f"{country}{98 - int(as_digits) % 97:02d}{account}"


def resident_id_digit(first_17: str) -> str:
    """The last character of a Chinese resident id (GB 11643), `X` for ten."""
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    total = sum(int(digit) * weight for digit, weight in zip(first_17, weights, strict=True))
    return "10X98765432"[total % 11]


class PrivateData:
    """Makes values of every kind from one random source and never the same value twice."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._seen: set[str] = set()
        self._num_made = 0

    def make(self, kind: Kind) -> str:
        """A new value of `kind`. Formats of a kind alternate, so that each of them occurs.

        Names of people and towns may come twice: they are shared.
        """
        for _ in range(1000):
            self._num_made += 1
            value = self._draw(kind)
            if kind in ("PERSON", "LOCATION") or value not in self._seen:
                self._seen.add(value)
                return value
        raise AssertionError(f"no unused value of kind {kind} left")

    def _draw(self, kind: Kind) -> str:
        # The method of a kind carries its name, so a kind without a method fails the first run.
        draw = getattr(self, f"_{kind.lower()}")
        return str(draw())

    def _digits(self, count: int) -> str:
        return "".join(self._rng.choices(string.digits, k=count))

    def _email_address(self) -> str:
        first, last = self._rng.choice(GIVEN_NAMES), self._rng.choice(FAMILY_NAMES)
        host = self._rng.choice(("example.com", "mail.example.org", "example.co.uk"))
        return f"{first}.{last}{self._digits(3)}@{host}".lower()

    def _phone_number(self) -> str:
        if self._rng.random() < 0.4:
            return self._chinese_mobile()
        last_two = self._digits(2)
        area = self._rng.choice(("212", "415", "312", "206", "617"))
        return self._rng.choice(
            (
                f"({area}) 555-01{last_two}",
                f"+1-{area}-555-01{last_two}",
                f"{area}-555-01{last_two}",
                f"+44 20 7946 09{last_two}",
            )
        )

    def _credit_card(self) -> str:
        digits = self._rng.choice(("4", "51", "55")) + self._digits(15)
        digits = digits[:15]
        digits += luhn_digit(digits)
        separator = self._rng.choice((" ", "-", ""))
        return separator.join(digits[start : start + 4] for start in range(0, 16, 4))

    def _iban_code(self) -> str:
        if self._rng.random() < 0.5:
            return iban("DE", self._digits(18))
        plain = iban("GB", "NWBK" + self._digits(14))
        return " ".join(plain[start : start + 4] for start in range(0, len(plain), 4))

    def _us_ssn(self) -> str:
        # No area 000, 666 or 900 and up, no group 00, no serial 0000: those are invalid by rule.
        return (
            f"{self._rng.randint(102, 599)}-{self._rng.randint(11, 98)}-"
            f"{self._rng.randint(1002, 9998)}"
        )

    def _birthday(self) -> datetime.date:
        start = datetime.date(1951, 1, 1)
        return start + datetime.timedelta(days=self._rng.randrange(50 * 365))

    def _national_id(self) -> str:
        region = self._rng.choice(("110101", "310104", "440305", "510107"))
        first_17 = f"{region}{self._birthday():%Y%m%d}{self._rng.randint(1, 999):03d}"
        return first_17 + resident_id_digit(first_17)

    def _chinese_mobile(self) -> str:
        prefix = self._rng.choice(("138", "139", "150", "186", "177"))
        number = prefix + self._digits(8)
        if self._rng.random() < 0.3:
            return f"+86 {number[:3]} {number[3:7]} {number[7:]}"
        return number

    def _ip_address(self) -> str:
        if self._rng.random() < 0.25:
            return "2001:db8:" + ":".join(f"{self._rng.randint(4096, 65535):x}" for _ in range(6))
        network = self._rng.choice(("203.0.113", "198.51.100", "192.0.2"))
        return f"{network}.{self._rng.randint(1, 254)}"

    def _date_of_birth(self) -> str:
        day = self._birthday()
        month = MONTHS[day.month - 1]
        return self._rng.choice(
            (
                day.isoformat(),
                f"{month} {day.day}, {day.year}",
                f"{day.day} {month} {day.year}",
                f"{day.month:02d}/{day.day:02d}/{day.year}",
            )
        )

    def _secret(self) -> str:
        letters = string.ascii_letters + string.digits

        def run(count: int, alphabet: str = letters) -> str:
            return "".join(self._rng.choices(alphabet, k=count))

        return self._rng.choice(
            (
                "sk-proj-" + run(40),
                "ghp_" + run(36),
                "AKIA" + run(16, string.ascii_uppercase + "234567"),
                "xoxb-" + self._digits(12) + "-" + self._digits(12) + "-" + run(24),
            )
        )

    def _user_handle(self) -> str:
        words = "_".join(self._rng.sample(HANDLE_WORDS, 2))
        return f"{words}_{self._digits(4)}"

    def _street_address(self) -> str:
        return f"{self._rng.randint(101, 9899)} {self._rng.choice(STREETS)}"

    def _postal_code(self) -> str:
        # The long form: five digits alone would be found in any table by chance.
        return f"{self._rng.randint(10_000, 99_999)}-{self._rng.randint(1000, 9999)}"

    def _location(self) -> str:
        return self._rng.choice(TOWNS)

    def _person(self) -> str:
        return f"{self._rng.choice(GIVEN_NAMES)} {self._rng.choice(FAMILY_NAMES)}"
