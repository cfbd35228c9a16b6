"""Under which ids and Kafka key a call is kept."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from inference.capture import headers, route
from inference.capture.idempotency import KeyWindow
from inference.capture.identity import Identity, UnsafeIdError, identify
from schemas.atdp.types import TrajectorySource

ROOT = b"r" * 32


def identity(body: object = None, path: str = "/v1/chat/completions", **given: str) -> Identity:
    names = CIMultiDict({name.replace("_", "-"): value for name, value in given.items()})
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return identify("acme", ROOT, route.split(path), names, data)


def test_header_beats_path_beats_session() -> None:
    both = identity(path="/t/tr-p/v1/x", x_headrace_trajectory_id="tr-h", session_id="s")
    assert (both.trajectory_id, both.trajectory_source) == ("tr-h", TrajectorySource.HEADER)
    path = identity(path="/t/tr-p/v1/x", session_id="s")
    assert (path.trajectory_id, path.trajectory_source) == ("tr-p", TrajectorySource.PATH)
    session = identity(session_id="s")
    assert (session.trajectory_id, session.trajectory_source) == ("s", TrajectorySource.SESSION)
    assert session.kafka_key == b"acme/s"


def test_a_session_that_is_no_safe_id_is_digested() -> None:
    first, second = identity(x_session_id="a b"), identity(x_session_id="a c")
    assert first.trajectory_id != second.trajectory_id
    assert first.trajectory_id == identity(x_session_id="a b").trajectory_id
    assert "a b" not in (first.trajectory_id or "")


def test_the_session_in_claude_codes_metadata() -> None:
    user = json.dumps({"device_id": "d", "session_id": "abc"})
    assert identity({"metadata": {"user_id": user}}).trajectory_id == "abc"
    assert identity({"metadata": {"user_id": "u1"}}).trajectory_id is None


def test_turns_of_one_conversation_share_a_key_and_name_no_trajectory() -> None:
    opening = [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]
    first = identity({"messages": opening})
    later = identity({"messages": [*opening, {"role": "assistant", "content": "yes"}]})
    other = identity({"messages": [opening[0], {"role": "user", "content": "ho"}]})
    assert first.trajectory_id is None
    assert first.kafka_key == later.kafka_key != other.kafka_key
    assert b"hi" not in first.kafka_key


def test_the_form_of_a_text_and_cache_marks_do_not_change_the_key() -> None:
    marked = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
    forms = ["hi", [{"type": "text", "text": "hi"}], [marked], [{**marked, "type": "input_text"}]]
    keys = {
        identity({field: [{"role": "user", "content": form}]}).kafka_key
        for field in ("messages", "input")
        for form in forms
    }
    assert len(keys) == 1


def test_a_subagents_session_is_that_of_the_agent_that_started_it() -> None:
    inner = identity(x_session_id="inner", x_parent_session_id="outer")
    assert inner.trajectory_id == identity(x_session_id="outer").trajectory_id == "outer"
    in_responses = identity(session_id="inner", x_session_id="inner", x_parent_session_id="outer")
    assert in_responses.trajectory_id == "outer"
    assert identity(x_claude_code_session_id="s", x_claude_code_agent_id="a").agent_id is None


@pytest.mark.parametrize("name", ["trajectory_id", "parent_step_id", "agent_id", "task_key"])
def test_unsafe_ids_are_refused_without_repeating_them(name: str) -> None:
    with pytest.raises(UnsafeIdError) as caught:
        identity(**{f"x_headrace_{name}": "se cret"})
    assert name.replace("_", "-") in str(caught.value)
    assert "se cret" not in str(caught.value)


@given(st.binary(max_size=200))
def test_any_body_has_a_key(body: bytes) -> None:
    assert identity(body).kafka_key.startswith(b"acme/~")


def test_deep_nesting_has_a_key() -> None:
    body = b'{"messages":' + b"[" * 500 + b"]" * 500 + b"}"
    assert identity(body).kafka_key.startswith(b"acme/~")


def test_prefixes_come_off_in_either_order() -> None:
    for path in ("/k/K/t/T/v1/x%20y", "/t/T/k/K/v1/x%20y"):
        assert route.split(path) == route.Route("/v1/x%20y", "K", "T")
    assert route.split("/k/K") == route.Route("/", "K", None)
    assert route.split("/k/A/k/B/v1/x").path == "/k/B/v1/x"


def test_hop_by_hop_headers_and_ours_stay_here() -> None:
    pairs = [
        ("Host", "h"), ("Connection", "keep-alive, X-Drop"), ("X-Drop", "1"), ("TE", "trailers"),
        ("Authorization", "Bearer own"), ("x-headrace-key", "k"), ("Accept", "a"), ("Accept", "b"),
    ]  # fmt: skip
    kept = [("Authorization", "Bearer own"), ("Accept", "a"), ("Accept", "b")]
    assert headers.for_upstream(pairs, None) == kept
    own = headers.for_upstream(pairs, "sk")
    assert ("Authorization", "Bearer sk") in own
    assert ("Authorization", "Bearer own") not in own
    assert {h.name for h in headers.for_record(pairs)} & {
        "authorization",
        "x-headrace-key",
    } == set()


@pytest.mark.parametrize(("api_key", "passes"), [("sk", True), (None, False)])
def test_no_secret_of_the_client_passes_where_its_credential_does_not(
    api_key: str | None, passes: bool
) -> None:
    names = ("authorization", "x-api-key", "api-key", "X-Goog-Api-Key", "Cookie")
    pairs = [(name, "theirs") for name in names]
    sent = headers.for_upstream(pairs, api_key, passes_credential=passes)
    assert "theirs" not in [value for _, value in sent]


def test_the_key_window_is_bounded() -> None:
    window = KeyWindow(max_keys=2)
    assert not window.is_other_body("t", "a", b"1")
    assert window.is_other_body("t", "a", b"2")
    assert not window.is_other_body("u", "a", b"2"), "keys are scoped by tenant"
    assert not window.is_other_body("t", "b", b"1")
    assert not window.is_other_body("t", "a", b"2"), "the oldest was forgotten"
