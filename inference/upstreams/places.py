"""Where calls may go: the configured upstreams and nowhere else, found by the call's model. Pure,
save for the files and variables in which keys lie.
"""

import fnmatch
import hashlib
import json
import math
import os
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from yarl import URL

from inference.capture import headers
from inference.dialects.json_spans import UnreadableError, members, replaced
from inference.dialects.refusal import RefusedError
from schemas.errors import ConfigError
from schemas.settings import GatewaySettings, UpstreamSettings

_DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Place:
    """One LLM API. Its key is in no text that is made of it."""

    name: str
    base: str
    api_key: str | None = field(default=None, repr=False)
    passes_credential: bool = True
    asks_tokens: bool = False
    asks_usage: bool = False
    models: tuple[str, ...] = ("*",)
    #: What the call's model is called there, None for its own name.
    model: str | None = None
    weight: float = 1.0
    rank: int = 0

    def takes(self, model: str) -> bool:
        """Whether a pattern names this model."""
        return any(fnmatch.fnmatchcase(model, pattern) for pattern in self.models)

    def headers(self, pairs: headers.Pairs) -> headers.Pairs:
        """The client's headers as this upstream gets them."""
        return headers.for_upstream(pairs, self.api_key, passes_credential=self.passes_credential)

    @property
    def sends_clients_own(self) -> bool:
        """Whether the client's credential goes here."""
        return self.api_key is None and self.passes_credential

    @property
    def host(self) -> URL:
        """Scheme, host and port."""
        return URL(self.base).origin()

    def may_follow(self, first: "Place") -> bool:
        """Whether a call may go here after `first`: no client's credential goes to another host
        than the one that its call was meant for."""
        return not self.sends_clients_own or self.host == first.host

    def renamed(self, body: bytes) -> bytes:
        """The body with this upstream's name of the model, all else as it was. RefusedError 400."""
        if self.model is None:
            return body
        try:
            spans = [span for span in members(body) if span.name == b"model"]
        except UnreadableError:
            spans = []
        if not spans:
            raise RefusedError(
                400, "model_not_readable",
                "The model's name cannot be replaced in this body: it is nested too deeply, or "
                "its name is written with escapes. Send it as plain JSON.",
            )  # fmt: skip
        return replaced(body, spans, orjson.dumps(self.model))


class Places:
    """All upstreams of a gateway. ConfigError for a key that cannot be read."""

    def __init__(self, settings: GatewaySettings) -> None:
        default = settings.upstream
        self._named = tuple(
            Place(
                name, base_of(one.url), _key_of(one, f"upstreams.{name}"),
                one.credential == "client", bool(one.asks_tokens), one.asks_usage, one.models,
                one.model, one.weight, one.rank,
            )
            for name, one in settings.upstreams.items()
        )  # fmt: skip
        hosts = {place.host for place in self._named if place.sends_clients_own}
        #: For a call without a model. Nobody said which of several hosts its credential is for.
        self._of_any_model = (
            self._named if len(hosts) <= 1
            else tuple(replace(place, passes_credential=False) for place in self._named)
        )  # fmt: skip
        #: Takes what no pattern names: `upstream`, also as the form of a ring's workers.
        self.default = Place(
            _DEFAULT, base_of(default.url), _key_of(default, "upstream"),
            default.credential == "client", settings.asks_tokens, default.asks_usage,
        )  # fmt: skip
        self.has_ring = settings.ring is not None
        self._has_default = not self._named or "url" in default.model_fields_set
        used = (*self._named, *((self.default,) if self._has_default or self.has_ring else ()))
        #: True when clients' `Authorization` and `x-api-key` are ours to read: no upstream gets it.
        self.has_own_credentials = all(p.api_key is not None for p in used)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all upstreams."""
        return (*(place.name for place in self._named), _DEFAULT)

    @property
    def are_several(self) -> bool:
        """Whether the place of a call depends on its model."""
        return bool(self._named)

    def find(self, body: bytes, call: bytes) -> list[Place]:
        """Where a call may go, the best first; empty where it goes to a ring.

        `call` is what all calls of a trajectory share: they stay with one upstream, whose cache
        knows their beginning. RefusedError 404 where no upstream takes the call.
        """
        if not self._named:
            return [] if self.has_ring else [self.default]
        model = model_of(body)
        found = (
            list(self._of_any_model) if model is None
            else [p for p in self._named if p.takes(model)]
        )  # fmt: skip
        if found:
            found.sort(key=lambda place: (place.rank, -_score(place, call)))
            return [found[0], *(p for p in found[1:] if p.may_follow(found[0]))]
        if self.has_ring:
            return []
        if self._has_default:
            return [self.default]
        raise RefusedError(
            404, "model_not_found",
            "No upstream takes this model. Use a model that gateway.upstreams names, or add its "
            "pattern there.",
        )  # fmt: skip


def _score(place: Place, call: bytes) -> float:
    """Weighted rendezvous: of all calls, each place has the highest score of its share, and a
    place that comes or goes moves no call between the others."""
    digest = hashlib.blake2b(place.name.encode() + b"\x00" + call, digest_size=8).digest()
    share = (int.from_bytes(digest, "big") + 0.5) / 2**64
    return -place.weight / math.log(share)


def model_of(body: bytes) -> str | None:
    """The model that a call names; None where it names none."""
    if body.lstrip()[:1] != b"{":
        return None
    try:
        parsed: Any = orjson.loads(body)
    except orjson.JSONDecodeError:  # a lone surrogate perhaps, which other parsers take
        try:
            parsed = json.loads(body)
        except (ValueError, RecursionError):
            return None
    model = parsed.get("model")
    return model if isinstance(model, str) else None


def base_of(url: str) -> str:
    """An address without the `/v1` that people add, as it is common elsewhere."""
    return str(URL(url.rstrip("/").removesuffix("/v1"), encoded=True)).rstrip("/")


def _key_of(settings: UpstreamSettings, where: str) -> str | None:
    path, variable = settings.api_key_file, settings.api_key_env
    if variable is not None:
        key, source = os.environ.get(variable, "").strip(), f"api_key_env {variable}"
    elif path is not None:
        try:
            key, source = path.read_text().strip(), f"api_key_file {path}"
        except (OSError, UnicodeDecodeError):
            key, source = "", f"api_key_file {path}"
    else:
        return None
    if not key or not key.isascii() or not key.isprintable():
        raise ConfigError(
            f"gateway.{where}.{source} holds no key. Write the upstream's key into it."
        )
    return key
