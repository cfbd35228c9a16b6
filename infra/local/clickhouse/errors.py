"""The engine's errors, and how ClickHouse's HTTP interface tells them."""

import re

_CODE = re.compile(r"Code:\s*(\d+)\.\s*(.*)", re.DOTALL)
_NAME = re.compile(r"\(([A-Z][A-Z0-9_]+)\)\s*$")

#: Symbolic error names that the server answers with another status than 500.
_STATUS_OF_NAME = {
    "REQUIRED_PASSWORD": 401,
    "AUTHENTICATION_FAILED": 403,
    "WRONG_PASSWORD": 403,
    "UNKNOWN_USER": 403,
    "BAD_ARGUMENTS": 400,
    "BAD_QUERY_PARAMETER": 400,
    "CANNOT_COMPILE_REGEXP": 400,
    "CANNOT_PARSE_DATE": 400,
    "CANNOT_PARSE_DATETIME": 400,
    "CANNOT_PARSE_ESCAPE_SEQUENCE": 400,
    "CANNOT_PARSE_INPUT_ASSERTION_FAILED": 400,
    "CANNOT_PARSE_NUMBER": 400,
    "CANNOT_PARSE_QUOTED_STRING": 400,
    "CANNOT_PARSE_TEXT": 400,
    "INCORRECT_DATA": 400,
    "SYNTAX_ERROR": 400,
    "TYPE_MISMATCH": 400,
    "UNKNOWN_ELEMENT_IN_AST": 400,
    "UNKNOWN_QUERY_PARAMETER": 400,
    "UNKNOWN_TYPE_OF_AST_NODE": 400,
    "UNKNOWN_AGGREGATE_FUNCTION": 404,
    "UNKNOWN_DATABASE": 404,
    "UNKNOWN_FORMAT": 404,
    "UNKNOWN_FUNCTION": 404,
    "UNKNOWN_IDENTIFIER": 404,
    "UNKNOWN_SETTING": 404,
    "UNKNOWN_STORAGE": 404,
    "UNKNOWN_TABLE": 404,
    "UNKNOWN_TYPE": 404,
    "SESSION_NOT_FOUND": 404,
    "TIMEOUT_EXCEEDED": 408,
    "TOO_LARGE_STRING_SIZE": 413,
    "NOT_IMPLEMENTED": 501,
    "SOCKET_TIMEOUT": 503,
    "CANNOT_OPEN_FILE": 503,
    "TOO_MANY_SIMULTANEOUS_QUERIES": 503,
}


class ClickHouseError(Exception):
    """An answer other than success: the server's numeric code, symbolic name and sentence."""

    def __init__(self, code: int, name: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.name = name
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status that the real server would send."""
        return _STATUS_OF_NAME.get(self.name, 500)

    def text(self, version: str) -> str:
        """The body of the answer, in the server's own form, from which clients parse the name."""
        return (
            f"Code: {self.code}. DB::Exception: {self.message} ({self.name}) "
            f"(version {version} (chDB))\n"
        )


def from_engine(error: RuntimeError) -> ClickHouseError:
    """Read what chDB raised. Text without a code keeps its sentence under code 1002."""
    match = _CODE.search(str(error))
    if match is None:
        return ClickHouseError(1002, "UNKNOWN_EXCEPTION", str(error))
    code, rest = int(match[1]), match[2].strip()
    name = _NAME.search(rest)
    message = rest[: name.start()] if name else rest
    message = message.strip().removeprefix("DB::Exception:").strip()
    return ClickHouseError(code, name[1] if name else "UNKNOWN_EXCEPTION", message)
