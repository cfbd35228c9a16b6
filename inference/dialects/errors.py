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


def restated(path: str, status: int, body: bytes) -> bytes | None:
    """An engine's error in the form that clients of `path` parse; None where it is in it already,
    or says nothing that can be read."""
    if not path.startswith("/v1/messages"):
        return None
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    error = said.get("error") if isinstance(said, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return None
    kind = _TYPES.get(status, "api_error")
    if said.get("type") == "error" and error.get("type") == kind:
        return None
    code = error.get("code")
    return error_body(
        path, status, code if isinstance(code, str) else kind, error["message"], error.get("param")
    )
