"""Texts and documents through a redactor: only what is private changes, and always the same way."""

import json
import re
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import ConfigError, PermanentError, TransientError
from streams.redaction.detect.contract import Span
from streams.redaction.detect.literal import LiteralDetector
from streams.redaction.redactor import (
    DetectorUnavailable,
    DigestCache,
    Redaction,
    Redactor,
    build_redactor,
)

KEY = b"tenant key of sufficient length."
PLACEHOLDER = re.compile(r"<[A-Z_]+_[a-z]{13}>")


def redactor(key: bytes = KEY, cache: DigestCache | None = None) -> Redactor:
    return build_redactor(
        "regex", tenant_key=key, cache=DigestCache() if cache is None else cache, policy_version="1"
    )


REGEX = redactor()


def restored(text: str, redactions: Sequence[Redaction], original: str) -> str:
    """The redacted text with the originals put back, by the offsets alone."""
    shift = 0
    for item in redactions:
        start = item.start + shift
        assert text[start : start + len(item.placeholder)] == item.placeholder
        value = original[item.start : item.end]
        text = text[:start] + value + text[start + len(item.placeholder) :]
    return text


@given(
    st.lists(
        st.one_of(
            st.text(alphabet="ab ,.\n🙂好é\u200d<>_@", max_size=8),
            st.sampled_from(["alice@example.com", " 1990-04-05 ", "mia_li_3668", "Hi Mia,", "{}"]),
        ),
        max_size=8,
    )
)
def test_nothing_outside_the_spans_changes(pieces: list[str]) -> None:
    original = "".join(pieces)
    once = REGEX.text(original)
    assert restored(once.text, once.redactions, original) == original
    assert REGEX.text(once.text).text == once.text


def test_three_neighbours_are_three_placeholders() -> None:
    once = REGEX.text("a@example.com b@example.com a@example.com")
    first, second, third = once.text.split(" ")
    assert first == third != second
    assert all(PLACEHOLDER.fullmatch(word) for word in (first, second))


def test_offsets_count_code_points() -> None:
    (item,) = REGEX.text("🙂好 alice@example.com").redactions
    assert (item.path, item.kind, item.start, item.end) == ("", "EMAIL_ADDRESS", 3, 20)


def test_placeholders_belong_to_one_tenant_and_repeat_elsewhere() -> None:
    text = "write alice@example.com"
    assert redactor().text(text) == REGEX.text(text)
    assert redactor(b"another tenant's key, as long...").text(text) != REGEX.text(text)


def test_spellings_of_one_value_share_a_placeholder() -> None:
    written = ["1990-04-05", "April 5, 1990", "04/05/1990", "5 Apr 1990"]
    assert len({REGEX.text(f"born {date}").text for date in written}) == 1


def test_a_forged_placeholder_hides_nothing() -> None:
    forged = "<EMAIL_ADDRESS_aliceexamplecom> Dear Sofia <x"
    assert "Sofia" not in REGEX.text(forged).text


def test_arguments_keep_their_form() -> None:
    arguments = '{ "to":"alice@example.com",\t"n": 1e3, "cc": ["bob@example.com" , "x"]}'
    out = REGEX.json({"function": {"name": "send_mail", "arguments": arguments}})
    redacted: Any = out.value
    inner = redacted["function"]["arguments"]
    assert restored(inner, out.redactions, arguments) == arguments
    parsed = json.loads(inner)
    assert PLACEHOLDER.fullmatch(parsed["to"])
    assert PLACEHOLDER.fullmatch(parsed["cc"][0])
    assert redacted["function"]["name"] == "send_mail"
    assert {item.path for item in out.redactions} == {"/function/arguments"}


@pytest.mark.parametrize(
    "arguments",
    [
        r'{"to":"\u0061lice@example.com"}',
        r'{"to":"alice\u0040example.com"}',
        r'{"note":"first\nalice@example.com\tsecond \ud83d\ude42"}',
        json.dumps({"body": json.dumps({"to": "alice@example.com", "note": 'a "b" \\'})}),
        r'{"to":"alice\u0040example.com", "cut": "of',
    ],
)
def test_escapes_hide_nothing(arguments: str) -> None:
    out = REGEX.json([arguments])
    (item,) = out.redactions
    assert isinstance(out.value, list)
    assert out.value[0] == arguments[: item.start] + item.placeholder + arguments[item.end :]
    assert json.loads(f'"{arguments[item.start : item.end]}"') == "alice@example.com"
    plain = REGEX.text("alice@example.com")
    assert item.placeholder == plain.text


def test_text_nested_too_deep_to_read_is_replaced_whole() -> None:
    text = json.dumps({"to": "alice@example.com"})
    for _ in range(9):
        text = json.dumps([text])
    out = REGEX.json(text)
    assert isinstance(out.value, str)
    assert "alice" not in out.value
    json.loads(out.value)


def test_keys_that_are_private_are_replaced_and_others_stay() -> None:
    out = REGEX.json({"alice@example.com": {"Mia Li": 1, "first_name": "Mia", "n": 1723645123456}})
    assert isinstance(out.value, dict)
    ((key, members),) = out.value.items()
    assert PLACEHOLDER.fullmatch(key)
    assert isinstance(members, dict)
    assert list(members) == ["Mia Li", "first_name", "n"]
    assert members["n"] == 1723645123456
    assert [item.path for item in out.redactions] == [f"/{key}#", f"/{key}/first_name"]


def test_names_of_a_document_are_found_in_its_other_texts() -> None:
    profile: Any = {"role": "tool", "content": '{"first_name": "Yara", "user_id": "yara_ito_8499"}'}
    reply: Any = {
        "role": "assistant",
        "content": "The seats are booked, as Yara wished. Ito-san too.",
    }
    alone = REGEX.json([reply])
    assert alone.redactions == ()
    for out in (REGEX.json([profile, reply]), REGEX.json([reply], background=[profile])):
        text = json.dumps(out.value)
        assert "Yara" not in text
        assert "Ito" not in text


def test_identifiers() -> None:
    for plain in ("call_oIHazX6yQrB8hUwl4cRilFKj", "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "u-17"):
        assert REGEX.identifier(plain) == plain
    private = REGEX.identifier("alice@example.com")
    assert private == redactor().identifier("alice@example.com")
    assert private != REGEX.identifier("bob@example.com")
    assert "alice" not in private
    assert REGEX.identifier(private) == private


def test_protocol_fields_stay_and_payloads_do_not_hide_behind_them() -> None:
    sealed = "EqQBCgIYAhIM4111111111111111alice" * 3
    message: Any = {
        "role": "assistant",
        "model": "claude-3-5-sonnet-20241022",
        "content": [
            {"type": "thinking", "thinking": "ask bob@example.com", "signature": sealed},
            {"type": "redacted_thinking", "data": sealed},
            {"type": "tool_use", "id": "toolu_01A", "name": "WebFetch", "input": {"url": "x"}},
        ],
    }
    out = REGEX.json(message)
    assert [item.path for item in out.redactions] == ["/content/0/thinking"]
    payload: Any = {
        "type": "tool_use",
        "name": "f",
        "input": {"type": "tool", "name": "Sofia Rossi"},
    }
    assert "Sofia" not in json.dumps(REGEX.json(payload).value)
    assert "alice" not in json.dumps(REGEX.json({"signature": "alice@example.com"}).value)


def test_lone_surrogates_pass() -> None:
    out = REGEX.json({"a": "\ud83d alice@example.com", "b": r'{"c":"\ud83d bob@example.com"}'})
    assert len(out.redactions) == 2


def test_a_document_nested_without_end_is_refused() -> None:
    document: Any = "x"
    for _ in range(300):
        document = [document]
    with pytest.raises(PermanentError, match="oversized"):
        REGEX.json(document)


class FailingDetector:
    version = "failing"

    def detect(self, text: str, *, context: str | None = None) -> Sequence[Span]:
        raise DetectorUnavailable(f"no answer for {len(text)} characters under {context}")


def test_fails_closed() -> None:
    failing = Redactor(
        detector=FailingDetector(), tenant_key=KEY, cache=DigestCache(), policy_version="1"
    )
    for attempt in (failing.text, failing.identifier, lambda text: failing.json([text])):
        with pytest.raises(TransientError):
            attempt("anything")


def test_history_sent_again_is_not_looked_at_again() -> None:
    cache = DigestCache()
    cached = redactor(cache=cache)
    history: Any = [
        {"role": "user", "content": f"turn {n}: mail alice{n}@example.com"} for n in range(9)
    ]
    first = cached.json(history)
    misses = cache.counters.num_misses
    assert cached.json(history) == first
    assert cache.counters.num_misses == misses
    assert cache.counters.num_hits > 0


def test_a_text_seen_before_is_redacted_as_the_names_around_it_say() -> None:
    """What is remembered of a text is remembered for the names that were known then."""
    cache = DigestCache()
    text = "Thank you, see the offer Paloma made."
    for _ in range(2):
        alone = redactor(cache=cache).json([text])
        named = redactor(cache=cache).json([text], background=[{"first_name": "Paloma"}])
        assert alone.redactions == ()
        assert [item.kind for item in named.redactions] == ["PERSON"]
    assert redactor(cache=cache).json({"Paloma": text}) == redactor().json({"Paloma": text})


def test_what_decides_the_findings_decides_the_digest() -> None:
    cache = DigestCache()
    finds = Redactor(
        detector=LiteralDetector({"secretword": "SECRET"}),
        tenant_key=KEY, cache=cache, policy_version="1",
    )  # fmt: skip
    blind = Redactor(detector=LiteralDetector({}), tenant_key=KEY, cache=cache, policy_version="1")
    assert blind.text("a secretword b").redactions == ()
    assert len(finds.text("a secretword b").redactions) == 1
    assert len(REGEX.json({"first_name": "mia"}).redactions) == 1
    assert REGEX.json({"colour": "mia"}).redactions == ()


@given(st.uuids(), st.binary(min_size=16, max_size=16))
def test_detectors_find_nothing_in_ids_that_are_not_looked_at(uuid: UUID, digest: bytes) -> None:
    for value in (str(uuid), digest.hex()):
        if not value.isdigit():
            assert REGEX.identifier(value) == value
            assert REGEX.text(value).redactions == ()


def test_names_of_several_documents_at_once() -> None:
    documents: list[Any] = [{"first_name": "Paloma"}, {"last_name": "Okafor"}, {"size": "Large"}]
    names = REGEX.names_in(documents)
    assert names == {"paloma", "okafor"}
    text = "Ask Paloma or Okafor for a Large one."
    assert REGEX.json([text], names=names) == REGEX.json([text], background=documents)
    assert len(REGEX.json([text], names=names).redactions) == 2


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="16 bytes"):
        redactor(b"short")
    with pytest.raises(ConfigError, match="'regex', 'fast' or 'accurate'"):
        build_redactor(
            "magic",  # type: ignore[arg-type]
            tenant_key=KEY, cache=DigestCache(), policy_version="1",
        )  # fmt: skip


@settings(deadline=None, max_examples=30)
@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=6)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_a_document_without_private_data_is_the_same(document: Any) -> None:
    out = Redactor(
        detector=LiteralDetector({}), tenant_key=KEY, cache=DigestCache(), policy_version="1"
    ).json(document)
    assert out.value == document
    assert out.redactions == ()


@pytest.mark.parametrize("value", ["mia_li_3668", "jane.roe@example.com"])
def test_a_private_id_has_the_same_letters_in_fields_and_in_texts(value: str) -> None:
    redactor = build_redactor(
        "regex", tenant_key=b"0123456789abcdef", cache=DigestCache(), policy_version="1"
    )
    field = redactor.identifier(value)
    assert redactor.text(f"from {value} today").text == f"from <{field}> today"
    assert redactor.json({"user_id": value}).value == {"user_id": f"<{field}>"}
    assert redactor.identifier(field) == field
    assert not any(part in field for part in ("mia", "jane", "example"))
    embedded = redactor.identifier(f"session:{value}")
    assert embedded.startswith("anon-")
    assert redactor.identifier(embedded) == embedded
