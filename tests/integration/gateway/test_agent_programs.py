"""Real agent programs do a task with a tool through the gateway and leave one trajectory each.

The upstream is scripted: it asks for one command in the agent's own shell tool, then says that all
is done. The programs run on an empty home and reach nothing but this machine.
"""

import asyncio
import json
import re
import signal
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from infra.local.processes import signal_group
from schemas.atdp.types import Step, StepKind
from tests import agent_programs
from tests.agent_programs import PROGRAMS, Program, prepared
from tests.integration.gateway.harness import Connection, ScriptedUpstream, running, whole
from tests.integration.gateway.test_sdks import placed
from tests.model_answers import answer
from tests.unit.runtime_harness import memory_bus

pytestmark = [pytest.mark.integration, pytest.mark.agents, pytest.mark.timeout(400)]

TASK = "Write the file."
COMMAND = "echo by-the-agent > result.txt && echo marker-42"
SHELLS = ("Bash", "bash", "exec_command", "terminal")
FINAL = "All is done."
#: Tools that start a subagent, with what each must be told beside its task.
SPAWNS: dict[str, dict[str, str]] = {
    "Agent": {"subagent_type": "general-purpose", "description": "write it"},
    "Task": {"subagent_type": "general-purpose", "description": "write it"},
    "task": {"subagent_type": "general", "description": "write it"},
    "spawn_agent": {},
    "delegate_task": {},
}
#: Where each takes its task; the others in `prompt`.
TASK_FIELDS = {"spawn_agent": "message", "delegate_task": "goal"}
#: A tool that waits for subagents, which do not hold up the agent that started them.
WAIT = "wait_agent"
#: What subagents are asked, and what they say.
HANDED = "Run the command that you know of."
REPORT = "The helper is done."
#: An agent that asks more often goes round in a circle.
MAX_ANSWERS = 20
#: A program that starts on a busy machine takes its time.
RUN_SECONDS = 300.0


class Model:
    """An upstream for one run of an agent, in any dialect."""

    def __init__(self, ends_with: str | None) -> None:
        self._ends_with = ends_with
        self.num_answers = 0

    async def script(self, connection: Connection) -> None:
        """Ask for the command once, then end; a list of models is not there."""
        method, target, _ = connection.head.split(b" ", 2)
        path = target.decode().partition("?")[0]
        if method != b"POST":
            await connection.send(b"HTTP/1.1 404 X\r\nContent-Length: 2\r\n\r\n{}")
        elif path.endswith("count_tokens"):
            await connection.send(whole(b'{"input_tokens":5}'))
        else:
            request = json.loads(connection.body)
            self.num_answers += 1
            said = self._said(path, request, is_done=b"marker-42" in connection.body)
            kind, body = answer(path, request, said, f"agent-{self.num_answers}")
            head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
            await connection.send(head.encode() + body)

    def _said(self, path: str, request: dict[str, Any], *, is_done: bool) -> Any:
        tool = _tool(request, SHELLS)
        if tool is None:
            return _text(path, "A title")  # a call beside the work
        if not is_done:
            return _call(path, tool, _command(tool, COMMAND))
        if self._ends_with is None:
            return _text(path, FINAL)
        return _call(path, tool, _command(tool, self._ends_with))


class Delegating(Model):
    """Its agent hands the task to a subagent, which does it. Only the agent's own calls hold the
    words of the task."""

    def _said(self, path: str, request: dict[str, Any], *, is_done: bool) -> Any:
        shell, spawn = _tool(request, SHELLS), _tool(request, SPAWNS)
        said = json.dumps(request.get("messages") or request.get("input"))
        if shell is None:
            return _text(path, "A title")
        if TASK not in said:
            if is_done:
                return _text(path, REPORT)
            return _call(path, shell, _command(shell, COMMAND))
        if spawn is None or REPORT in said or self.num_answers > MAX_ANSWERS:
            return _text(path, FINAL)
        wait, started = _tool(request, [WAIT]), _STARTED.search(said)
        if wait is not None and started is not None:
            return _call(path, wait, {"targets": [started[1]]})
        name = spawn["name"]
        return _call(path, spawn, SPAWNS[name] | {TASK_FIELDS.get(name, "prompt"): HANDED})


#: What Codex's tool says once a subagent runs.
_STARTED = re.compile(r"agent_id\W+([0-9a-f-]{36})")


def _tool(request: dict[str, Any], names: Collection[str]) -> dict[str, Any] | None:
    """The agent's tool of one of these names, with the namespace that it stands in."""
    tools = [tool.get("function", tool) for tool in request.get("tools") or []]
    spaces = [tool for tool in tools if tool.get("type") == "namespace"]
    tools += [one | {"namespace": space["name"]} for space in spaces for one in space["tools"]]
    return next((tool for tool in tools if tool.get("name") in names), None)


def _command(tool: dict[str, Any], command: str) -> dict[str, Any]:
    """The arguments of the shell tool."""
    fields = (tool.get("parameters") or tool["input_schema"])["properties"]
    given = {"cmd" if "cmd" in fields else "command": command}
    return given | ({"description": "Write a file"} if "description" in fields else {})


def _call(path: str, tool: dict[str, Any], given: dict[str, Any]) -> Any:
    name, arguments = tool["name"], json.dumps(given)
    if "responses" in path:
        space = {"namespace": tool["namespace"]} if "namespace" in tool else {}
        return [{"id": "fc_1", "type": "function_call", "call_id": f"call_{name}", "name": name,
                 "arguments": arguments, "status": "completed", **space}]  # fmt: skip
    if "messages" in path:
        return {"content": [{"type": "tool_use", "id": "toolu_1", "name": name, "input": given}]}
    function = {"name": name, "arguments": arguments}
    calls = [{"id": "call_1", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _text(path: str, text: str) -> Any:
    if "responses" in path:
        part = {"type": "output_text", "text": text, "annotations": []}
        return [{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
                 "content": [part]}]  # fmt: skip
    return {"role": "assistant", "content": text}


@pytest.fixture(scope="module")
def programs() -> Path:
    folder = agent_programs.folder()
    if not folder.is_dir():
        pytest.skip(f"agent programs absent: {folder} (`{agent_programs.INSTALL}` makes it)")
    return folder


async def ran(
    program: Program, model: Model, programs: Path, folder: Path
) -> tuple[str, list[Step]]:  # fmt: skip
    """What an agent printed at its task, which it did, and its steps."""
    upstream = ScriptedUpstream(model.script)
    async with running(folder / "gateway", memory_bus(4), upstream) as gateway:
        base = f"{gateway.url}/k/{gateway.key}"
        executable = programs / program.executable
        exit_code, output = await run(program, executable, base, folder / "work")
        events = await gateway.events(len(upstream.seen))
    assert exit_code == 0, output
    assert (folder / "work" / "result.txt").read_text() == "by-the-agent\n", output
    named = {event.trajectory_id is not None for event in events if event.method == "POST"}
    assert named == {program.sends_session}
    steps = await placed(events, folder / "lane")
    return output, [step for step in steps if step.kind is StepKind.MODEL_CALL]


async def run(program: Program, executable: Path, base: str, folder: Path) -> tuple[int, str]:
    """Exit code and output of a run in `folder`, with a home beside it."""
    home = folder.with_name("home")
    for made in (folder, home):
        made.mkdir()
    process = await asyncio.create_subprocess_exec(
        str(executable), *program.command(base, TASK), cwd=folder,
        env=prepared(program, base, home), stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = await asyncio.wait_for(process.communicate(), RUN_SECONDS)
    finally:
        signal_group(process.pid, signal.SIGKILL)  # with whatever it left running
    return process.returncode or 0, output.decode(errors="replace")[-3000:]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
async def test_an_agent_does_its_task_and_leaves_one_trajectory(
    program: Program, programs: Path, tmp_path: Path
) -> None:
    _, calls = await ran(program, Model(program.ends_with), programs, tmp_path)
    asked, done = [step for step in calls if step.lineage.branch != "beside"]
    assert done.lineage.parent_step_id == asked.step_id
    assert len({step.trajectory_id for step in calls}) == 1
    assert "marker-42" in str(done.observation.new_messages)
    if program.ends_with is None:
        assert FINAL in done.action_and_result.output[0].body


@pytest.mark.parametrize(
    "program", [p for p in PROGRAMS if p.name in ("claude-code", "codex", "opencode")],
    ids=lambda program: program.name,
)  # fmt: skip
async def test_a_subagent_is_a_branch_of_its_agents_trajectory(
    program: Program, programs: Path, tmp_path: Path
) -> None:
    output, calls = await ran(program, Delegating(None), programs, tmp_path)
    assert FINAL in output
    assert len({step.trajectory_id for step in calls}) == 1
    own = [step for step in calls if step.lineage.branch is None]
    helpers = [step for step in calls if step.lineage.subagent_id is not None]
    spawning, *waiting, ending = own
    first, last = helpers
    assert {step.lineage.branch for step in helpers} == {first.lineage.subagent_id}
    assert first.lineage.parent_step_id == spawning.step_id, "the step whose call gave it its task"
    assert last.lineage.parent_step_id == first.step_id
    parents = [step.lineage.parent_step_id for step in (*waiting, ending)]
    assert parents == [step.step_id for step in (spawning, *waiting)]
    assert HANDED in str(first.observation.new_messages)
    assert REPORT in str(ending.observation.new_messages)
    assert not [gap for step in calls for gap in step.gaps if "lineage" in gap.field]


async def test_a_subagent_that_nothing_names_is_a_trajectory_of_its_own(
    programs: Path, tmp_path: Path
) -> None:
    (program,) = [p for p in PROGRAMS if p.name == "hermes"]
    output, calls = await ran(program, Delegating(None), programs, tmp_path)
    assert FINAL in output
    own = [step for step in calls if step.trajectory_id == calls[0].trajectory_id]
    helpers = [step for step in calls if step not in own]
    assert len({step.trajectory_id for step in helpers}) == 1
    assert TASK in str(own[0].observation.new_messages)
    assert HANDED in str(helpers[0].observation.new_messages)
    assert REPORT in str(own[-1].observation.new_messages)
    for steps in (own, helpers):
        parents = [step.lineage.parent_step_id for step in steps]
        assert parents == [None, *(step.step_id for step in steps[:-1])]
