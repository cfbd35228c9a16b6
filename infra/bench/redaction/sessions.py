"""Made-up sessions of agents with planted private data: sentences, tool calls, tables and logs.

The values come from `infra.demo.private_data`; secrets also in forms that the issuers' prefixes do
not tell, and as `credentials.py` has them. Some values are coded (percent, entities, base64) or are
JSON numbers. What is still there after redaction is counted by kind.
"""

import base64
import json
import random
import string
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from infra.bench.redaction.credentials import credential
from infra.demo.leaks import LeakScanner
from infra.demo.private_data import Kind, Planted, PrivateData
from streams.redaction.redactor import Redactor

#: Kinds with a form of their own, all of which must go.
CERTAIN: Final[tuple[Kind, ...]] = (
    "EMAIL_ADDRESS", "PHONE_NUMBER", "CREDIT_CARD", "IBAN_CODE", "US_SSN", "NATIONAL_ID",
    "DATE_OF_BIRTH", "SECRET", "USER_HANDLE", "IP_ADDRESS",
)  # fmt: skip
_SENTENCES: Final = (
    "Hi, I'm {PERSON} and I can't log in. My e-mail is {EMAIL_ADDRESS}.",
    "Please call me back at {PHONE_NUMBER}, or write to {EMAIL_ADDRESS} by Friday.",
    "I was born on {DATE_OF_BIRTH}; my SSN is {US_SSN}.",
    "Charge {CREDIT_CARD} and send the receipt to {STREET_ADDRESS}.",
    "Transfer it to {IBAN_CODE} in the name of {PERSON}, thanks.",
    "The staging key is {SECRET} - do not share it.",
    "Login from {IP_ADDRESS} by {USER_HANDLE} was refused, says {PERSON}.",
    "客户{PERSON}的身份证号{NATIONAL_ID},手机{PHONE_NUMBER}。",
    "Thank you, {PERSON}. Your account {USER_HANDLE} has been unlocked.",
    "My colleague {PERSON} ({EMAIL_ADDRESS}) asked about flight HAT001 on 2024-05-20.",
)
_LOGS: Final = (
    "2026-02-03T10:11:12Z INFO auth user={USER_HANDLE} email={EMAIL_ADDRESS} ip={IP_ADDRESS} ok=1",
    "2026-02-03T10:11:13Z WARN pay card={CREDIT_CARD} phone={PHONE_NUMBER} retries=2 took=31ms",
    "2026-02-03T10:11:14Z DEBUG env API_TOKEN={SECRET} region=eu-west-1",
)
_CODINGS: Final = (
    lambda value: quote(value, safe=""),
    lambda value: value.replace("@", "&#64;"),
    lambda value: "".join(f"%{byte:02X}" for byte in value.encode()),
    lambda value: base64.b64encode(f"Send it to {value}".encode()).decode(),
    lambda value: value[:3] + "\u200b" + value[3:],
)


@dataclass(frozen=True)
class Session:
    """Messages of one session and what was planted in them."""

    messages: list[dict[str, Any]]
    planted: tuple[Planted, ...]


class _Author:
    """Writes sessions from one random source."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._data = PrivateData(rng)
        self.planted: list[Planted] = []

    def value(self, kind: Kind) -> str:
        made = self._secret() if kind == "SECRET" else self._data.make(kind)
        self.planted.append(Planted(kind, made, "user_text"))
        return made

    def filled(self, template: str) -> str:
        values = {kind: self.value(kind) for kind in _kinds_in(template)}
        return template.format(**values)

    def _secret(self) -> str:
        """Half with a prefix that tells its issuer, half in forms that only their place tells."""
        if self._rng.random() < 0.5:
            return self._data.make("SECRET")
        letters = string.ascii_letters + string.digits
        return "".join(self._rng.choices(letters, k=self._rng.choice((24, 32, 40, 64))))

    def config(self) -> str:
        """A line of a file or a command with a credential in it."""
        line, secret = credential(self._rng)
        self.planted.append(Planted("SECRET", secret, "user_text"))
        return line

    def coded(self) -> str:
        """An e-mail address in another writing; what is planted is the writing."""
        address = self._data.make("EMAIL_ADDRESS")
        form = self._rng.choice(_CODINGS)(address)
        self.planted.append(Planted("EMAIL_ADDRESS", form, "user_text"))
        return form

    def number(self, kind: Kind) -> int:
        """A value that is sent as a JSON number."""
        digits = ""
        while not digits.isdecimal() or digits[0] == "0":
            digits = "".join(c for c in self._data.make(kind) if c not in " ()-")
        self.planted.append(Planted(kind, digits, "tool_result"))
        return int(digits)

    def record(self) -> dict[str, Any]:
        person = self.value("PERSON")
        first, last = person.split(" ", 1)
        return {
            "user_id": self.value("USER_HANDLE"),
            "name": {"first_name": first, "last_name": last},
            "dob": self.value("DATE_OF_BIRTH"),
            "contact": {"email": self.value("EMAIL_ADDRESS"), "phone": self.value("PHONE_NUMBER")},
            "address": {"address1": self.value("STREET_ADDRESS"), "city": "Oxmere"},
            "paid_with": self.number("CREDIT_CARD"),
            "callback_phone": self.number("PHONE_NUMBER"),
            "profile_url": f"https://shop.example/u?to={self.coded()}&page=2",
            "orders": [{"id": f"ORD-{self._rng.randrange(10**6)}", "total": 12.5}],
        }

    def table(self) -> str:
        rows = [
            f"{index},{self.value('EMAIL_ADDRESS')},{self.value('PHONE_NUMBER')},"
            f"{self.value('DATE_OF_BIRTH')}"
            for index in range(3)
        ]
        return "\n".join(["id,email,phone,date_of_birth", *rows])


def session(seed: int) -> Session:
    """The same session for the same seed."""
    rng = random.Random(seed)
    author = _Author(rng)
    ask, answer = rng.sample(_SENTENCES, 2)
    nested = {"query": author.filled(rng.choice(_SENTENCES)), "limit": rng.randrange(50)}
    escaped = json.dumps({"to": author.value("EMAIL_ADDRESS")}).replace("@", "\\u0040")
    call = {"name": "run", "arguments": json.dumps({"command": json.dumps(nested)})}
    log = "\n".join(author.filled(rng.choice(_LOGS)) for _ in range(4))
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You help the customers of a shop."},
        {"role": "user", "content": f"{author.filled(ask)}\nMy config:\n{author.config()}\n"},
        {"role": "assistant", "content": None,
         "tool_calls": [{"id": f"call_{seed}", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": f"call_{seed}", "content": json.dumps(author.record())},
        {"role": "tool", "tool_call_id": f"call_{seed}b",
         "content": rng.choice((log, author.table()))},
        {"role": "assistant", "content": None,
         "tool_calls": [{"id": f"call_{seed}c", "type": "function",
                         "function": {"name": "send", "arguments": escaped}}]},
        {"role": "assistant", "content": author.filled(answer)},
    ]  # fmt: skip
    text = json.dumps(messages, ensure_ascii=False)
    there = LeakScanner(author.planted).scan(text)
    return Session(messages, tuple(each for each in author.planted if each in there))


def left_in(redactor: Redactor, sessions: Iterable[Session]) -> tuple[Counter[str], Counter[str]]:
    """How many values were planted and how many of them are left, by kind."""
    planted: Counter[str] = Counter()
    left: Counter[str] = Counter()
    for each in sessions:
        redacted = redactor.json(each.messages).value  # type: ignore[arg-type]
        found = LeakScanner(each.planted).scan(json.dumps(redacted, ensure_ascii=False))
        planted.update(item.kind for item in each.planted)
        left.update(item.kind for item in found)
    return planted, left


def _kinds_in(template: str) -> list[Kind]:
    fields = (name for _, name, _, _ in string.Formatter().parse(template) if name)
    return list(fields)  # type: ignore[arg-type]
