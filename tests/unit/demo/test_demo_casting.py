"""Conversations with shared beginnings: each recorded reply once, each conversation once."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.demo.casting import Casting, UnknownReplyError
from infra.demo.conversations import Conversation
from infra.demo.recorded import RecordedReplies, assistant_message, canonical


def talk(name: str, replies: list[str]) -> Conversation:
    messages = [{"role": "system", "content": "s"}]
    for reply in replies:
        messages += [
            {"role": "user", "content": f"after {len(messages)}"},
            {"role": "assistant", "content": reply},
        ]
    return Conversation(name, "t", tuple(messages), (), 0.0, ())


@given(
    texts=st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=4), min_size=1, max_size=9),
    seed=st.integers(0, 2**16),
)
def test_any_interleaving_plays_every_conversation_once(texts: list[list[str]], seed: int) -> None:
    talks = [talk(str(index), replies) for index, replies in enumerate(texts)]
    casting, upstream = Casting(talks), RecordedReplies(talks)
    rng = random.Random(seed)
    num_done = dict.fromkeys(range(len(talks)), 0)
    in_flight: dict[int, dict[str, object]] = {}
    while num_done:
        player = rng.choice(list(num_done))
        position = casting.playing(player).turns[num_done[player]]
        if player in in_flight:
            casting.follow(player, position, in_flight.pop(player))
            num_done[player] += 1
            if num_done[player] == len(casting.playing(player).turns):
                del num_done[player]
            continue
        reply = upstream.reply_to(casting.playing(player).messages[:position])
        assert reply is not None
        in_flight[player] = reply
    played = {casting.playing(player).conversation_id for player in range(len(talks))}
    assert len(played) == len(talks)


def test_a_player_follows_the_reply_it_gets() -> None:
    casting = Casting([talk("first", ["a", "c"]), talk("second", ["b"])])
    followed = casting.follow(0, 2, assistant_message("b", []))
    assert followed.conversation_id == "second"
    assert casting.playing(1).conversation_id == "first"
    assert not casting.ends_alone(0)
    assert casting.ends_alone(1)


def test_an_unknown_reply_is_refused_without_its_text() -> None:
    casting = Casting([talk("first", ["a"])])
    with pytest.raises(UnknownReplyError) as caught:
        casting.follow(0, 2, assistant_message("my secret", []))
    assert "secret" not in str(caught.value)


def test_replies_of_one_history_take_turns_and_unknown_histories_have_none() -> None:
    talks = [talk("first", ["a"]), talk("second", ["b"])]
    replies = RecordedReplies(talks)
    history = talks[0].messages[:2]
    given_replies = [replies.reply_to(history) for _ in range(4)]
    assert [reply["content"] for reply in given_replies if reply] == ["a", "b", "a", "b"]
    assert replies.reply_to(history[:1]) is None


def test_the_forms_clients_use_for_absent_content_are_one_message() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    forms = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "assistant", "content": "", "tool_calls": [call], "refusal": None},
    ]
    assert len({canonical(form) for form in forms}) == 1
