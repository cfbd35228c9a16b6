"""Faults that were reported of other redactors, one test each. None of them may be ours."""

# ruff: noqa: E501, RUF001 - cases stand in one line each; full-width punctuation is part of them

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.redaction.detect.contract import DetectorUnavailable
from streams.redaction.redactor import DigestCache, Redactor, build_detector, build_redactor

KEY = b"0123456789abcdef"
PLACEHOLDER = re.compile(r"<[A-Z_]+_[a-z]{13}>")
PNG = "data:image/png;base64," + "iVBORw0KGgo4111111111111111AAANSUhEUg" * 3000


@pytest.fixture(scope="module")
def fast() -> Redactor:
    return build_redactor("fast", tenant_key=KEY, cache=DigestCache(), policy_version="1")


def test_two_people_have_two_placeholders_in_all_messages(fast: Redactor) -> None:
    messages: Any = [
        {"role": "user", "content": "I am Alice Kowalski and he is Bob Haddad."},
        {"role": "assistant", "content": "Bob Haddad and Alice Kowalski, welcome."},
    ]
    redacted: Any = fast.json(messages).value
    first, second = (PLACEHOLDER.findall(each["content"]) for each in redacted)
    assert len(set(first)) == 2
    assert second == first[::-1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mail alice@example.com, please", "mail <>, please"),
        ("see https://example.com/?u=alice@example.com&x=1 now", "see https://example.com/?u=<>&x=1 now"),
        ("Erik Andersson's seat and Erik Andersson.", "<>'s seat and <>."),
        ("a@example.com b@example.com c@example.com", "<> <> <>"),
        ("(alice@example.com)<bob@example.com>", "(<>)<<>>"),
        ("🙂👩‍👩‍👧 客户alice@example.com", "🙂👩‍👩‍👧 客户<>"),
        ("e\u0301 \U0001f600 +1 415 555 0132!", "e\u0301 \U0001f600 <>!"),
        ("Zahlung 4111 1111 1111 1111; Rest bleibt.", "Zahlung <>; Rest bleibt."),
        ("卡号４１１１１１１１１１１１１１１１。", "卡号<>。"),
    ],
)  # fmt: skip
def test_exact_extent_and_nothing_else(fast: Redactor, text: str, expected: str) -> None:
    assert PLACEHOLDER.sub("<>", fast.text(text).text) == expected


@pytest.mark.parametrize(
    "place",
    [
        lambda value: {"tool_calls": [{"function": {"name": "f", "arguments": json.dumps({"to": value})}}]},
        lambda value: {"content": [{"type": "tool_use", "name": "f", "id": "toolu_1", "input": {"to": [value]}}]},
        lambda value: {"content": [{"type": "tool_result", "tool_use_id": "toolu_1",
                                    "content": [{"type": "text", "text": f"to: {value}"}]}]},
        lambda value: {"system": f"The owner is {value}."},
        lambda value: {"tools": [{"name": "f", "description": f"Ask {value} first.", "input_schema": {}}]},
        lambda value: {"metadata": {"owner": value, "nested": {"deeper": json.dumps([json.dumps(value)])}}},
        lambda value: {"content": json.dumps({"a": json.dumps({"b": f"x,{value}\ny"})})},
        lambda value: {"content": "id\temail\n1\t" + value + "\n"},
    ],
)  # fmt: skip
def test_wherever_a_dialect_puts_it(fast: Redactor, place: Callable[[str], Any]) -> None:
    document, without = place("alice@example.com"), place("nobody")
    out: Any = fast.json(document)
    assert "alice" not in json.dumps(out.value)
    assert fast.json(without).value == without
    assert shape(out.value) == shape(document)


def shape(value: Any) -> Any:
    """Keys, order, numbers and tool names; texts without JSON in them are alike."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    if isinstance(value, str) and value[:1] in "[{":
        return shape(json.loads(value))
    return "text" if isinstance(value, str) else value


@pytest.mark.parametrize(
    "text",
    [
        "Deploy C4 to S3 as v1 and v2; see RFC 7231, ISO 8601 and PEP 484.",
        "Stored at 1723645123 (epoch) and 1723645123456 (ms), exit code 137.",
        "await send(email, to=user.id) if public else publication.license",
        "request 3f2504e0-4f89-11d3-9a0c-0305e82c3301 sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
        "model gpt-4o-2024-08-06 and claude-3-5-sonnet-20241022 with call_abc123DEF456ghi789JKL012",
        "commit 4111111111111111aaaaaaaaaaaaaaaaaaaaaaaa on refs/heads/main",
        "chatcmpl-9xYzAbCdEfGhIjKlMnOpQrStUvWx took 812 ms; tokens: 3,141 in, 59 out",
        "version 10.2.3.4, release 1.2.3.4",
        "The secret of good tests is patience; the token bucket has 5 tokens, key figures follow.",
        "for i in range(4): password = getpass() or os.environ['PASSWORD']",
    ],
)
def test_what_only_looks_private(fast: Redactor, text: str) -> None:
    assert fast.text(text).redactions == ()


def test_media_stay_as_they_are(fast: Redactor) -> None:
    document: Any = {"content": [{"type": "image_url", "image_url": {"url": PNG}}]}
    assert fast.json(document).value == document


def test_names_of_other_scripts(fast: Redactor) -> None:
    texts = {
        "客户张伟的订单": "张伟", "联系人：欧阳娜娜，已签收": "欧阳娜娜", "氏名：田中太郎": "田中太郎",
        "성명: 김철수": "김철수", "Sehr geehrter Herr Müller,": "Müller",
        "Уважаемый Иван Петров, ваш заказ": "Иван Петров", "客户Anna Kowalski的电话": "Anna Kowalski",
    }  # fmt: skip
    left = [text for text, name in texts.items() if name in fast.text(text).text]
    assert left == []


def test_a_name_is_found_in_its_later_forms(fast: Redactor) -> None:
    document: Any = [
        {"role": "tool", "content": '{"姓名": "王小明", "user_id": "quorra_zimbrel_3668"}'},
        {"role": "assistant", "content": "昨天王小明说，QUORRA ZIMBREL 和 Zimbrel 都同意。"},
    ]
    redacted: Any = fast.json(document).value
    text = redacted[1]["content"]
    assert "王小明" not in text
    assert "imbrel" not in text.lower()


def test_an_id_that_holds_a_name_is_one_pseudonym_everywhere(fast: Redactor) -> None:
    document: Any = {
        "user_id": "mia_li_3668",
        "note": "mia_li_3668 called; see /users/mia_li_3668 and MIA_LI_3668.",
        "arguments": '{"user_id": "mia_li_3668"}',
    }
    redacted: Any = fast.json(document).value
    (placeholder,) = {
        *PLACEHOLDER.findall(redacted["user_id"]), *PLACEHOLDER.findall(redacted["arguments"]),
        *PLACEHOLDER.findall(redacted["note"].split(";")[0]),
    }  # fmt: skip
    assert placeholder.startswith("<USER_HANDLE_")


def test_a_detector_that_is_down_lets_nothing_pass() -> None:
    class Down:
        version = "down"

        def detect(self, text: str, *, context: str | None = None) -> Any:  # noqa: ARG002
            raise DetectorUnavailable("down")

    redactor = Redactor(detector=Down(), tenant_key=KEY, cache=DigestCache(), policy_version="1")
    with pytest.raises(DetectorUnavailable):
        redactor.json(["Alice"])


PRIVATE = [
    "alice@example.com", "mia_li_3668", "4111 1111 1111 1111", "1990-04-05", "+1 415 555 0132",
    "Anna Kowalski", "sk-proj-abcdefghijklmnopqrstuvwx1234567890", "12 Elm Street", "客户张伟",
]  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(
    pieces=st.lists(
        st.sampled_from(PRIVATE)
        | st.text(alphabet="ab Z,.:;\n🙂好é<>_@'\"\\{}[]/-=|1", max_size=10),
        max_size=8,
    )
)
def test_offsets_tell_all_that_changed(pieces: list[str]) -> None:
    redactor = REDACTOR
    original = "".join(pieces)
    once = redactor.text(original)
    text, position = "", 0
    for item in once.redactions:
        assert position <= item.start < item.end
        text += original[position : item.start] + item.placeholder
        position = item.end
    assert once.text == text + original[position:]
    assert redactor.text(once.text).text == once.text


REDACTOR = build_redactor("fast", tenant_key=KEY, cache=DigestCache(), policy_version="1")


HOSTILE = [
    "a", "1", "1 ", "A ", "a@", "+1-", "(", "-----BEGIN PRIVATE KEY-----", "x=", "12 Aa ", "eyJ.",
    "\u738b", "Ab-", '"', "key: ", "a,b,c\n", "1 Rue ", "9.", "name=", "Aa\n", "-u a:",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_time_grows_with_the_text_alone(piece: str) -> None:
    """What makes patterns go back and forth: four times the text may not cost sixteen times."""
    detector = build_detector("fast")

    def seconds(num_characters: int) -> float:
        text = piece * (num_characters // len(piece))
        began = time.thread_time()
        spans = detector.detect(text)
        assert all(0 <= span.start < span.end <= len(text) for span in spans)
        return time.thread_time() - began

    # The least of three: a look for cycles in the heap of a whole run takes most of a second.
    short, long = (min(seconds(number) for _ in range(3)) for number in (3_000, 12_000))
    assert long < 10 * short + 0.1
