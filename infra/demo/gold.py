"""Private values of a recorded conversation, read off the structure of its tool results.

A file of conversations has no list of planted values. Its tool results are records, though, and
the keys of a record say what a value is. Only whole values under such keys count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from infra.demo.private_data import Kind, Planted

KIND_OF_KEY: dict[str, Kind] = {
    "email": "EMAIL_ADDRESS",
    "phone": "PHONE_NUMBER",
    "dob": "DATE_OF_BIRTH",
    "date_of_birth": "DATE_OF_BIRTH",
    "first_name": "PERSON",
    "last_name": "PERSON",
    "address1": "STREET_ADDRESS",
    "street_address": "STREET_ADDRESS",
}
#: Kinds that have a form of their own. A name or a street in the middle of a sentence has none:
#: redaction finds as many as it can.
CERTAIN_KINDS: tuple[Kind, ...] = ("EMAIL_ADDRESS", "PHONE_NUMBER", "DATE_OF_BIRTH")


def gold_of_tool_results(messages: Sequence[dict[str, Any]]) -> tuple[Planted, ...]:
    """What the conversation's tool results show under private keys, each value once, in order."""
    found: dict[Planted, None] = {}
    for message in messages:
        if message["role"] == "tool" and isinstance(message.get("content"), str):
            try:
                parsed = json.loads(message["content"])
            except ValueError:
                continue  # a result in plain text has no keys to go by
            found.update(dict.fromkeys(_private_leaves(parsed)))
    return tuple(found)


def _private_leaves(value: object) -> Iterator[Planted]:
    if isinstance(value, list):
        for item in value:
            yield from _private_leaves(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            kind = KIND_OF_KEY.get(key)
            if kind is not None and isinstance(item, str) and item:
                yield Planted(kind, item, "tool_result")
            else:
                yield from _private_leaves(item)
