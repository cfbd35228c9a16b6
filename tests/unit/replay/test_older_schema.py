"""A log that holds records of an older schema version is processed like one of the newest."""

import asyncio
import dataclasses
import io
import json
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro
import pytest

from schemas import codec, topics
from schemas.atdp import avro
from schemas.atdp.types import Exchange, Feedback, FeedbackTarget
from schemas.bus import Received
from tests.unit.redaction_processor.captures import START, calls_of, record
from tests.unit.redaction_processor.parts import Redaction

#: Far above the ids that are released.
FIRST_OLDER_ID = 90_000
MESSAGES = [
    {"role": "user", "content": "call jane@example.com"},
    {"role": "assistant", "content": "hello"},
    {"role": "user", "content": "again"},
    {"role": "assistant", "content": "done"},
]
CLEAN = (topics.STEPS, topics.REWARDS, topics.ENDS, topics.dead_letter_topic(topics.RAW_EVENTS))


class Older:
    """A version of each type from before any optional field was added that no event here uses."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ids: dict[type, int] = {}
        files: dict[int, Path] = {}
        known = avro.released_file
        for schema_id, (cls, _) in sorted(avro.RELEASES.items()):
            if cls not in (Exchange, Feedback):
                continue
            older_id = FIRST_OLDER_ID + len(self._ids)
            schema = json.loads(known(schema_id).read_text())
            said = said_by([event for event in events() if type(event) is cls])
            seen, hints = {cls.__name__}, typing.get_type_hints(cls)
            schema["fields"] = [  # a named type is spelled out where it comes first
                avro._field_schema(field, hints[field.name], seen)
                for field in dataclasses.fields(cls)
                if field.name in said
            ]
            files[older_id] = folder / f"{cls.__name__}.0.avsc"
            files[older_id].write_text(json.dumps(schema))
            self._ids[cls] = older_id
            monkeypatch.setitem(avro.RELEASES, older_id, (cls, 0))
        monkeypatch.setattr(avro, "released_file", lambda i: files.get(i) or known(i))
        self._schemas = {
            cls: json.loads(files[older_id].read_text()) for cls, older_id in self._ids.items()
        }

    def num_fields_left_out(self, event: Any) -> int:
        return len(avro.to_plain(event)) - len(self._schemas[type(event)]["fields"])

    def record(self, event: Any, offset: int) -> Received:
        """The raw record as a producer of that time wrote it."""
        schema = self._schemas[type(event)]
        names = [field["name"] for field in schema["fields"]]
        plain = avro.to_plain(event)
        buffer = io.BytesIO()
        buffer.write(codec.HEADER.pack(codec.MAGIC, self._ids[type(event)]))
        parsed = fastavro.parse_schema(schema)
        fastavro.schemaless_writer(buffer, parsed, {name: plain[name] for name in names})
        newest = record(event, offset)
        return Received(newest.topic, 0, offset, newest.key, buffer.getvalue())


def events() -> list[Any]:
    """Calls and feedback without anything that only newer versions can say."""
    rating = Feedback(
        reward_id="r-1", tenant_id="acme", target=FeedbackTarget(step_id="step-1-3"),
        name="resolved", occurred_at=START, received_at=START,
    )  # fmt: skip
    return [*calls_of(MESSAGES, "1"), rating]


def said_by(found: Sequence[Any]) -> set[str]:
    """Fields that have no default, or another value than that."""
    return {
        field.name
        for event in found
        for field in dataclasses.fields(event)
        if field.default is dataclasses.MISSING or getattr(event, field.name) != field.default
    }


def test_old_and_new_records_of_one_log_make_the_same_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = Older(tmp_path, monkeypatch)
    assert all(older.num_fields_left_out(event) > 3 for event in events())
    made: list[dict[str, list[Any]]] = []
    for is_old in ((), (0, 2), (1,), (0, 1, 2)):
        redaction = Redaction(tmp_path / f"case-{len(made)}")
        records = [
            (older.record if number in is_old else record)(event, number)
            for number, event in enumerate(events())
        ]
        asyncio.run(redaction.send(*records))
        made.append({topic: redaction.events(topic) for topic in CLEAN})
    assert len(made[0][topics.STEPS]) == 2
    assert made[0][CLEAN[3]] == []
    assert made[0] == made[1] == made[2] == made[3]
