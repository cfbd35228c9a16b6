"""Text that nothing has seen before, and the requests and events made of it. Seeded."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import orjson

from infra.bench.upstream import MODEL, Pace, whole_answer
from schemas.atdp.types import (
    ActionResult,
    Exchange,
    Governance,
    HarnessState,
    Lineage,
    Message,
    ModelVersion,
    Observation,
    Outcome,
    Step,
    StepKind,
    Usage,
)
from schemas.ids import derive_id


def _words(listing: str) -> list[str]:
    return listing.split()


_WORDS = _words(
    """
account address agent answer arrival backup balance basket before better between bicycle blue
bottle branch bright broken budget button cable camera careful carton change charge clean clear
client color common complete connect contract copper corner cotton cover create current damage
dark deliver design detail device different direct dispatch double early electric empty engine
entry evening exact example expect express fabric factory final finish first fixed follow form
fresh friend front garden general glass green ground handle harbor heavy history hold hour
house image inside invoice island item jacket journey keep kitchen label large later leather
letter level light list little local long machine manual market material measure metal middle
minute mirror missing model modern month morning narrow near night normal note number office
older open orange order other outside oven package paint paper parcel part pattern people phone
picture plain plastic plate point pocket power present pretty price printer problem product
quick quiet quite range reach ready reason receipt record refund regular remote repair replace
report request return river road room round sample screen second season sender service several
shelf shipping short silver simple single small smooth soft spare special standard station steel
stock store strong summer supply surface switch table ticket timber today together travel
trouble under unit update useful value vessel visit warehouse warm water weather week weight white
window winter wire without wooden work wrong yellow yesterday
"""
)
_FIRST = ("Amelia", "Bruno", "Chiara", "Dmitri", "Elena", "Farid", "Greta", "Hiro", "Ines", "Jonas")
_LAST = ("Abbott", "Brandt", "Castillo", "Dubois", "Eriksen", "Fontana", "Gruber", "Haddad", "Ito")
_SYSTEM = "You are the assistant of a shop. Answer in one paragraph and stay polite. "
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def prose(rng: random.Random, num_characters: int) -> str:
    """Sentences of everyday words; every fourth one holds a name or an e-mail address."""
    parts: list[str] = []
    size = 0
    while size < num_characters:
        words = rng.choices(_WORDS, k=rng.randint(6, 14))
        kind = rng.randrange(8)
        if kind == 0:
            words.insert(3, f"{rng.choice(_FIRST)} {rng.choice(_LAST)}")
        elif kind == 1:
            words.append(f"{rng.choice(_FIRST).lower()}.{rng.randrange(10_000)}@example.com")
        sentence = " ".join(words)
        parts.append(f"{sentence[0].upper()}{sentence[1:]}.")
        size += len(parts[-1]) + 1
    return " ".join(parts)[:num_characters]


def request_body(content: str, *, stream: bool = False, pace: Pace | None = None) -> bytes:
    """A chat request with one system message and one of the user."""
    system = _SYSTEM if pace is None else f"{_SYSTEM}{pace.asked}"
    messages = [{"role": "system", "content": system}, {"role": "user", "content": content}]
    return orjson.dumps({"model": MODEL, "messages": messages, "stream": stream})


def steps(seed: int, number: int, num_bytes: int) -> Iterator[Step]:
    """Clean steps, ten a trajectory, whose messages hold about `num_bytes`."""
    rng = random.Random(seed)
    for index in range(number):
        trajectory = derive_id("bench-trajectory", str(seed), str(index // 10))
        at = _EPOCH + timedelta(milliseconds=index)
        half = num_bytes // 2
        yield Step(
            step_id=derive_id("bench-step", str(seed), str(index)),
            event_id=derive_id("bench-event", str(seed), str(index)),
            tenant_id="bench",
            trajectory_id=trajectory,
            kind=StepKind.MODEL_CALL,
            dialect="openai.chat",
            started_at=at,
            ended_at=at + timedelta(milliseconds=900),
            outcome=Outcome.COMPLETE,
            lineage=Lineage(step_index=index % 10),
            observation=Observation(new_messages=(_message("user", prose(rng, half)),)),
            harness_state=HarnessState(),
            action_and_result=ActionResult(
                output=(_message("assistant", prose(rng, half)),), usage=Usage()
            ),
            model_version=ModelVersion(model=MODEL),
            governance=Governance(),
        )


def _message(role: str, content: str) -> Message:
    return Message(role=role, body=orjson.dumps({"role": role, "content": content}).decode())


def exchanges(seed: int, number: int, calls_each: int = 10) -> Iterator[tuple[str, Exchange]]:
    """Raw calls as the gateway captures them, in conversations: each call carries its history.

    With each, the trajectory that its client named.
    """
    rng = random.Random(seed)
    messages: list[dict[str, str]] = []
    for index in range(number):
        turn = index % calls_each
        if turn == 0:
            messages = [{"role": "system", "content": _SYSTEM}]
        messages.append({"role": "user", "content": prose(rng, 300)})
        trajectory = derive_id("bench-call", str(seed), str(index // calls_each))
        response_id = f"chatcmpl-replay-{seed}-{index}"
        answer = whole_answer(response_id)
        at = _EPOCH + timedelta(milliseconds=10 * index)
        yield (
            trajectory,
            Exchange(
                event_id=derive_id("bench-exchange", str(seed), str(index)),
                tenant_id="bench",
                step_id=derive_id("bench-raw-step", str(seed), str(index)),
                trajectory_id=trajectory,
                method="POST",
                path="/v1/chat/completions",
                request_body=orjson.dumps({"model": MODEL, "messages": messages}),
                response_body=answer,
                status=200,
                outcome=Outcome.COMPLETE,
                started_at=at,
                ended_at=at + timedelta(milliseconds=900),
            ),
        )
        messages.append(orjson.loads(answer)["choices"][0]["message"])
