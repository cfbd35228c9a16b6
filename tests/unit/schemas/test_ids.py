"""Ids: minted in order of time, derived from content alone, scoped by tenant."""

import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import derive_id, is_safe_id, keyed_digest, opening_key, trajectory_key, uuid7

_parts = st.lists(st.one_of(st.text(max_size=4), st.integers(), st.booleans(), st.none()))


def test_a_uuid7_has_its_version_its_variant_and_its_time() -> None:
    before_ms = time.time_ns() // 1_000_000
    value = uuid.UUID(uuid7())
    after_ms = time.time_ns() // 1_000_000
    assert value.version == 7
    assert value.variant == uuid.RFC_4122
    assert before_ms <= value.int >> 80 <= after_ms


def test_uuid7s_of_later_milliseconds_sort_later_and_none_comes_twice() -> None:
    values = [uuid7() for _ in range(5_000)]
    assert len(set(values)) == len(values)
    times = [value[:13] for value in values]
    assert times == sorted(times)


def test_derived_ids_never_change() -> None:
    """These values are stored by users; a change here makes every replay a set of new rows."""
    assert derive_id("reward", "acme", "f1", 1) == "e85a2f8469dda04be2e653509d28d5e7"
    assert keyed_digest(b"k" * 32, "a", b"b") == "2e848ae44bea03a18ab7052390fedf6d"


@given(_parts, _parts)
def test_derived_ids_are_equal_only_for_equal_parts(one: list[object], other: list[object]) -> None:
    same = [(type(p), p) for p in one] == [(type(p), p) for p in other]
    assert (derive_id("k", *one) == derive_id("k", *other)) is same  # type: ignore[arg-type]


def test_where_one_part_ends_and_the_next_begins_matters() -> None:
    assert derive_id("k", "ab", "c") != derive_id("k", "a", "bc")
    assert derive_id("k", "ab") != derive_id("k", "a", "b")
    assert derive_id("ka", "b") != derive_id("k", "ab")
    assert derive_id("k", 1) != derive_id("k", "1") != derive_id("k", True)
    assert derive_id("k", None) != derive_id("k") != derive_id("k", "")
    assert keyed_digest(b"k", "ab", "c") != keyed_digest(b"k", "a", "bc")
    assert keyed_digest(b"k", "a") != keyed_digest(b"j", "a")


def test_text_without_utf8_has_an_id_too() -> None:
    assert derive_id("k", "\ud83d") != derive_id("k", "\ufffd")
    assert keyed_digest(b"k", "\ud83d") != keyed_digest(b"k", "?")


@pytest.mark.parametrize("value", ["", "a" * 201, "a b", "a/b", "a\n", "ä", "~a", "a\x00", "%41"])
def test_what_needs_an_escape_is_not_safe(value: str) -> None:
    assert not is_safe_id(value)


@pytest.mark.parametrize(
    "value",
    ["a", "a" * 200, pytest.param(uuid7(), id="uuid7"), "chatcmpl-9.x", "user@host:1+2=3"],
)
def test_what_clients_use_as_ids_is_safe(value: str) -> None:
    assert is_safe_id(value)


def test_a_named_trajectory_never_shares_a_key_with_an_opening() -> None:
    assert not is_safe_id("~x")
    assert trajectory_key("acme", "x") != opening_key("acme", "x")
    assert trajectory_key("acme", "x") != trajectory_key("other", "x")
