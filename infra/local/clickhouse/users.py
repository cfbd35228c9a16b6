"""Who may ask: two users whose passwords are generated on this machine."""

import base64
import binascii
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from infra.local.clickhouse.errors import ClickHouseError

READ_WRITE_USER = "headrace"
READ_ONLY_USER = "headrace_ro"


@dataclass(frozen=True)
class User:
    """Who sent a request and whether writing is refused."""

    name: str
    readonly: bool


@dataclass(frozen=True)
class Users:
    """The passwords. `repr` does not show them."""

    _passwords: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Users({', '.join(self._passwords)})"

    def authenticate(self, headers: Mapping[str, str], fields: Mapping[str, str]) -> User:
        """The user named by headers, basic authentication or URL. ClickHouseError otherwise."""
        name, password = _credentials(headers, fields)
        if name is None:
            raise ClickHouseError(
                194, "REQUIRED_PASSWORD",
                "Send user and password (X-ClickHouse-User and X-ClickHouse-Key, or basic "
                "authentication). `headrace up` prints where the password is",
            )  # fmt: skip
        expected = self._passwords.get(name)
        # Compared in any case, so that the time taken does not tell which names exist.
        matches = hmac.compare_digest((expected or "\0").encode(), password.encode())
        if expected is None or not matches:
            raise ClickHouseError(
                516, "AUTHENTICATION_FAILED",
                f"{name[:60]}: Authentication failed: password is incorrect, or there is no user "
                "with such name.",
            )  # fmt: skip
        return User(name, name == READ_ONLY_USER)


def _credentials(headers: Mapping[str, str], fields: Mapping[str, str]) -> tuple[str | None, str]:
    if name := headers.get("X-ClickHouse-User"):
        return name, headers.get("X-ClickHouse-Key", "")
    scheme, _, encoded = headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            name, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None, ""
        return name, password
    return fields.get("user") or None, fields.get("password", "")
