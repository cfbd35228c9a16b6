"""The upstream's two answer forms carry the same message."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from infra.demo.completions import Completion
from infra.demo.player import assembled
from infra.demo.recorded import assistant_message
from infra.demo.upstream import writes

CALLS = st.lists(
    st.builds(
        lambda number, arguments: {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": "find", "arguments": arguments},
        },
        st.integers(0, 99),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
    ),
    max_size=3,
)


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=80), calls=CALLS)
def test_chunks_add_up_to_the_whole(text: str, calls: list[dict[str, object]]) -> None:
    message = assistant_message(text or (None if calls else ""), calls)
    completion = Completion("chatcmpl-1", 0, "m", message, 9)
    lines = b"".join(writes(completion.events(include_usage=True))).split(b"\n\n")
    assert lines[-2:] == [b"data: [DONE]", b""]
    chunks = [ChatCompletionChunk(**orjson.loads(line[6:])) for line in lines[:-2]]
    whole = ChatCompletion(**completion.whole())
    assert assembled(chunks) == message
    assert chunks[-1].usage == whole.usage
    assert chunks[-1].choices == []
    reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices]
    assert [reason for reason in reasons if reason] == [whole.choices[0].finish_reason]
