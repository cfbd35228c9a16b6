"""Answers that the gateway gives by itself."""

from collections.abc import Sequence

import orjson
from aiohttp import web

from inference.dialects.errors import error_body


class RefusedError(Exception):
    """The request is answered by the gateway itself, with this status and sentence."""

    def __init__(
        self, status: int, code: str, message: str, *,
        param: str | None = None, retry_after_seconds: int | None = None,
        allow: Sequence[str] = (),
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after_seconds = retry_after_seconds
        self.allow = allow

    def response(self, path: str) -> web.Response:
        """The answer, in the form that clients of `path` parse."""
        retry = self.retry_after_seconds
        headers = {} if retry is None else {"Retry-After": str(retry)}
        if self.allow:
            headers["Allow"] = ", ".join(self.allow)
        return web.Response(
            status=self.status,
            body=error_body(path, self.status, self.code, str(self), self.param),
            content_type="application/json",
            headers=headers,
        )


def json_response(status: int, value: object) -> web.Response:
    """A JSON answer."""
    return web.Response(status=status, body=orjson.dumps(value), content_type="application/json")
