"""The HTTP door of a processor: /metrics for Prometheus, /health for whoever watches."""

import json
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from streams.runtime.health import Health

_Answer = Callable[..., Any]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    timeout = 10

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Requests of a watcher are no news."""


def open_door(
    host: str, port: int, registry: CollectorRegistry, health: Callable[[], Health]
) -> int:
    """Answer from a thread for as long as the process lives; the port. OSError where it is taken.

    Port 0 takes any free one.
    """
    metrics: Any = make_wsgi_app(registry)

    def answer(environment: dict[str, Any], start: _Answer) -> Iterable[bytes]:
        path = environment.get("PATH_INFO", "")
        if path == "/health":
            return _health(health(), start)
        if path == "/metrics":
            answered: Iterable[bytes] = metrics(environment, start)
            return answered
        start("404 Not Found", [("Content-Type", "text/plain")])
        return [b"Here are /health and /metrics.\n"]

    server = make_server(host, port, answer, _Server, _Handler)
    threading.Thread(target=server.serve_forever, name="door", daemon=True).start()
    return int(server.server_port)


def _health(found: Health, start: _Answer) -> Iterable[bytes]:
    status = "200 OK" if found.healthy else "503 Service Unavailable"
    start(status, [("Content-Type", "application/json"), ("Cache-Control", "no-store")])
    return [json.dumps(found.as_plain()).encode() + b"\n"]
