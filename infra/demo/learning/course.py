"""The course: examination, control, traffic with late rewards while the model learns, examination.

Agents and customers run in this process, everything else in the stack.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TypeVar

from infra.demo.learning.agent import Agent
from infra.demo.learning.customers import Customers
from infra.demo.learning.examiner import Marks, mark
from infra.demo.learning.tasks import Task, tasks

_DELAY_SECONDS = 1.0
_SHOW_SECONDS = 2.0
#: Versions between sampling and learning up to which customers come as fast as they can.
_EASY_LAG = 4.0
_WINDOW = 200
_EXAM_SEED = 97
_NO_MARKS = Marks((), 0)
_Question = TypeVar("_Question")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is played. Learning ends with the first limit that is reached.

    `controls` says whether the first and the last fifth of the tasks are played before learning,
    too, with the model as it is.
    """

    seed: int
    num_tasks: int = 6_400
    controls: bool = True
    num_exam: int = 300
    concurrency: int = 32
    max_updates: int = 100
    max_seconds: float = 360.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One task: seconds since learning began, reward."""

    at_seconds: float
    reward: float


@dataclass(slots=True)
class Course:
    """What happened, in the order in which answers came."""

    outcomes: list[Outcome] = field(default_factory=list)
    control: list[Outcome] = field(default_factory=list)
    exam_before: Marks = _NO_MARKS
    exam_after: Marks = _NO_MARKS
    num_updates: int = 0
    lag: float = 0.0
    num_failed: int = 0
    num_rewards_failed: int = 0
    learn_seconds: float = 0.0


class Board:
    """The trainer's own lines, as it writes them."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def lines(self) -> list[dict[str, float]]:
        """The figures of all steps so far."""
        try:
            text = self._file.read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


Show = Callable[[str], None]


class Classroom:
    """Where a course is held: agents, customers, the trainer's board."""

    def __init__(
        self, gateway_url: str, agent_key: str, feedback_key: str, model: str, board: Board
    ) -> None:
        self._gateway_url, self._model = gateway_url, model
        self._agent_key, self._feedback_key = agent_key, feedback_key
        self._board = board

    async def hold(self, plan: Plan, show: Show, show_line: Show) -> Course:
        """The whole course."""
        agent = Agent(f"{self._gateway_url}/v1", self._agent_key, self._model)
        course = Course()
        try:
            show(f"examination of {plan.num_exam} held-out tasks, before")
            course.exam_before = await self._examine(agent, plan)
            if plan.controls:
                show(f"control: the first and last {plan.num_tasks // 5} tasks, without a reward")
                course.control = await self._control(agent, plan)
            show("traffic; customers rate each answer a second later")
            await self._learn(agent, plan, course, show_line)
            show(f"examination of {plan.num_exam} held-out tasks, after")
            course.exam_after = await self._examine(agent, plan)
        finally:
            await agent.close()
        return course

    async def _examine(self, agent: Agent, plan: Plan) -> Marks:
        """A call that failed counts as a wrong answer."""
        asked = islice(tasks(plan.seed + _EXAM_SEED, held_out=True), plan.num_exam)
        questions = [task.request for task in asked]
        answers = [""] * len(questions)

        async def one(number: int) -> None:
            reply = await agent.answer(questions[number])
            if reply is not None:
                answers[number] = reply.text

        await _spread(iter(range(len(questions))), one, plan.concurrency, lambda: False)
        return mark([*zip(questions, answers, strict=True)])

    async def _control(self, agent: Agent, plan: Plan) -> list[Outcome]:
        """The fifths of the course that are compared, with the model as it is."""
        fifth = plan.num_tasks // 5
        chosen = list(islice(tasks(plan.seed), plan.num_tasks))
        found: list[Outcome] = []
        started = time.monotonic()

        async def one(task: Task) -> None:
            reply = await agent.answer(task.request)
            if reply is not None:
                right = float(reply.text.strip() == task.answer.strip())
                found.append(Outcome(time.monotonic() - started, right))

        await _spread(iter(chosen[:fifth] + chosen[-fifth:]), one, plan.concurrency, lambda: False)
        return found

    async def _learn(self, agent: Agent, plan: Plan, course: Course, show_line: Show) -> None:
        customers = Customers(self._gateway_url, self._feedback_key, _DELAY_SECONDS)
        stop, started = asyncio.Event(), time.monotonic()
        first_step = len(self._board.lines())

        async def one(task: Task) -> None:
            await asyncio.sleep(_pause_seconds(course.lag))
            reply = await agent.answer(task.request)
            if reply is None:
                course.num_failed += 1
                return
            reward = customers.judge(task, reply.response_id, reply.text)
            course.outcomes.append(Outcome(time.monotonic() - started, reward))

        def is_over() -> bool:
            late = time.monotonic() - started > plan.max_seconds
            return late or course.num_updates >= plan.max_updates

        async def tell() -> None:
            while not stop.is_set():
                steps = self._board.lines()[first_step:]
                course.num_updates = len(steps)
                course.lag = steps[-1].get("lag", 0.0) if steps else 0.0
                show_line(_line(course, steps, started))
                await asyncio.sleep(_SHOW_SECONDS)

        sending, telling = asyncio.create_task(customers.send(stop)), asyncio.create_task(tell())
        try:
            traffic = islice(tasks(plan.seed), plan.num_tasks)
            await _spread(traffic, one, plan.concurrency, is_over)
        finally:
            stop.set()
            await asyncio.gather(sending, telling)
        course.learn_seconds = time.monotonic() - started
        course.num_rewards_failed = customers.num_failed


def _pause_seconds(lag: float) -> float:
    """Customers come more slowly while the trainer is behind: on a busy machine answers would be
    too old to learn from before it gets to them."""
    return max(0.0, lag - _EASY_LAG) * 0.25


def _line(course: Course, steps: list[dict[str, float]], started: float) -> str:
    recent = [outcome.reward for outcome in course.outcomes[-_WINDOW:]]
    reward = f"{sum(recent) / len(recent):.2f}" if recent else "-"
    newest = steps[-1] if steps else {}
    return (
        f"{time.monotonic() - started:4.0f} s  {len(course.outcomes):5} tasks  reward {reward}  "
        f"version {newest.get('version', 1):.0f}  lag {newest.get('lag', 0):.1f}  "
        f"updates {len(steps)}"
    )


async def _spread(
    questions: Iterator[_Question],
    one: Callable[[_Question], Awaitable[None]],
    concurrency: int,
    is_over: Callable[[], bool],
) -> None:
    """So many at a time until there are no more, or it is over."""

    async def work() -> None:
        for task in questions:
            if is_over():
                return
            await one(task)

    await asyncio.gather(*(work() for _ in range(concurrency)))
