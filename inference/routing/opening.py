"""Making the router of this process where the settings say."""

from inference.routing.follow import RouteFollower
from inference.routing.router import Router
from schemas.bus import Bus
from schemas.secrets import tenant_key
from schemas.settings import Settings
from schemas.telemetry import Metrics


def open_router(settings: Settings, bus: Bus, root: bytes, metrics: Metrics) -> Router | None:
    """None where calls go to the upstream. `root` is the root secret."""
    ring = settings.gateway.ring
    if ring is None:
        return None
    follower = RouteFollower(bus, settings.worker.policy, ring)
    return Router(follower, tenant_key(root, "", "routing"), metrics)
