"""Errors in the form that the client's library parses."""

from typing import Any

import orjson

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    415: "invalid_request_error",
    422: "invalid_request_error",
    426: "invalid_request_error",
    431: "invalid_request_error",
}


def error_body(path: str, status: int, code: str, message: str, param: str | None = None) -> bytes:
    """OpenAI's form; for Anthropic's routes the same object inside theirs."""
    error: dict[str, Any] = {
        "message": message,
        "type": _TYPES.get(status, "api_error"),
        "param": param,
        "code": code,
    }
    if path.startswith("/v1/messages"):
        return orjson.dumps({"type": "error", "error": error})
    return orjson.dumps({"error": error})
