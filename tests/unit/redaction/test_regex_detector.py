"""What the regex tier finds and what it leaves."""

import time

import pytest

from streams.redaction.detect.phones import _is_place
from streams.redaction.detect.regex import RegexDetector
from streams.redaction.spans import resolve

DETECTOR = RegexDetector()


def found(text: str, context: str | None = None) -> list[tuple[str, str]]:
    spans = resolve(DETECTOR.detect(text, context=context), text)
    return [(span.kind, text[span.start : span.end]) for span in spans]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mail alice@example.com, please", [("EMAIL_ADDRESS", "alice@example.com")]),
        ("?email=alice%40example.com&x=1", [("EMAIL_ADDRESS", "alice%40example.com")]),
        ("张三@example.com", [("EMAIL_ADDRESS", "张三@example.com")]),
        ("邮箱zhang@example.com。", [("EMAIL_ADDRESS", "zhang@example.com")]),
        ("Call (555) 123-4567 now", [("PHONE_NUMBER", "(555) 123-4567")]),
        ("ring +49 30 98765432 or not", [("PHONE_NUMBER", "+49 30 98765432")]),
        ("手机号13812345678", [("PHONE_NUMBER", "13812345678")]),
        ("138-1234-5678", [("PHONE_NUMBER", "138-1234-5678")]),
        ("Card 4111-1111-1111-1111.", [("CREDIT_CARD", "4111-1111-1111-1111")]),
        ("amex 3400 000000 00009", [("CREDIT_CARD", "3400 000000 00009")]),
        ("IBAN DE89 3704 0044 0532 0130 00 ok", [("IBAN_CODE", "DE89 3704 0044 0532 0130 00")]),
        ("SSN 123456789", [("US_SSN", "123456789")]),
        ("his 123-45-6789 is", [("US_SSN", "123-45-6789")]),
        ("身份证110101199003074610", [("NATIONAL_ID", "110101199003074610")]),
        ("from 203.0.113.9:443", [("IP_ADDRESS", "203.0.113.9")]),
        ("host 2001:db8::1f up", [("IP_ADDRESS", "2001:db8::1f")]),
        ("born 1990-04-05", [("DATE_OF_BIRTH", "1990-04-05")]),
        ("on 04/05/1990.", [("DATE_OF_BIRTH", "04/05/1990")]),
        ("April 5, 1990)", [("DATE_OF_BIRTH", "April 5, 1990")]),
        ("5th of April 1990", [("DATE_OF_BIRTH", "5th of April 1990")]),
        ("1990年4月5日", [("DATE_OF_BIRTH", "1990年4月5日")]),
        ("DOB: 2016-02-29", [("DATE_OF_BIRTH", "2016-02-29")]),
        ("date of birth is 4/5/90", [("DATE_OF_BIRTH", "4/5/90")]),
        ("id mia_li_3668.", [("USER_HANDLE", "mia_li_3668")]),
        ("at 975 Sunset Drive, Suite 217", [("STREET_ADDRESS", "975 Sunset Drive, Suite 217")]),
        ("at 29 Marsh Court. The card", [("STREET_ADDRESS", "29 Marsh Court.")]),
        ("(44 Orchard Place)", [("STREET_ADDRESS", "44 Orchard Place")]),
        ("Austin, TX 78750", [("POSTAL_CODE", "78750")]),
        ("Friedrichstraße 123", [("STREET_ADDRESS", "Friedrichstraße 123")]),
        ("My name is Sofia Rossi and", [("PERSON", "Sofia Rossi")]),
        ("Thank you, Mia. Could", [("PERSON", "Mia")]),
        ("Name: Raj Patel", [("PERSON", "Raj Patel")]),
        ("postgres://app:s3cretpw@db/x", [("SECRET", "app:s3cretpw")]),
        ("password: hunter22", [("SECRET", "hunter22")]),
        (
            "Authorization: Bearer abc123def456ghi789",
            [("SECRET", "abc123def456ghi789")],
        ),
        ("k AKIAIOSFODNN7EXAMPLE", [("SECRET", "AKIAIOSFODNN7EXAMPLE")]),
    ],
)
def test_finds(text: str, expected: list[tuple[str, str]]) -> None:
    assert found(text) == expected


@pytest.mark.parametrize(
    ("context", "text", "kind"),
    [
        ("name.first_name", "mia", "PERSON"),
        ("passengers.last_name", "O'Connor", "PERSON"),
        ("dob", "2015-01-02", "DATE_OF_BIRTH"),
        ("address.address1", "Postfach 12", "STREET_ADDRESS"),
        ("address.zip", "78750", "POSTAL_CODE"),
        ("contact.phone", "5551234567", "PHONE_NUMBER"),
        ("db.password", "hunter22", "SECRET"),
    ],
)
def test_keys_decide(context: str, text: str, kind: str) -> None:
    assert found(text, context) == [(kind, text)]


@pytest.mark.parametrize(
    "text",
    [
        "flight on 2024-05-20, back 05/24/2024",
        "2011-03-04 15:22:01 INFO started",
        "credit_card_4421486 certificate_7504069 gift_card_5094",
        "deploy C4 to S3 as v1 or v1.2.3.4",
        "epoch 1723645123 and 1723645123000",
        "send(email) and getUser(name)",
        "gpt-4o-2024-08-06 claude-3-5-sonnet-20241022 text-embedding-3-small",
        "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "call_oIHazX6yQrB8hUwl4cRilFKj chatcmpl-9aXkT41111111111111",
        "4111-1111-1111-1112 and 000-12-3456 and 666-12-3456",
        "def test_case_1234(max_tokens_4096, utf_8): std::vec::Vec 22:00:00+1",
        "127.0.0.1:8080 0.0.0.0 ::1",
        "password is required; password: <your password>; token: ${TOKEN}",
        "HAT136 JFK SEA 06:00:00 economy 121",
        "DE00370400440532013000",
    ],
)
def test_leaves(text: str) -> None:
    assert found(text) == []


def test_base64_is_not_read() -> None:
    image = "iVBORw0KGgo4111111111111111AAAANSUhEUgAA9ssn" * 2500
    assert found(f"data:image/png;base64,{image}") == []
    assert found(f"see {image} or bob@example.com") == [("EMAIL_ADDRESS", "bob@example.com")]


@pytest.mark.parametrize(
    "text",
    [
        "Please call me on 612 345 678 tomorrow.", "They left a message from 668 5702.",
        "my number is 412 34 567, thanks", "You can reach her at 51 123 45 67.",
        "Ring (20) 123-456 in the evening", "01.23.45.67.89", "Jane Roe\n28 64 66 98\nBergen",
    ],
)  # fmt: skip
def test_phones_in_groups_that_words_or_lines_tell(text: str) -> None:
    found = [
        text[s.start : s.end] for s in RegexDetector().detect(text) if s.kind == "PHONE_NUMBER"
    ]
    digits = "".join(letter for letter in text if letter.isdigit())
    assert any("".join(filter(str.isdigit, each)) == digits for each in found)


@pytest.mark.parametrize(
    "text",
    [
        "we sold 612 345 678 items", "order number 612 345 678", "call it at 2024-01-05 10:22",
        "message 12 345 678 rows", "version number 10.20.30.40 of it", "numbers 10 20 30 follow",
        "a,b\n2023-01-01\n1 2", "It took 12.3456 of the number",
    ],
)  # fmt: skip
def test_groups_of_digits_that_are_no_phone(text: str) -> None:
    assert [s for s in RegexDetector().detect(text) if s.kind == "PHONE_NUMBER"] == []


def test_whether_digits_are_a_phone_costs_no_more_in_a_long_line() -> None:
    def seconds_for(num_before: int) -> float:
        text = "y" * num_before + " 12 34 56 78"
        tries = []
        for _ in range(3):
            began = time.process_time()
            for _ in range(100):
                assert not _is_place(text, num_before + 1, len(text))
            tries.append(time.process_time() - began)
        return min(tries)

    assert seconds_for(16_000_000) < 20 * seconds_for(1_000)
