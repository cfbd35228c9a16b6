"""The path of a call: our own prefixes taken off what the upstream gets to see."""

from dataclasses import dataclass
from urllib.parse import unquote


@dataclass(frozen=True, slots=True)
class Route:
    """`/k/<key>` and `/t/<trajectory-id>`, in either order, before `path`."""

    path: str
    key: str | None = None
    trajectory_id: str | None = None


def split(raw_path: str) -> Route:
    """Take the prefixes off. The rest stays byte for byte as the client wrote it."""
    found: dict[str, str] = {}
    path = raw_path
    while path[:3] in ("/k/", "/t/") and path[1] not in found:
        value, slash, rest = path[3:].partition("/")
        found[path[1]] = unquote(value, errors="replace")
        path = slash + rest
    return Route(path or "/", found.get("k"), found.get("t"))
