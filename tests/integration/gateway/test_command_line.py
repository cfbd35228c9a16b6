"""`headrace keys` and `headrace feedback` against a running gateway."""

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from infra.cli.main import make_app
from schemas.atdp.types import Feedback
from schemas.errors import ConfigError
from tests.integration.gateway.harness import (
    Connection,
    ScriptedUpstream,
    eventually,
    running,
    whole,
)

pytestmark = pytest.mark.integration


async def ok(connection: Connection) -> None:
    await connection.send(whole(b"{}"))


async def headrace(kafka: str, *arguments: str) -> Result:
    environment = {"HEADRACE_KAFKA__BOOTSTRAP_SERVERS": kafka}
    app = make_app()
    return await asyncio.to_thread(lambda: CliRunner().invoke(app, arguments, env=environment))


async def test_a_key_is_made_used_for_feedback_and_revoked(tmp_path: Path, kafka: str) -> None:
    async with running(tmp_path, kafka, ScriptedUpstream(ok)) as gw:
        scopes = ["--scope", "feedback:write", "--rater", "judge"]
        made = await headrace(kafka, "keys", "create", "--tenant", gw.tenant, *scopes, "--json")
        key = json.loads(made.stdout)
        rate = ["feedback", "response:chatcmpl-1", "--name", "ok", "--key", key["key"], "--url"]
        sent = await headrace(kafka, *rate, gw.url, "--value", "true", "--json")
        assert sent.exit_code == 0, sent.output
        (event,) = await gw.events(1)
        listed = await headrace(kafka, "keys", "list", "--json")
        assert key["key_id"] in {k["key_id"] for k in json.loads(listed.stdout)}
        assert key["key"] not in listed.stdout
        await headrace(kafka, "keys", "revoke", key["key_id"])
        book = gw.gateway.keys
        await eventually(
            lambda: any(r.key_id == key["key_id"] and r.revoked_at for r in book.book.records())
        )
        refused = await headrace(kafka, *rate, gw.url, "--value", "1")
    assert isinstance(event, Feedback)
    assert (event.value, event.rater_id) == (True, "judge")
    assert event.target.response_id == "chatcmpl-1"
    assert json.loads(sent.stdout)["ids"] == [event.reward_id]
    assert isinstance(refused.exception, ConfigError)
    assert "unknown or revoked" in str(refused.exception)


@pytest.mark.parametrize(
    "arguments",
    [
        ["keys", "create", "--tenant", "../x", "--scope", "capture"],
        ["keys", "create", "--tenant", "t", "--scope", "captrue"],
        ["feedback", "x", "--name", "n", "--value", "1", "--key", "k"],
        ["feedback", "step:x", "--name", "n", "--value", "much", "--key", "k"],
    ],
)
async def test_wrong_arguments_are_answered_by_a_sentence(arguments: list[str]) -> None:
    result = await headrace("127.0.0.1:1", *arguments)
    assert isinstance(result.exception, ConfigError)
