"""One trace leads from the call to the row, through every service, and holds no payload."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from infra.demo.conversations import generate
from infra.demo.leaks import LeakScanner
from infra.demo.player import Player
from infra.demo.settle import settle
from infra.demo.stage import TENANT
from infra.store import open_reader
from tests.e2e.conftest import stage_with

pytestmark = pytest.mark.e2e

NUM_CONVERSATIONS = 3
SERVICES = {"inference.gateway", "streams.redaction", "streams.assembly", "streams.sink"}


class Collector(ThreadingHTTPServer):
    """Takes traces as an OpenTelemetry collector does."""

    daemon_threads = True

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.arrived = threading.Condition()
        super().__init__(("127.0.0.1", 0), _Door)

    def spans(self) -> dict[str, set[tuple[str, str]]]:
        """Trace → service and name of its spans."""
        found: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for body in list(self.requests):
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                (service,) = (
                    a.value.string_value
                    for a in group.resource.attributes
                    if a.key == "service.name"
                )
                for scope in group.scope_spans:
                    for span in scope.spans:
                        found[span.trace_id.hex()].add((service, span.name))
        return found


class _Door(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        with self.server.arrived:
            if self.path == "/v1/traces":
                self.server.requests.append(body)
            self.server.arrived.notify_all()
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Nobody reads it."""


@contextmanager
def collecting() -> Iterator[Collector]:
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            collector.shutdown()
            thread.join()


def whole(spans: dict[str, set[tuple[str, str]]]) -> list[str]:
    """Traces that every service has told a span of."""
    return [trace for trace, told in spans.items() if {service for service, _ in told} == SERVICES]


def test_one_trace_leads_from_the_call_to_the_row(tmp_path: Path) -> None:
    conversations = generate(5, NUM_CONVERSATIONS)
    arguments = ["--seed", "5", "--num-conversations", str(NUM_CONVERSATIONS)]
    with collecting() as collector:
        url = f"http://127.0.0.1:{collector.server_address[1]}"
        settings = {
            "HEADRACE_TRACING__OTLP_URL": url,
            "OTEL_BSP_SCHEDULE_DELAY": "200",
            "HEADRACE_REDACTION__TIER": "regex",  # spans hold no text, whatever finds names in it
        }
        with stage_with(tmp_path / "stack", arguments, settings) as stage:
            player = Player(stage.target, conversations, seed=5, concurrency=3)
            asyncio.run(player.play())
            asyncio.run(player.send_late_rewards())
            with open_reader(stage.settings.data_dir) as reader:
                settle(reader, stage.bus, player.ledger, TENANT)
            num_calls = len(player.ledger.calls)
            with collector.arrived:
                assert collector.arrived.wait_for(
                    lambda: len(whole(collector.spans())) >= num_calls, timeout=60
                ), collector.spans()
        calls = [
            told for told in collector.spans().values() if ("inference.gateway", "call") in told
        ]
        assert len(calls) == num_calls
        assert all(
            {("inference.gateway", "publish"), ("streams.sink", "process")} <= told
            for told in calls
        )
        scanner = LeakScanner(player.ledger.planted)
        assert player.ledger.planted
        for body in collector.requests:
            assert not scanner.scan(body.decode("latin-1"), binary=True)
