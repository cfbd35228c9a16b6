"""A conversation while it is written: messages in OpenAI form and what was planted where."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

from infra.demo.private_data import Kind, Place, Planted, PrivateData

Message = dict[str, Any]

# How a person mentions a value of each kind. Towns stand under address keys only: in free text
# the regex tier does not claim them.
PHRASES: dict[Kind, tuple[str, ...]] = {
    "SECRET": ("The API key is {}.", "I set the token to {} yesterday."),
    "CREDIT_CARD": ("I paid with card {}.", "The card number is {}."),
    "IBAN_CODE": ("Send the refund to IBAN {}.", "My bank account is {}."),
    "US_SSN": ("My SSN is {}.", "The social security number on file is {}."),
    "NATIONAL_ID": ("我的身份证号是{}。", "The resident id is {}."),
    "EMAIL_ADDRESS": ("My e-mail is {}.", "Please write to {} when done.", "📧 {} is best."),
    "USER_HANDLE": ("My user id is {}.", "You find me as {} in the forum."),
    "DATE_OF_BIRTH": ("My date of birth is {}.", "I was born on {}."),
    "PHONE_NUMBER": ("You can call me on {}.", "我的手机号是 {} 谢谢🙂", "Text me at {}, please."),
    "IP_ADDRESS": ("The requests came from {}.", "My address on the network is {}."),
    "STREET_ADDRESS": ("I live at {}.", "Deliver it to {}, please."),
    "POSTAL_CODE": ("My ZIP code is {}.", "The postal code is {}."),
    "PERSON": ("My name is {}.", "Customer name: {}."),
    "LOCATION": (),
}
KEY_OF_KIND: dict[Kind, str] = {
    "SECRET": "api_key",
    "CREDIT_CARD": "card_number",
    "IBAN_CODE": "iban",
    "US_SSN": "ssn",
    "NATIONAL_ID": "resident_id",
    "EMAIL_ADDRESS": "email",
    "USER_HANDLE": "user_handle",
    "DATE_OF_BIRTH": "date_of_birth",
    "PHONE_NUMBER": "phone",
    "IP_ADDRESS": "last_ip",
    "STREET_ADDRESS": "street_address",
    "POSTAL_CODE": "zip_code",
    "PERSON": "full_name",
    "LOCATION": "address",
}


@dataclass(frozen=True)
class ToolCall:
    """One call as the assistant writes it: `arguments` is JSON text."""

    name: str
    arguments: str


@dataclass
class Draft:
    """Collects one conversation. Every private value it hands out is noted with its place."""

    data: PrivateData
    rng: random.Random
    kinds: list[Kind]
    messages: list[Message] = field(default_factory=list)
    planted: list[Planted] = field(default_factory=list)

    def value(self, kind: Kind, place: Place) -> str:
        """A fresh value of `kind`, noted as planted at `place`."""
        made = self.data.make(kind)
        self.planted.append(Planted(kind, made, place))
        return made

    def next_kind(self, *, in_free_text: bool = False) -> Kind:
        """The kind whose turn it is; towns are passed over where free text is written."""
        kind = self.kinds.pop(0)
        self.kinds.append(kind)
        return self.next_kind() if in_free_text and kind == "LOCATION" else kind

    def phrase(self, place: Place) -> str:
        """A sentence that mentions a fresh private value."""
        kind = self.next_kind(in_free_text=True)
        return self.rng.choice(PHRASES[kind]).format(self.value(kind, place))

    def record(self, place: Place, num_fields: int) -> dict[str, Any]:
        """Fresh private values under the keys that such values have in records."""
        fields: dict[str, Any] = {}
        for _ in range(num_fields):
            kind = self.next_kind()
            value = self.value(kind, place)
            fields[KEY_OF_KIND[kind]] = {"city": value} if kind == "LOCATION" else value
        return fields

    def arguments(self, plain: dict[str, Any], num_private: int) -> str:
        """JSON text of `plain` and private values."""
        return json.dumps(plain | self.record("tool_arguments", num_private), ensure_ascii=False)

    def escaped_arguments(self, plain: dict[str, Any], num_private: int) -> str:
        """Like `arguments`, with parts of the private values written as JSON escapes."""
        num_before = len(self.planted)
        private = self.record("escaped_arguments", num_private)
        text = json.dumps(plain | private, ensure_ascii=False)
        for item in self.planted[num_before:]:
            text = text.replace(item.value, escape_some(item.value))
        return text

    def say(self, role: str, text: str) -> None:
        """A message of plain text."""
        self.messages.append({"role": role, "content": text})

    def call(self, *calls: ToolCall) -> list[str]:
        """An assistant message with tool calls, parallel when there are several; their ids."""
        ids = [f"call_{self.rng.getrandbits(96):024x}" for _ in calls]
        self.messages.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": call_id,
                        "type": "function",
                        "function": {"name": call.name, "arguments": call.arguments},
                    }
                    for call_id, call in zip(ids, calls, strict=True)
                ],
            }
        )
        return ids

    def result(self, call_id: str, content: object) -> None:
        """The answer to one tool call; anything but text is written as JSON."""
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": text})


def escape_some(value: str) -> str:
    """Every second character as a JSON escape: still the same JSON string, no longer findable."""
    return "".join(
        f"\\u{ord(char):04x}" if position % 2 == 0 else char for position, char in enumerate(value)
    )
