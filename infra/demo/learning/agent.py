"""The agent: it answers customers. All that it knows is the `openai` client and a base URL."""

from dataclasses import dataclass

from openai import AsyncOpenAI, OpenAIError

_MAX_TOKENS = 10


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: the provider's response id, and the text."""

    response_id: str
    text: str


class Agent:
    """One customer's sentence in, one call of a tool out."""

    def __init__(self, base_url: str, key: str, model: str) -> None:
        # The gateway's key is in a header of its own, so that agents keep the provider's key.
        self._client = AsyncOpenAI(
            base_url=base_url, api_key="not needed here", max_retries=2, timeout=60.0,
            default_headers={"x-headrace-key": key},
        )  # fmt: skip
        self._model = model

    async def answer(self, request: str) -> Reply | None:
        """None when the call failed."""
        try:
            completion = await self._client.chat.completions.create(
                model=self._model,
                messages=[{"role": "user", "content": request}],
                max_tokens=_MAX_TOKENS,
                temperature=1.0,
            )
        except OpenAIError:
            return None
        return Reply(completion.id, completion.choices[0].message.content or "")

    async def close(self) -> None:
        """Release the connections."""
        await self._client.close()
