"""Messages, texts and ids of one event on their way through a redactor, spans collected.

Fails closed: a detector that cannot look sends the whole event to quarantine.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from schemas.atdp.types import Message, RedactedSpan
from schemas.errors import QuarantineError, Reason
from streams.redaction.chat import dumps, loads, without_tokens
from streams.redaction.detect.contract import DetectorTimeout, UnsupportedLanguage
from streams.redaction.placeholders import Replacement
from streams.redaction.redactor import DetectorUnavailable, Redaction, Redactor

T = TypeVar("T")

#: Roles that the known dialects use; any other is scanned like an id.
ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


class EventRedaction:
    """Redacts the parts of one event and remembers every span it replaced."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self.spans: list[RedactedSpan] = []
        self.surrogates_replaced = False
        self.token_data_dropped = False

    def messages(
        self, where: str, messages: Sequence[dict[str, Any]], background: Sequence[Any] = ()
    ) -> tuple[Message, ...]:
        """Messages as JSON bodies; names known from `background` are found in them too."""
        self.read_ahead(messages)
        names = _closed(lambda: self._redactor.names_in(background)) if messages else frozenset()
        return tuple(
            self._message(f"{where}/{index}", message, names)
            for index, message in enumerate(messages)
        )

    def read_ahead(self, documents: Sequence[Any]) -> None:
        """Have what these hold read at once, where that is faster; the rest finds the same."""
        self._redactor.read_ahead([self._whole(document) for document in documents])

    def _message(self, where: str, message: dict[str, Any], names: frozenset[str]) -> Message:
        bare = without_tokens(message)
        self.token_data_dropped |= bare is not message
        whole = self._whole(bare)
        redacted = _closed(lambda: self._redactor.json(whole, names=names))
        self._note(where, redacted.redactions)
        role = str(message.get("role") or _role_by_type(message))
        return Message(
            role=role if role in ROLES else self.identifier(role) or "", body=_dumps(redacted.value)
        )

    def body(self, where: str, body: str, *, is_message: bool = False) -> str:
        """A text that may be JSON; what is not JSON is redacted as plain text."""
        try:
            given = value = loads(body)
        except ValueError:
            return self.text(where, body)
        if is_message and isinstance(value, dict):
            value = without_tokens(value)
            self.token_data_dropped |= value is not given
        whole = self._whole(value)
        redacted = _closed(lambda: self._redactor.json(whole))
        self._note(where, redacted.redactions)
        return _dumps(redacted.value) if redacted.redactions or whole is not given else body

    def text(self, where: str, text: str) -> str:
        """One plain text."""
        whole = self._whole(text)
        redacted = _closed(lambda: self._redactor.text(whole))
        self._note(where, redacted.redactions)
        return redacted.text

    def optional(self, where: str, text: str | None) -> str | None:
        """One plain text or none."""
        return None if text is None else self.text(where, text)

    def holds_private_data(self, value: Any) -> bool:
        """Whether a document that is not stored holds something private."""
        whole = self._whole(value)
        return bool(_closed(lambda: self._redactor.json(whole)).redactions)

    def hidden_in(self, documents: Sequence[Any]) -> "Hidden":
        """What goes from these documents, to be found in other writings of them."""
        whole = [self._whole(document) for document in documents]
        names = _closed(lambda: self._redactor.names_in(whole))
        return Hidden(
            self._redactor, names, _closed(lambda: self._redactor.private_values(whole, names))
        )

    def identifier(self, value: str | None) -> str | None:
        """An id, unchanged if it holds nothing private, else a stable pseudonym."""
        if value is None:
            return None
        whole = self._whole(value)
        return _closed(lambda: self._redactor.identifier(whole))

    def _whole(self, value: Any) -> Any:
        """The value without lone surrogates, which no encoding downstream can hold."""
        if isinstance(value, str) and value.isascii():
            return value
        text = dumps(value, ascii_only=False)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.surrogates_replaced = True
            return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
        return value

    def _note(self, where: str, redactions: Sequence[Redaction]) -> None:
        self.spans += [
            RedactedSpan(
                path=f"{where}{item.path}",
                kind=item.kind,
                start=item.start,
                end=item.end,
                placeholder=item.placeholder,
            )
            for item in redactions
        ]


@dataclass(frozen=True, slots=True)
class Hidden:
    """Private values of some documents, with what stands in their place, and a look at texts that
    say the same in another form. `values` are original text: they are looked for, never kept."""

    redactor: Redactor
    names: frozenset[str]
    values: Mapping[str, str]

    def found_in(self, text: str) -> list[Replacement]:
        """What a detector finds in the text, and the names of the documents."""
        return _closed(lambda: self.redactor.replacements(text, self.names))


def _role_by_type(item: dict[str, Any]) -> str:
    """The role of an item that names none: results of tools are told by their type."""
    return "tool" if str(item.get("type", "")).endswith("_output") else "assistant"


def _dumps(value: Any) -> str:
    return dumps(value, ascii_only=False)


def _closed(look: Callable[[], T]) -> T:
    try:
        return look()
    except DetectorTimeout:
        raise QuarantineError(Reason.DETECTOR_TIMEOUT) from None
    except UnsupportedLanguage:
        raise QuarantineError(Reason.UNSUPPORTED_LANGUAGE) from None
    except DetectorUnavailable:
        raise QuarantineError(Reason.DETECTOR_UNAVAILABLE) from None
