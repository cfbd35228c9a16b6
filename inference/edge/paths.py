"""Which paths are whose: our own routes under their methods, the upstream's below /v1/, no other.

A call to one of our own routes never travels on, however its path is written: feedback does not
belong to the upstream. What travels on stays below /v1/, since an engine may serve routes beside
it that an agent's key must not reach.
"""

from urllib.parse import unquote

from inference.dialects.refusal import RefusedError

_READ = ("GET", "HEAD")
#: Our own routes and everything below them, with the methods that they answer.
_OWN = {
    "/v1/feedback": ("POST",),
    "/v1/events": ("POST",),
    "/v1/trajectories": _READ,
    "/schemas": _READ,
    "/subjects": _READ,
    "/health": _READ,
    "/ready": _READ,
    "/metrics": _READ,
}


def refuse_own(method: str, path: str) -> None:
    """Refuse what is asked of one of our own routes and has no handler. RefusedError 404 or 405."""
    plain = _plain(path)
    for own, methods in _OWN.items():
        if plain != own and not plain.startswith(f"{own}/"):
            continue
        if method in methods:
            raise RefusedError(404, "unknown_path", f"Nothing is here; {own} is a route of ours.")
        raise RefusedError(
            405, "method_not_allowed", f"{own} takes {' and '.join(methods)} only.", allow=methods
        )


def refuse_unless_below_v1(method: str, path: str) -> None:
    """Refuse what the upstream must not get. `HEAD /` may pass: agents ask it first."""
    if (method, path) == ("HEAD", "/"):
        return
    plain = _plain(path)
    beside = any(part in (".", "..") for part in plain.split("/"))
    if beside or not path.startswith("/v1/"):
        raise RefusedError(
            404, "unknown_path", "Nothing is here. The API's paths begin with /v1/; set the "
            "client's base URL to http://<host>:<port>/v1.",
        )  # fmt: skip


def _plain(path: str) -> str:
    """The path as a lenient server may read it."""
    plain = unquote(path, errors="replace").replace("\\", "/")
    while "//" in plain:
        plain = plain.replace("//", "/")
    return plain.rstrip("/") or "/"
