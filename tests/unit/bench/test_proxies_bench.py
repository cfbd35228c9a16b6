"""Samples of several proxies become figures beside each other."""

import asyncio

import pytest

from infra.bench.figures import Figure
from infra.bench.http import Connection
from infra.bench.load import Samples, closed_loop
from infra.bench.proxies import DIRECT, INTO_KAFKA, Found, Loaded, figures_of
from infra.bench.upstream import Model
from schemas.errors import TransientError


def found(name: str, seconds: float) -> Found:
    return Found(name, Samples([seconds] * 10, [seconds] * 10), Loaded([seconds] * 40, 2.0))


def value(figures: tuple[Figure, ...], name: str) -> float | None:
    return {figure.name: figure.value for figure in figures}[name]


def test_what_others_add_is_told_in_what_headrace_adds() -> None:
    proxies = [found(INTO_KAFKA, 0.002), found("LiteLLM", 0.021), found("Portkey", 0.004)]
    figures = figures_of([found(DIRECT, 0.001), *proxies])
    assert value(figures, "direct, p50") == pytest.approx(1.0)
    assert value(figures, f"{INTO_KAFKA}, added, p50") == pytest.approx(1.0)
    assert value(figures, "LiteLLM, 16 connections") == pytest.approx(20.0)
    assert value(figures, "LiteLLM adds, of what headrace adds") == pytest.approx(20.0)
    [times] = [f for f in figures if f.name == "LiteLLM adds, of what headrace adds"]
    assert times.is_met is True
    assert value(figures, "Portkey adds, of what headrace adds") == pytest.approx(3.0)


def test_a_proxy_that_was_not_measured_is_left_out() -> None:
    figures = figures_of([found(DIRECT, 0.001), found(INTO_KAFKA, 0.002)])
    assert not any("LiteLLM" in figure.name for figure in figures)


async def test_a_closed_loop_ends_with_its_time_and_fails_with_its_first_failure() -> None:
    server = await asyncio.get_running_loop().create_server(Model, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connections = [Connection("127.0.0.1", port, {}) for _ in range(3)]
    taken = await closed_loop(connections, "/v1/chat/completions", [b"{}"], seconds=0.05)
    for connection in connections:
        connection.close()
    server.close()
    assert len(taken) >= 3
    assert all(seconds > 0 for seconds in taken)
    nobody = [Connection("127.0.0.1", port, {})]
    with pytest.raises(TransientError):
        await closed_loop(nobody, "/", [b"{}"], seconds=0.05)
