"""Several upstreams behind the real gateway: who gets a call, who is tried next, who never is."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from inference.upstreams.breaker import Breakers
from inference.upstreams.places import Places
from schemas.errors import ConfigError
from schemas.settings import Settings, UpstreamSettings, load_settings
from tests.integration.gateway.harness import (
    CHAT,
    SSE_HEAD,
    Connection,
    Running,
    Script,
    ScriptedUpstream,
    echo,
    eventually,
    running,
)
from tests.unit.runtime_harness import memory_bus

pytestmark = pytest.mark.integration


async def breaks(connection: Connection) -> None:
    """Takes the request and dies."""
    connection.reset()


def answers(status: int) -> Script:
    async def script(connection: Connection) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Length: 4\r\n\r\n".encode()
        await connection.send(head + b"mine")

    return script


@asynccontextmanager
async def several(
    tmp_path: Path, scripts: dict[str, Script], named: dict[str, dict[str, Any]], **gateway: Any
) -> AsyncIterator[tuple[Running, dict[str, ScriptedUpstream]]]:
    """A gateway before several upstreams, each with a script and settings of its own."""
    async with AsyncExitStack() as stack:
        found = {name: ScriptedUpstream(script) for name, script in scripts.items()}
        for upstream in found.values():
            await upstream.start()
            stack.push_async_callback(upstream.stop)
        tables = {n: {"url": found[n].url, **settings} for n, settings in named.items()}
        unused = ScriptedUpstream(answers(500))
        gw = await stack.enter_async_context(
            running(tmp_path, memory_bus(4), unused, upstreams=tables, **gateway)
        )
        yield gw, found


def only_named(gw: Running) -> None:
    """As if `gateway.upstream` had not been set."""
    gateway = gw.gateway.settings.gateway
    gw.gateway.upstream.reload(gateway.model_copy(update={"upstream": UpstreamSettings()}))


def asks(model: str, **fields: Any) -> bytes:
    return json.dumps({"model": model, **fields}).encode()


async def ask(gw: Running, model: str, **headers: str) -> tuple[int, bytes]:
    async with gw.post(CHAT, asks(model), **headers) as answer:
        return answer.status, await answer.read()


def metric(gw: Running, name: str, **labels: str) -> float:
    return gw.gateway.metrics.registry.get_sample_value(name, labels) or 0.0


async def test_calls_go_by_their_model(tmp_path: Path) -> None:
    named = {"gpt": {"models": ["gpt-*", "o?"]}, "claude": {"models": ["claude-*"]}}
    async with several(tmp_path, {"gpt": echo, "claude": echo}, named) as (gw, found):
        for model in ("gpt-5", "o3", "claude-opus", "gpt-\ud83d"):
            assert (await ask(gw, model))[0] == 200
    assert [json.loads(c.body)["model"] for c in found["gpt"].seen] == ["gpt-5", "o3", "gpt-\ud83d"]
    assert [json.loads(c.body)["model"] for c in found["claude"].seen] == ["claude-opus"]


async def test_what_no_pattern_names_goes_to_the_upstream_that_is_set(tmp_path: Path) -> None:
    async with several(tmp_path, {"gpt": echo}, {"gpt": {"models": ["gpt-*"]}}) as (gw, _):
        assert await ask(gw, "llama") == (500, b"mine")  # the default one's own answer


async def test_a_model_that_nobody_takes_is_refused_in_the_clients_form(tmp_path: Path) -> None:
    async with several(tmp_path, {"gpt": echo}, {"gpt": {"models": ["gpt-*"]}}) as (gw, found):
        only_named(gw)
        status, body = await ask(gw, "llama")
        assert (status, json.loads(body)["error"]["code"]) == (404, "model_not_found")
        async with gw.http.get(f"{gw.url}/v1/models", headers=gw.headers) as answer:
            assert answer.status == 200  # a call without a model is anybody's
    assert len(found["gpt"].seen) == 1


@pytest.mark.parametrize("first", [breaks, answers(503), answers(529), answers(429)])
async def test_the_next_one_answers_and_the_record_tells_of_one_call(
    tmp_path: Path, first: Script
) -> None:
    named = {"main": {"models": ["m"]}, "spare": {"models": ["*"], "rank": 1, "credential": "none"}}
    async with several(tmp_path, {"main": first, "spare": echo}, named) as (gw, found):
        assert await ask(gw, "m", Authorization="Bearer own") == (200, asks("m"))
        [event] = await gw.events(1)
        assert (event.attempts, event.response_body) == (2, asks("m"))
        assert event.upstream == "spare"
        assert metric(gw, "headrace_upstream_tries_total", upstream="spare", result="answered") == 1
    assert b"Bearer own" in found["main"].seen[0].head
    assert b"authorization" not in found["spare"].seen[0].head.lower()


@pytest.mark.parametrize("which", ["main", "spare"])
async def test_each_upstream_is_asked_for_tokens_as_its_own_setting_says(
    tmp_path: Path, which: str
) -> None:
    named: dict[str, dict[str, Any]] = {"main": {}, "spare": {"rank": 1, "credential": "none"}}
    named[which]["asks_tokens"] = True
    async with several(tmp_path, {"main": answers(503), "spare": echo}, named) as (gw, found):
        assert (await ask(gw, "m"))[0] == 200
        [event] = await gw.events(1)
    asked = {name: b"return_token_ids" in found[name].seen[0].body for name in named}
    assert asked == {name: name == which for name in named}
    assert bool(event.added_fields) is (which == "spare"), (
        "the record tells of the one that answered"
    )


async def test_an_answer_that_has_begun_is_never_asked_again(tmp_path: Path) -> None:
    async def cut(connection: Connection) -> None:
        await connection.send(SSE_HEAD)
        await connection.chunk(b"data: 1\n\n")
        connection.reset()

    named = {"main": {}, "spare": {"rank": 1}}
    async with (
        several(tmp_path, {"main": cut, "spare": echo}, named) as (gw, found),
        gw.post(CHAT, asks("m")) as answer,
    ):
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
    assert len(found["spare"].seen) == 0


async def test_errors_that_are_the_calls_own_are_not_tried_elsewhere(tmp_path: Path) -> None:
    named = {"main": {}, "spare": {"rank": 1, "credential": "none"}}
    async with several(tmp_path, {"main": answers(400), "spare": echo}, named) as (gw, found):
        assert await ask(gw, "m") == (400, b"mine")
    assert len(found["spare"].seen) == 0


async def test_a_clients_credential_goes_to_no_other_host(tmp_path: Path) -> None:
    named = {"main": {}, "spare": {"rank": 1}}
    async with several(tmp_path, {"main": answers(503), "spare": echo}, named) as (gw, found):
        assert await ask(gw, "m", Authorization="Bearer own") == (503, b"mine")
    assert len(found["spare"].seen) == 0


async def test_a_credential_goes_nowhere_where_nobody_says_for_which_host_it_is(
    tmp_path: Path,
) -> None:
    async def list_models(folder: str, named: dict[str, dict[str, Any]]) -> list[bytes]:
        scripts = dict.fromkeys(named, echo)
        async with several(tmp_path / folder, scripts, named) as (gw, found):
            headers = gw.headers | {"Authorization": "Bearer own"}
            async with gw.http.get(f"{gw.url}/v1/models", headers=headers) as answer:
                assert answer.status == 200
        return [c.head for upstream in found.values() for c in upstream.seen]

    [head] = await list_models("one", {"gpt": {}, "local": {"credential": "none", "rank": 1}})
    assert b"Bearer own" in head
    [head] = await list_models("two", {"gpt": {}, "claude": {}})
    assert b"own" not in head


async def test_each_upstream_gets_its_own_key_and_its_own_name_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("sk-file\n")
    monkeypatch.setenv("SPARE_KEY", "sk-environment")
    named = {
        "main": {"api_key_file": tmp_path / "key"},
        "spare": {"rank": 1, "api_key_env": "SPARE_KEY", "model": "other/Ünique"},
    }
    body = b'{ "seed":12345678901234567890, "model" : "m","x":{"model":"inner"} }'
    async with several(tmp_path, {"main": answers(502), "spare": echo}, named) as (gw, found):
        async with gw.post(CHAT, body, Authorization="Bearer own") as answer:
            assert answer.status == 200
        [event] = await gw.events(1)
    assert b"Bearer sk-file" in found["main"].seen[0].head
    assert b"Bearer sk-environment" in found["spare"].seen[0].head
    assert found["main"].seen[0].body == event.request_body == body
    assert found["spare"].seen[0].body == body.replace(b'"m"', '"other/Ünique"'.encode())


async def test_weights_share_the_trajectories_and_each_stays_where_it_is(tmp_path: Path) -> None:
    named = {"large": {"weight": 3.0}, "small": {"weight": 1.0}}
    async with several(tmp_path, {"large": echo, "small": echo}, named) as (gw, found):
        for number in range(120):
            await ask(gw, "m", **{"x-headrace-trajectory-id": f"t{number}"})
        before = {name: len(upstream.seen) for name, upstream in found.items()}
        for _ in range(5):
            await ask(gw, "m", **{"x-headrace-trajectory-id": "t1"})
        grown = Counter({n: len(u.seen) - before[n] for n, u in found.items()})
    assert sorted(grown.values()) == [0, 5]
    assert 70 <= before["large"] <= 110


async def test_a_silent_upstream_is_left_alone_and_tried_again(tmp_path: Path) -> None:
    gateway = {"breaker_failures": 3, "breaker_seconds": 0.3}
    async with several(tmp_path, {"main": breaks}, {"main": {}}, **gateway) as (gw, found):
        for _ in range(3):
            assert (await ask(gw, "m"))[0] == 502
        async with gw.post(CHAT, asks("m")) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
            assert (await answer.json())["error"]["code"] == "upstream_left_alone"
        assert len(found["main"].seen) == 3, "it hears nothing meanwhile"
        found["main"].script = echo
        base = gw.gateway.upstream.places.find(b"{}", b"")[0].base
        await eventually(lambda: not gw.gateway.upstream.breakers.is_open(base))
        assert (await ask(gw, "m"))[0] == 200
        assert (await ask(gw, "m"))[0] == 200


async def test_calls_go_past_an_upstream_that_fails_without_using_the_budget(
    tmp_path: Path,
) -> None:
    named = {"main": {}, "spare": {"rank": 1, "credential": "none"}}
    gateway = {"breaker_failures": 3, "breaker_seconds": 60, "retry_share": 0, "retry_reserve": 3}
    scripts = {"main": answers(503), "spare": echo}
    async with several(tmp_path, scripts, named, **gateway) as (gw, found):
        statuses = [(await ask(gw, "m"))[0] for _ in range(10)]
    assert statuses == [200] * 10
    assert (len(found["main"].seen), len(found["spare"].seen)) == (3, 10)


async def test_an_upstream_that_speaks_again_is_heard(tmp_path: Path) -> None:
    gateway = {"breaker_failures": 1, "breaker_seconds": 60}
    async with several(tmp_path, {"main": breaks}, {"main": {}}, **gateway) as (gw, found):
        breakers = Breakers(gw.gateway.settings.gateway, lambda: now)
        gw.gateway.upstream.breakers, now = breakers, 0.0
        assert [(await ask(gw, "m"))[0] for _ in range(2)] == [502, 503]
        found["main"].script, now = answers(429), 60.0
        assert [(await ask(gw, "m"))[0] for _ in range(3)] == [429, 429, 429]


async def test_a_spare_that_cannot_get_its_name_of_the_model_stops_no_call(tmp_path: Path) -> None:
    body = b'{"m\\u006fdel":"m"}'
    named = {"main": {}, "spare": {"rank": 1, "credential": "none", "model": "other"}}
    async with several(tmp_path, {"main": echo, "spare": echo}, named) as (gw, found):
        for script, status in ((echo, 200), (answers(503), 503)):
            found["main"].script = script
            async with gw.post(CHAT, body) as answer:
                assert answer.status == status
    assert found["spare"].seen == []


async def test_retries_end_with_their_budget(tmp_path: Path) -> None:
    named = {"main": {}, "spare": {"rank": 1, "credential": "none"}}
    gateway = {"breaker_failures": 100, "retry_share": 0.25, "retry_reserve": 2}
    scripts = {"main": answers(503), "spare": echo}
    async with several(tmp_path, scripts, named, **gateway) as (gw, found):
        statuses = [(await ask(gw, "m"))[0] for _ in range(12)]
    assert statuses[:2] == [200, 200]
    assert len(found["spare"].seen) == 4  # two at once and every fourth call after
    assert statuses.count(503) == 8


async def test_an_upstream_sends_nobody_to_another_host(tmp_path: Path) -> None:
    elsewhere = ScriptedUpstream(echo)
    await elsewhere.start()

    async def redirects(connection: Connection) -> None:
        head = f"HTTP/1.1 307 X\r\nLocation: {elsewhere.url}{CHAT}\r\nContent-Length: 0\r\n\r\n"
        await connection.send(head.encode())

    async with several(tmp_path, {"main": redirects}, {"main": {}}) as (gw, _):
        async with gw.http.post(
            f"{gw.url}{CHAT}", data=asks("m"), headers=gw.headers, allow_redirects=False
        ) as answer:
            assert answer.status == 307
        port = int(gw.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        line = f"GET {elsewhere.url}/v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        writer.write(f"{line}x-headrace-key: {gw.key}\r\n\r\n".encode())
        assert (await reader.read()).startswith(b"HTTP/1.1 307"), "the configured one answers"
        writer.close()
    assert elsewhere.seen == []
    await elsewhere.stop()


@pytest.mark.parametrize("refuses_first", [False, True])
async def test_a_client_that_leaves_ends_its_call_at_the_upstream_within_a_second(
    tmp_path: Path, refuses_first: bool
) -> None:
    async def waits(connection: Connection) -> None:
        await connection.reader.read()  # until the gateway hangs up
        upstream_ended.set()

    upstream_ended = asyncio.Event()
    scripts: dict[str, Script] = {"main": waits}
    if refuses_first:
        scripts = {"first": answers(503), **scripts}
    named = {name: {"rank": rank, "credential": "none"} for rank, name in enumerate(scripts)}
    async with several(tmp_path, scripts, named) as (gw, found):
        call = asyncio.create_task(ask(gw, "m"))
        await eventually(lambda: found["main"].seen)
        call.cancel()
        await asyncio.wait_for(upstream_ended.wait(), 1)
        [event] = await gw.events(1)
    assert (event.outcome.value, event.attempts) == ("client_aborted", len(scripts))
    assert event.upstream == "main", "the one that was tried last"


async def test_without_capture_the_agent_keeps_working_and_it_is_counted(tmp_path: Path) -> None:
    async with several(tmp_path, {"main": echo}, {"main": {}}, capture=False) as (gw, _):
        assert await ask(gw, "m") == (200, asks("m"))
        assert metric(gw, "headrace_gateway_uncaptured_total") == 1
        feedback = b'{"target":{"step_id":"s"},"name":"n","value":1}'
        async with gw.post("/v1/feedback", feedback) as answer:
            assert answer.status == 202, "what is sent on purpose is taken all the same"
        [event] = await gw.events(1)
        assert type(event).__name__ == "Feedback"


async def test_clients_credentials_are_read_only_where_no_upstream_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAIN_KEY", "sk-own")
    key = {"api_key_env": "MAIN_KEY"}
    for spare, status in ((key, 200), ({}, 401)):
        named = {"main": {"models": ["m"], **key}, "spare": {"models": ["s"], **spare}}
        folder = tmp_path / str(status)
        async with several(folder, {"main": echo, "spare": echo}, named) as (gw, _):
            only_named(gw)
            headers = {"Authorization": f"Bearer {gw.key}"}
            async with gw.http.post(gw.url + CHAT, data=asks("m"), headers=headers) as answer:
                assert answer.status == status


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"url": "api.example.com"}, "gateway.upstreams.main.url"),
        ({"url": "http://u:p@h"}, "api_key_file"),
        ({"url": "http://h", "wieght": 1}, "gateway.upstreams.main.wieght"),
        ({"url": "http://h", "api_key_file": "a", "api_key_env": "B"}, "not both"),
        ({"models": ["*"]}, "gateway.upstreams.main.url"),
    ],
)
def test_a_wrong_table_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: dict[str, Any], says: str
) -> None:
    lines = [f"{name} = {json.dumps(value)}" for name, value in table.items()]
    file = tmp_path / "headrace.toml"
    file.write_text("\n".join(["[gateway.upstreams.main]", *lines]))
    with pytest.raises(ConfigError, match=says):
        load_settings(file)


@pytest.mark.parametrize("setting", ["api_key_env", "api_key_file"])
def test_a_key_that_is_not_there_stops_the_start(tmp_path: Path, setting: str) -> None:
    no_text = tmp_path / "key"
    no_text.write_bytes(b"\xff\xfe")
    value = {"api_key_env": "HOPEFULLY_NOT_SET", "api_key_file": no_text}[setting]
    settings = Settings.model_validate(
        {"gateway": {"upstreams": {"main": {"url": "http://h", setting: value}}}}
    )
    with pytest.raises(ConfigError, match=rf"gateway\.upstreams\.main\.{setting}"):
        Places(settings.gateway)
