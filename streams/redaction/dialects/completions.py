"""The dialect of `POST /v1/completions`: a prompt and what follows it.

The prompt is one message of the user's. A prompt of token ids is not read: it is text that nothing
here can look at.
"""

from typing import Any

from streams.redaction import chat
from streams.redaction.chat import ChatRequest, ChatResponse, JsonObject, as_objects

_OUTSIDE_PROMPT = frozenset({"prompt", "best_of", "echo"})


def parse_request(body: bytes) -> ChatRequest | None:
    """The request, or None where the prompt is no text."""
    try:
        value = chat.loads(body)
    except ValueError:
        return None
    prompt = value.get("prompt") if isinstance(value, dict) else None
    if isinstance(prompt, list) and prompt and all(isinstance(text, str) for text in prompt):
        messages = [{"role": "user", "content": text} for text in prompt]
    elif isinstance(prompt, str):
        messages = [{"role": "user", "content": prompt}]
    else:
        return None
    return chat.request_of({**value, "messages": messages}, _OUTSIDE_PROMPT)


def parse_response(body: bytes) -> ChatResponse | None:
    """The response, JSON or event stream, or None where nothing can be read."""
    return chat.parse_response(body, _as_chat)


def _as_chat(value: JsonObject) -> JsonObject:
    """A response or a chunk of one, with its choices as a chat has them."""
    choices = [_choice(choice) for choice in as_objects(value.get("choices"))]
    prompt = value.get("prompt_token_ids") or (choices[0] if choices else {}).get(
        "prompt_token_ids"
    )
    return {**value, "choices": choices, "prompt_token_ids": prompt}


def _choice(choice: JsonObject) -> JsonObject:
    message = {"role": "assistant", "content": choice.get("text")}
    logprobs = choice.get("logprobs")
    listed = logprobs.get("token_logprobs") if isinstance(logprobs, dict) else None
    content: list[Any] = listed if isinstance(listed, list) else []
    return {
        **choice, "message": message, "delta": message,
        "logprobs": {"content": [{"logprob": number} for number in content]},
    }  # fmt: skip
