"""Private values in other writings: coded, with invisible marks, in letters that look alike."""

# ruff: noqa: E501, RUF001 - writings stand in one line each; letters that look alike are the point

import base64
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from streams.redaction.redactor import DigestCache, build_redactor

REDACTOR = build_redactor(
    "fast", tenant_key=b"0123456789abcdef", cache=DigestCache(), policy_version="1"
)
VALUES = {
    "EMAIL_ADDRESS": "jane.roe77@mail.example.com", "PHONE_NUMBER": "+1-415-555-0132",
    "CREDIT_CARD": "4111 1111 1111 1111", "US_SSN": "219-09-9999",
    "IBAN_CODE": "DE89 3704 0044 0532 0130 00", "DATE_OF_BIRTH": "1981-04-05",
    "SECRET": "sk-proj-Abcdefghijklmnopqrstuvwx1234567890", "NATIONAL_ID": "11010519491231002X",
    "USER_HANDLE": "mia_li_3668", "IP_ADDRESS": "203.0.113.77", "STREET_ADDRESS": "12 Elm Street",
}  # fmt: skip


def each_letter(form: str) -> Callable[[str], str]:
    return lambda value: "".join(form.format(ord(letter)) for letter in value)


def in_base64(value: str) -> str:
    return base64.b64encode(f"The customer is {value} as noted.".encode()).decode()


WRITINGS: dict[str, Callable[[str], str]] = {
    "percent": lambda value: quote(value, safe=""),
    "percent twice": lambda value: quote(quote(value, safe=""), safe=""),
    "percent, every letter": each_letter("%{:02X}"),
    "entities": lambda value: "".join(c if c.isalnum() else f"&#{ord(c)};" for c in value),
    "entities, every letter": each_letter("&#x{:x};"),
    "JSON escapes": each_letter("\\u{:04x}"),
    "JSON escapes twice": each_letter("\\\\u{:04x}"),
    "hexadecimal escapes": each_letter("\\x{:02x}"),
    "braced escapes": each_letter("\\u{{{:x}}}"),
    "Markdown escapes": lambda value: "".join(f"\\{c}" if c in "_.@-" else c for c in value),
    "zero width between letters": "\u200b".join,
    "a soft hyphen": lambda value: value[:4] + "\u00ad" + value[4:],
    "Cyrillic letters": lambda value: value.replace("a", "а").replace("e", "е"),
    "full width": lambda value: "".join(chr(ord(c) + 0xFEE0) if c != " " else c for c in value),
    "blanks and hyphens of typesetters": lambda value: value.replace(" ", "\u00a0").replace("-", "\u2011"),
    "en dashes": lambda value: value.replace("-", "–"),
    "letters of formulas": lambda value: "".join(
        chr(0x1D41A + ord(c) - 97) if "a" <= c <= "z" else chr(0x1D7CE + ord(c) - 48) if c.isdigit() else c
        for c in value
    ),
    "base64": in_base64,
    "base64 alone": lambda value: base64.b64encode(value.encode()).decode(),
    "base64 of a long text": lambda value: base64.b64encode((f"Noted: {value}. " * 9).encode()).decode(),
    "base64 for addresses": lambda value: base64.urlsafe_b64encode(f"who?>~ {value} ok".encode()).decode(),
    "a data URI of text": lambda value: "data:text/plain;base64," + in_base64(value),
    "hexadecimal": lambda value: f"customer {value} ok".encode().hex(),
}  # fmt: skip


def left_of(text: str) -> str:
    """What redaction leaves of a text."""
    out = REDACTOR.text(text)
    assert REDACTOR.text(out.text).text == out.text, "a second redaction changes"
    kept = list(text)
    for item in out.redactions:
        kept[item.start : item.end] = [""] * (item.end - item.start)
    return "".join(kept)


@pytest.mark.parametrize("writing", WRITINGS)
def test_each_kind_in_each_writing(writing: str) -> None:
    left = {}
    for kind, value in VALUES.items():
        written = WRITINGS[writing](value)
        if left_of(f"For the record: {written} and no more.") not in (
            "For the record:  and no more.", "For the record: data:text/plain;base64, and no more.",
        ):  # fmt: skip
            left[kind] = written
    assert left == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("to \ufeffjane.roe@example.com\u200b now", "to \ufeff\u200b now"),
        ("a=%20jane.roe%40example.com%20&b=1", "a=%20%20&b=1"),
        ("&lt;jane.roe&#64;example.com&gt;", "&lt;&gt;"),
        ("jane (at) example [dot] com, please", ", please"),
        ("write to jane dot roe at example dot com today", "write to  today"),
        ("jane.roe @ example.com", ""),
        ("mia\\_li\\_3668 has \\*one\\* bag", " has \\*one\\* bag"),
    ],
)
def test_exact_extent(text: str, expected: str) -> None:
    assert left_of(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "100% of 20%20 are R&D; AT&T said &nbsp; and C:\\new\\x41\\temp, \\d+\\.\\d+ and %zz",
        "\u200b\u200b", "emoji 👩\u200d👩\u200d👧 and e\u0301te\u0301", "%E5%BC%A0 %FF%FE",
        "meet me at the dot com bubble talk", "&unknown; &#9999999; \\u{ffffff}",
        "aGVsbG8gd29ybGQsIHRoaXMgaXMgYSB0ZXN0 is hello world",
    ],
)  # fmt: skip
def test_what_is_coded_and_not_private_stays(text: str) -> None:
    assert REDACTOR.text(text).text == text


def test_a_coded_value_has_the_placeholder_of_the_plain_one() -> None:
    plain = REDACTOR.text("jane.roe@example.com").text
    for coded in ("jane.roe%40example.com", "ja\u200bne.roe@example.com", "jаne.roe@example.com"):
        assert REDACTOR.text(coded).text == plain


def test_numbers_that_are_private_become_texts_and_others_stay_numbers() -> None:
    document: Any = {
        "phone": 4155550132, "paid_with": 4111111111111111, "dob": 19810405, "to": 5551234567,
        "created": 1723645123, "created_ms": 1723645123456, "ids": [123456789, 987654321012],
        "small": 12, "huge": 10**40, "yes": True, "share": 0.4155550132,
    }  # fmt: skip
    plain: Any = REDACTOR.json(document).value
    inside: Any = REDACTOR.json({"arguments": json.dumps({"a": [document]})}).value
    for found in (plain, json.loads(inside["arguments"])["a"][0]):
        changed = {key for key in document if found[key] != document[key]}
        assert changed == {"phone", "paid_with", "dob", "to"}
        assert all(isinstance(found[key], str) for key in changed)
        assert json.dumps(found).count("_") >= len(changed)


def test_a_key_in_another_writing() -> None:
    redacted: Any = REDACTOR.json({"jane.roe%40example.com ok": 1}).value
    (key,) = redacted
    assert "jane" not in key
    assert key.endswith(" ok")


@pytest.mark.parametrize(
    "document",
    [
        {"type": "thinking", "thinking": "", "signature": "mia_li_3668"},
        {"type": "thinking", "thinking": "", "signature": "4111111111111111"},
        {"type": "redacted_thinking", "data": "4111111111111111"},
        {"type": "function", "function": {"name": "mia_li_3668", "parameters": {}}},
        {"type": "tool_use", "name": "call_4155550132", "input": {}},
        {"role": "tool", "name": "card.4111111111111111", "content": "ok"},
    ],
)
def test_protocol_fields_that_hold_private_data_are_no_protocol(document: Any) -> None:
    out = json.dumps(REDACTOR.json(document).value)
    assert not any(each in out for each in ("mia_li", "4111111111111111", "4155550132"))
