"""The LLM APIs behind the gateway, over kept connections."""

from inference.capture import headers
from inference.upstreams.breaker import Breakers, RetryBudget
from inference.upstreams.connections import Answer, Connections, origin_of
from inference.upstreams.places import Place, Places
from schemas.settings import GatewaySettings
from schemas.telemetry import Metrics

#: Settings that a running gateway takes on.
RELOADED = ("upstream", "upstreams", "capture")


class Upstream:
    """Sends requests. Headers and bodies pass as they are; answers are not decompressed."""

    def __init__(self, settings: GatewaySettings, metrics: Metrics | None = None) -> None:
        """ConfigError for a key that cannot be read."""
        self.settings = settings
        self.places = Places(settings)
        self.breakers = Breakers(settings)
        self.budget = RetryBudget(settings.retry_share, settings.retry_reserve)
        #: Addresses of upstreams that take no `stream_options`.
        self.refuse_usage: set[str] = set()
        self._metrics = metrics or Metrics()
        self._connections = Connections(
            settings.upstream_connect_seconds, settings.upstream_stall_seconds
        )

    def reload(self, settings: GatewaySettings) -> None:
        """Send the calls that begin from now on where these settings say. What is under way goes
        on; so do connections. ConfigError, and nothing changes, for a key that cannot be read."""
        changed = {name: getattr(settings, name) for name in RELOADED}
        merged = self.settings.model_copy(update=changed)
        self.places = Places(merged)
        self.refuse_usage.clear()
        self.settings = merged

    def has_own_credentials(self) -> bool:
        """True when clients' `Authorization` and `x-api-key` are ours to read."""
        return self.places.has_own_credentials

    def count(self, place: Place, result: str) -> None:
        """Count a try: `answered`, `refused` or `unanswered`."""
        self._metrics.counter("headrace_upstream_tries", upstream=place.name, result=result).inc()

    async def send(
        self, method: str, base: str, target: str, pairs: headers.Pairs, body: bytes, *,
        fresh: bool = False,
    ) -> Answer:  # fmt: skip
        """Send over a kept connection, or a `fresh` one. What `Connections.send` raises."""
        return await self._connections.send(
            origin_of(base), method, target, pairs, body, fresh=fresh
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._connections.close()
