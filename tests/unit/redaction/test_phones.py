"""Phone numbers of every country as libraries of numbering plans write them, and as people do."""

# ruff: noqa: RUF001 - full-width digits are part of a case

import phonenumbers
import pytest

from streams.redaction.detect.checks import digits_of
from streams.redaction.detect.regex import RegexDetector

DETECTOR = RegexDetector()
FORMS = (
    phonenumbers.PhoneNumberFormat.NATIONAL,
    phonenumbers.PhoneNumberFormat.INTERNATIONAL,
    phonenumbers.PhoneNumberFormat.E164,
)
KINDS = (phonenumbers.PhoneNumberType.FIXED_LINE, phonenumbers.PhoneNumberType.MOBILE)


def is_gone(text: str, number: str) -> bool:
    start = text.index(number)
    covered = {i for span in DETECTOR.detect(text) for i in range(span.start, span.end)}
    digits = {i for i in range(start, start + len(number)) if text[i].isdigit()}
    return digits <= covered


def written(forms: tuple[int, ...]) -> set[str]:
    """Example numbers of all regions."""
    found = set()
    for region in sorted(phonenumbers.SUPPORTED_REGIONS):
        for kind in KINDS:
            example = phonenumbers.example_number_for_type(region, kind)
            if example is not None:
                found |= {phonenumbers.format_number(example, form) for form in forms}
    return found


def test_a_number_with_its_country_is_found_without_a_word_beside_it() -> None:
    numbers = written(FORMS[1:])
    left = [each for each in numbers if not is_gone(f"Here it is, {each}, thanks", each)]
    assert len(numbers) > 600
    # Seven digits with the country's three: islands, which may be anything.
    assert [each for each in left if len(digits_of(each)) > 8] == []


def test_a_national_number_is_found_behind_a_word_for_phones() -> None:
    numbers = {each for each in written(FORMS[:1]) if len(digits_of(each)) > 6}
    left = [each for each in numbers if not is_gone(f"Please call me at {each} today", each)]
    assert len(numbers) > 300
    assert left == []


@pytest.mark.parametrize(
    "number",
    [
        "(03) 5312 5678", "0664 123 45 67", "0471 85 11 53", "(11) 2345-6789", "601 234 567",
        "28-64-66-98", "712 3456", "01.23.45.67.89", "(88) 345-678", "0312 3456789", "412 34 567",
        "(021) 1234-567", "031-123-456", "0221 / 12 34 56", "089/1234567", "(01632) 960 788",
        "139-441-1771x5162", "(345).323-1234", "00 43 664 123456", "+49 (0)30 901820",
        "98765 43210", "415.555.0132 ext. 12", "415 dot 555 dot 0132", "＋４９ ３０ ９０１８２０",
    ],
)  # fmt: skip
def test_a_national_number_in_a_sentence(number: str) -> None:
    assert is_gone(f"Yes, that is {number}.", number)


@pytest.mark.parametrize(
    "text",
    [
        "four one five, five five five, zero one three two", "my cell: 4 1 5 5 5 5 0 1 3 2",
        "My new number is 57123456.", "321 2345-Office\\,3660170548-Fax", "text it to 5559876543",
    ],
)  # fmt: skip
def test_spelt_alone_or_with_the_word_behind(text: str) -> None:
    spans = DETECTOR.detect(text)
    covered = {
        i for span in spans if span.kind == "PHONE_NUMBER" for i in range(span.start, span.end)
    }
    assert not any(c.isdigit() for i, c in enumerate(text) if i not in covered)
    assert spans


@pytest.mark.parametrize(
    "text",
    [
        "one, two, three, four, five, six, seven, eight", "In 2023 2024 was planned.",
        "pages 412-3456 and lines 200 3000", "12 345 678 rows in 123 456 789 bytes",
        "order number 612 345 678", "1723645123 and 9223372036 are numbers",
        "from 2024-05-20 to 20-05-2024", "revenue of 123 456 789 and 912 345 678 EUR",
        "0.123-456", "v1.234-5678", "(200) 300", "range(100) 2000, 3000",
    ],
)  # fmt: skip
def test_what_only_looks_like_one(text: str) -> None:
    assert [text[s.start : s.end] for s in DETECTOR.detect(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "T: @", "(m) @", "Home: @", "P. @", "Switchboard: @", "You have reached @.", "Hotline @",
        "I keep getting messages from @", "The code was sent to @ today", "@ keeps calling me",
        "This is @ speaking.", "@ is my number.", "@, ask for Jane", "jane@example.com / @",
        "@ or jane@example.com", "Mobile: @", "My registered number is @", "Reception: @",
    ],
)  # fmt: skip
@pytest.mark.parametrize("number", ["612 345 678", "30/166 1318", "32 2601-8159", "03-1660-1361"])
def test_what_stands_beside_a_number_in_groups_says_what_it_is(text: str, number: str) -> None:
    at = text.replace("jane@", "jane\0").index("@")
    assert is_gone(text[:at] + number + text[at + 1 :], number)


@pytest.mark.parametrize(
    "text",
    [
        "Copyright (c) 2006-2008, the authors", "sent to 12 345 678 people", "from: 2024-05-20",
        "to: 12.5 and 13.5", "see https://pubs.example/009695399/basedefs", "total: 1 234 567 rows",
        "support: 3.1415926", "number: 1.0000001", "text him on day 20240520",
    ],
)  # fmt: skip
def test_what_only_looks_labelled(text: str) -> None:
    assert [s for s in DETECTOR.detect(text) if s.kind == "PHONE_NUMBER"] == []
