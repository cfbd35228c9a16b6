"""The generator: repeatable, valid in the OpenAI form, and every kind planted everywhere."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessage
from pydantic import TypeAdapter

from infra.demo.conversations import Conversation, generate, load_trajectories
from infra.demo.private_data import KINDS, PLACES, iban, luhn_digit, resident_id_digit
from infra.demo.recorded import digest_of
from schemas.errors import ConfigError
from streams.redaction.detect.contract import SEVERITY

SEED = 3


@pytest.fixture(scope="module")
def talks() -> list[Conversation]:
    return generate(SEED)


def as_bytes(talks: list[Conversation]) -> bytes:
    return json.dumps([vars(talk) for talk in talks], default=vars).encode()


def test_the_same_seed_gives_the_same_bytes(talks: list[Conversation]) -> None:
    assert as_bytes(generate(SEED)) == as_bytes(talks)
    assert as_bytes(generate(SEED + 1)) != as_bytes(talks)


def test_there_are_enough_conversations_of_several_calls(talks: list[Conversation]) -> None:
    assert len(talks) >= 60
    assert all(len(talk.turns) >= 3 for talk in talks)
    assert {talk.reward for talk in talks} == {0.0, 1.0}


def test_the_kinds_are_those_that_the_detectors_claim() -> None:
    assert set(KINDS) == set(SEVERITY)


def test_every_kind_is_planted_at_every_place_that_can_hold_it(talks: list[Conversation]) -> None:
    planted = Counter((item.kind, item.place) for talk in talks for item in talk.planted)
    free_text = {"system_prompt", "user_text", "answer"}
    expected = {
        (kind, place)
        for kind, place in itertools.product(KINDS, PLACES)
        if not (kind == "LOCATION" and place in free_text)
    }
    missing = {pair for pair in expected if pair not in planted}
    # 24 conversations have a prompt of their own with one value, so a kind may miss only there.
    assert {place for _, place in missing} <= {"system_prompt"}


def test_planted_values_are_in_the_messages_and_escapes_hide_them(
    talks: list[Conversation],
) -> None:
    for talk in talks:
        text = json.dumps(talk.messages, ensure_ascii=False)
        for item in talk.planted:
            if item.place == "escaped_arguments":
                assert item.value not in text or item.kind in {"PERSON", "LOCATION"}
            else:
                assert json.dumps(item.value, ensure_ascii=False).strip('"') in text
        for call in tool_calls(talk):
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
        hidden = [item for item in talk.planted if item.place == "escaped_arguments"]
        arguments = [json.loads(call["function"]["arguments"]) for call in tool_calls(talk)]
        shown = {value for parsed in arguments for value in leaves(parsed)}
        assert {item.value for item in hidden} <= shown


def leaves(parsed: dict[str, Any]) -> list[str]:
    nested = [value for value in parsed.values() if isinstance(value, dict)]
    return [str(value) for value in parsed.values()] + [town["city"] for town in nested]


def tool_calls(talk: Conversation) -> list[dict[str, dict[str, str]]]:
    return [call for message in talk.messages for call in message.get("tool_calls", [])]


def test_messages_are_valid_and_every_tool_call_is_answered(talks: list[Conversation]) -> None:
    adapter = TypeAdapter(ChatCompletionMessage)
    num_parallel = 0
    for talk in talks:
        names = {tool["function"]["name"] for tool in talk.tools}
        open_ids: list[str] = []
        for message in talk.messages:
            if message["role"] == "assistant":
                assert not open_ids
                parsed = adapter.validate_python(message)
                calls = parsed.tool_calls or []
                num_parallel += len(calls) > 1
                open_ids = [call.id for call in calls]
                assert {call.function.name for call in calls if call.type == "function"} <= names
            elif message["role"] == "tool":
                assert message["tool_call_id"] == open_ids.pop(0)
            else:
                assert message["role"] in {"system", "user"}
                assert not open_ids
    assert num_parallel >= 30


def test_openings_are_shared(talks: list[Conversation]) -> None:
    openings = Counter(digest_of(talk.messages[:2]) for talk in talks)
    first_replies = Counter(digest_of(talk.messages[:3]) for talk in talks)
    assert max(openings.values()) >= 3
    assert max(first_replies.values()) >= 2
    assert max(first_replies.values()) < max(openings.values())


def test_check_digits_match_published_examples() -> None:
    assert luhn_digit("7992739871") == "3"
    assert iban("GB", "WEST12345698765432") == "GB82WEST12345698765432"
    assert resident_id_digit("11010519491231002") == "X"


def test_recorded_conversations_load_with_the_gold_of_their_tool_results(tmp_path) -> None:  # type: ignore[no-untyped-def]
    record = {"email": "x@example.com", "name": {"first_name": "Ada"}, "passengers": [{"dob": "d"}]}
    traj = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
        {"role": "tool", "tool_call_id": "1", "content": json.dumps(record)},
        {"role": "tool", "tool_call_id": "2", "content": "plain text"},
    ]
    path = tmp_path / "talks.json"
    path.write_text(json.dumps([{"task_id": 4, "trial": 0, "reward": 1, "info": {}, "traj": traj}]))
    (talk,) = load_trajectories(path)
    assert talk.turns == (2,)
    assert talk.task_key == "task-4"
    assert [(item.kind, item.value) for item in talk.planted] == [
        ("EMAIL_ADDRESS", "x@example.com"),
        ("PERSON", "Ada"),
        ("DATE_OF_BIRTH", "d"),
    ]


def test_a_file_that_holds_something_else_is_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "other.json"
    path.write_text('[{"messages": []}]')
    with pytest.raises(ConfigError, match="not a list of recorded conversations"):
        load_trajectories(path)
    with pytest.raises(ConfigError, match="cannot read"):
        load_trajectories(tmp_path / "absent.json")
