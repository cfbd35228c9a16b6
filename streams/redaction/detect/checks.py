"""Checksums that tell real numbers from digits that only look like them."""

from datetime import date
from typing import Final

_IBAN_LENGTHS: Final = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22,
    "BR": 29, "BY": 28, "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28,
    "EE": 20, "EG": 29, "ES": 24, "FI": 18, "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23,
    "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IS": 26, "IT": 27,
    "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20, "LU": 20, "LV": 21,
    "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MR": 27, "MT": 31, "MU": 30, "NL": 18, "NO": 15,
    "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22, "SA": 24, "SE": 24,
    "SI": 19, "SK": 24, "SM": 27, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20,
}  # fmt: skip
_RESIDENT_ID_WEIGHTS: Final = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_RESIDENT_ID_CHECK: Final = "10X98765432"


def digits_of(text: str) -> str:
    """The ASCII digits of `text`, in order."""
    return "".join(character for character in text if "0" <= character <= "9")


def luhn(digits: str) -> bool:
    """Whether a string of digits passes the payment-card checksum."""
    total = 0
    for place, character in enumerate(reversed(digits)):
        value = int(character)
        if place % 2:
            value = value * 2 - 9 if value > 4 else value * 2
        total += value
    return total % 10 == 0


def payment_card(digits: str) -> bool:
    """12 to 19 digits of a card scheme; UnionPay debit cards are issued without the checksum."""
    if (digits[0] not in "23456" and not digits.startswith("1800")) or len(set(digits)) < 2:
        return False
    return luhn(digits) or (digits[:3] in {"621", "622", "623"} and len(digits) in {16, 19})


def iban_length(candidate: str) -> int:
    """Length of the IBAN at the start of `candidate` (no spaces, upper case); 0 if none."""
    length = _IBAN_LENGTHS.get(candidate[:2], 0)
    if not length or len(candidate) < length:
        return 0
    account = candidate[:length]
    rearranged = account[4:] + account[:4]
    number = int("".join(str(int(character, 36)) for character in rearranged))
    return length if number % 97 == 1 and account[2:4] not in {"00", "01", "99"} else 0


def social_security(digits: str) -> bool:
    """Whether nine digits can be an assigned US social security number."""
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    return area not in {"000", "666"} and area[0] != "9" and group != "00" and serial != "0000"


def resident_id(identifier: str) -> bool:
    """Whether 17 digits and a check character (digit or X) are a Chinese resident id."""
    if identifier[0] == "0" or not is_calendar_date(
        identifier[6:10], identifier[10:12], identifier[12:14]
    ):
        return False
    total = sum(int(d) * w for d, w in zip(identifier[:17], _RESIDENT_ID_WEIGHTS, strict=True))
    return _RESIDENT_ID_CHECK[total % 11] == identifier[17].upper()


def old_resident_id(digits: str) -> bool:
    """Whether 15 digits can be a Chinese id of the form used before 1999 (no checksum)."""
    return digits[0] in "123456" and is_calendar_date(
        "19" + digits[6:8], digits[8:10], digits[10:12]
    )


def is_calendar_date(year: str | int, month: str | int, day: str | int) -> bool:
    """Whether the three numbers name a day between 1900 and today's century."""
    try:
        return 1900 <= date(int(year), int(month), int(day)).year <= 2099
    except ValueError:
        return False
