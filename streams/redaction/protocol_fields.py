"""Which leaves of provider messages are the protocol's own and must never change.

A signature that lost a character is refused by its provider, a tool name that lost one names no
tool. Values that merely use such a key in somebody's payload are scanned like all others: the
value must also look the part, and nothing inside tool arguments or metadata is exempt.
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from streams.redaction.leaves import JsonValue, Path

_OPAQUE_KEYS: Final = frozenset(
    {"signature", "encrypted_content", "thought_signature", "thoughtSignature"}
)
#: What is sealed is base64: both cases, and short only without the marks that ids have.
_OPAQUE_VALUE: Final = re.compile(
    r"(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])(?:[A-Za-z0-9+/]{16,}={0,2}|[A-Za-z0-9+/_=-]{64,})"
)
_TOOL_SIBLINGS: Final = frozenset(
    {
        "input_schema",
        "inputSchema",
        "parameters",
        "arguments",
        "input",
        "tool_call_id",
        "tool_use_id",
    }
)
_TOOL_TYPES: Final = frozenset(
    {"tool_use", "server_tool_use", "tool", "function", "function_call", "custom", "mcp_tool_use"}
)
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
#: A name with a phone, a card or somebody's handle in it is looked at like other text.
_TELLING_NAME: Final = re.compile(r"\d{7}|[^\W\d_]{2,24}_[^\W\d_]{2,24}_\d{3,5}(?!\d)")
#: Below these, an object is somebody's data; a list is a list of protocol items.
_PAYLOADS: Final = frozenset({"input", "arguments", "metadata", "output", "result", "properties"})


def protocol_fields(path: Path, siblings: Mapping[str, JsonValue]) -> bool:
    """Signatures, sealed thinking and tool names, recognised by key, place and form."""
    if not path or _is_in_payload(path):
        return False
    value = siblings.get(str(path[-1]))
    if not isinstance(value, str):
        return False
    if path[-1] in _OPAQUE_KEYS:
        return _OPAQUE_VALUE.fullmatch(value) is not None
    if path[-1] == "data":
        return siblings.get("type") == "redacted_thinking" and bool(_OPAQUE_VALUE.fullmatch(value))
    return path[-1] == "name" and _is_tool(path, siblings) and _is_tool_name(value)


def _is_tool_name(value: str) -> bool:
    return _TOOL_NAME.fullmatch(value) is not None and _TELLING_NAME.search(value) is None


def _is_tool(path: Path, siblings: Mapping[str, JsonValue]) -> bool:
    return (
        not _TOOL_SIBLINGS.isdisjoint(siblings)
        or siblings.get("type") in _TOOL_TYPES
        or siblings.get("role") in ("tool", "function")
        or (len(path) > 1 and path[-2] in ("function", "tool_choice"))
    )


def _is_in_payload(path: Path) -> bool:
    return any(key in _PAYLOADS and isinstance(inner, str) for key, inner in pairwise(path))
