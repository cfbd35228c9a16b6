"""The leak scanner finds what leaked in every disguise, and nothing else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.demo.conversations import generate
from infra.demo.draft import escape_some
from infra.demo.leaks import LeakScanner
from infra.demo.places import Found
from infra.demo.private_data import Kind, Planted


def planted(kind: Kind, value: str) -> Planted:
    return Planted(kind, value, "user_text")


MAIL = planted("EMAIL_ADDRESS", "oriel.hawtrey123@example.com")
PHONE = planted("PHONE_NUMBER", "(212) 555-0142")
PERSON = planted("PERSON", "Mia")
BIRTHDAY = planted("DATE_OF_BIRTH", "1990-04-05")
MOBILE = planted("PHONE_NUMBER", "13812345678")
SCANNER = LeakScanner([MAIL, PHONE, PERSON, BIRTHDAY, MOBILE])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("write to oriel.hawtrey123@example.com.", {MAIL}),
        ("ORIEL.Hawtrey123@Example.com", {MAIL}),
        ("call (212) 555-0142 now", {PHONE}),
        ("我的手机号是13812345678谢谢", {MOBILE}),
        ("born April 5, 1990, in Oxmere", {BIRTHDAY}),
        ("04\\/05\\/1990", {BIRTHDAY}),
        ("first line\\nMia said", {PERSON}),
        ("Miami is warm", set()),
        ("the mia of it", set()),
        ("138123456789", set()),
        ("x13812345678", set()),
        ("xoriel.hawtrey123@example.com", set()),
        ("1990-04-051", set()),
    ],
)
def test_values_are_found_by_word(text: str, found: set[Planted]) -> None:
    assert SCANNER.scan(text) == found


def test_escapes_of_any_depth_hide_nothing() -> None:
    text = f'{{"to": "{escape_some(MAIL.value)}"}}'
    for _ in range(4):
        assert SCANNER.scan(text) == {MAIL}
        text = json.dumps(text)


def test_length_bytes_of_binary_records_hide_nothing() -> None:
    text = (b"\x06xA" + MAIL.value.encode() + b"\x02").decode()
    assert SCANNER.scan(text) == set()
    assert SCANNER.scan(text, binary=True) == {MAIL}


@given(before=st.text(max_size=20), after=st.text(max_size=20))
def test_a_value_between_spaces_is_always_found(before: str, after: str) -> None:
    for item in (MAIL, PHONE, PERSON, MOBILE):
        assert item in SCANNER.scan(f"{before} {item.value} {after}")


def test_all_that_the_demo_plants_is_found_where_it_was_planted() -> None:
    for talk in generate(9, 12):
        found = LeakScanner(talk.planted).scan(json.dumps(talk.messages, ensure_ascii=False))
        assert {item.value for item in found} == {item.value for item in talk.planted}


def test_leaks_are_counted_by_value_and_kind() -> None:
    found = Found((MAIL, PHONE, PERSON))
    found.look("topic a", f"{MAIL.value} and Mia")
    found.look("log b", "Mia again")
    assert found.num_leaked == 2
    assert found.by_kind == {"EMAIL_ADDRESS": 1, "PERSON": 1}
    assert found.places[PERSON] == {"topic a", "log b"}
