"""The settings of the gateway and of the upstreams that it relays to."""

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, field_validator, model_validator

from schemas.settings_section import Section

#: In lower case, so that the environment can name it too.
UpstreamName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$")]


class UpstreamSettings(Section):
    """The LLM API that the gateway relays to. `[gateway.upstreams.<name>]` tables, of any name,
    take the same settings and four more, and then calls go by their model.

    The credential is read from `api_key_file`, or from the environment variable that
    `api_key_env` names, and takes the place of the client's. Without either, `credential` says
    what becomes of the client's own: `client` passes it through, `none` takes it off.

    `asks_tokens` says whether the gateway asks the upstream for token ids and log-probabilities,
    which a trainer needs, and hides them from clients that did not ask. Set it for vLLM: other
    APIs refuse the request. Left open, it is on for `upstream` exactly when `gateway.ring` is set,
    and off for `[gateway.upstreams.<name>]`: each says for itself.

    `asks_usage` says the same of the count of tokens at the end of a stream
    (`stream_options.include_usage`), without which the record of a stream does not tell what it
    cost. An upstream that refuses the field is asked again without it, and not asked any more.
    """

    url: str = "http://127.0.0.1:8000"
    api_key_file: Path | None = None
    api_key_env: str | None = Field(None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    credential: Literal["client", "none"] = "client"
    asks_tokens: bool | None = None
    asks_usage: bool = False

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("it must be an address as in https://api.example.com")
        if parts.username is not None or parts.password is not None:
            raise ValueError("it holds a credential; put that into the file api_key_file")
        return url

    @model_validator(mode="after")
    def _has_one_key(self) -> Self:
        if self.api_key_file is not None and self.api_key_env is not None:
            raise ValueError("set api_key_file or api_key_env, not both")
        return self


class NamedUpstreamSettings(UpstreamSettings):
    """One of several LLM APIs: the table `[gateway.upstreams.<name>]`.

    `models` are patterns as in a shell (`gpt-*`). Of the upstreams that take a model those of the
    lowest `rank` get its calls, in shares by `weight`; calls of one trajectory stay with one. The
    next one is tried where nothing came back, or only 429, 502, 503, 504 or 529.
    `model` is sent in the place of the name that the client gave.
    """

    url: str
    models: tuple[str, ...] = ("*",)
    model: str | None = None
    weight: float = Field(1.0, gt=0)
    rank: int = Field(0, ge=0)


class GatewaySettings(Section):
    """The one URL an agent changes.

    `when_spool_full` decides what happens when the spool holds `spool_max_bytes` of undelivered
    calls, or when its disk refuses a write. `block`: a new call is answered 503 and does not reach
    the upstream; the answer of a call under way is broken off at the first byte that cannot be
    written. `shed`: calls are relayed without a record; a call under way goes on, is recorded up
    to the first byte that could not be written, and its step carries the gap
    `response_incomplete`. `headrace_gateway_shed` counts these calls. Feedback and events are
    always answered 503. The limit applies to what begins: a call under way may finish beyond it.

    A body that is too large for a record lies in the blob store until it was not written for
    `blob_days`. Keep that longer than all the time that a record may name it: 3 days on the raw
    topic, 14 in quarantine, and each time up to 7 until Kafka drops the file. A body that is
    released from quarantine counts as new. Where `blob_uri` is no local folder, the gateway
    deletes nothing: give `.original/` a rule for that in the store itself.

    `spool_fsync` waits for the disk at each write to the spool, at each new file and folder of it,
    and at each blob, so that a loss of power loses nothing that was released.

    A request's body must be complete within `client_body_seconds`. A connection on which the
    client sends no whole head of a request, or reads nothing of an answer, for
    `client_idle_seconds` is closed.

    With `ring`, calls go to the workers of that ring of `worker.policy` instead of to
    `upstream.url`. With tables `[gateway.upstreams.<name>]` the calls for their models go to
    those, and the others to `ring`, or to `upstream` where its `url` is set; else they are
    answered 404.

    At most `retry_share` of the calls are tried at another upstream, and `retry_reserve` at once.
    An upstream from which nothing came back for `breaker_failures` calls in a row is left alone
    for `breaker_seconds`.

    `workers` processes share the port, each with a part of `spool_max_bytes`. A process that is
    told to end takes no new connections and lets calls under way finish for `drain_seconds`. On
    SIGHUP `upstream`, `upstreams` and `capture` are read anew; calls under way and connections
    stay.

    With `capture` off, calls are relayed and nothing of them is recorded;
    `headrace_gateway_uncaptured` counts them.
    """

    host: str = "127.0.0.1"
    port: int = 8400
    workers: int = Field(1, ge=1, le=64)
    upstream: UpstreamSettings = UpstreamSettings()
    upstreams: dict[UpstreamName, NamedUpstreamSettings] = Field(default_factory=dict)
    capture: bool = True
    ring: str | None = Field(None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    when_spool_full: Literal["block", "shed"] = "block"
    spool_max_bytes: int = Field(2 * 1024**3, ge=1024**2)
    spool_fsync: bool = False
    blob_days: float = Field(35.0, ge=21)
    max_body_bytes: int = Field(64 * 1024**2, ge=1024)
    client_body_seconds: float = Field(300.0, gt=0)
    client_idle_seconds: float = Field(120.0, gt=0)
    upstream_connect_seconds: float = Field(10.0, gt=0)
    upstream_stall_seconds: float = Field(300.0, gt=0)
    when_client_leaves: Literal["abort", "drain"] = "abort"
    drain_seconds: float = Field(30.0, gt=0)
    retry_share: float = Field(0.2, ge=0, le=1)
    retry_reserve: int = Field(10, ge=0)
    breaker_failures: int = Field(5, ge=1)
    breaker_seconds: float = Field(5.0, gt=0)

    @property
    def asks_tokens(self) -> bool:
        """Whether token ids and log-probabilities are asked of the ring, or of `upstream`."""
        asked = self.upstream.asks_tokens
        return self.ring is not None if asked is None else asked
