"""Every released schema can read what every other released version of it wrote, for ever."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import parse

from schemas.atdp import avro
from tests.unit.schemas.records import RECORD_TYPES


def is_full(one: Any, other: Any) -> bool:
    """Each of the two schemas reads what the other wrote."""
    checker: Any = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]
    schemas = [parse(json.dumps(schema)) for schema in (one, other)]
    return all(
        checker.get_compatibility(reader, writer).compatibility
        is SchemaCompatibilityType.compatible
        for reader, writer in (schemas, schemas[::-1])
    )


def released(cls: type) -> list[Any]:
    """All released versions of a type, oldest first."""
    ids = sorted(i for i, (released_cls, _) in avro.RELEASES.items() if released_cls is cls)
    return [json.loads(avro.released_file(schema_id).read_text()) for schema_id in ids]


@pytest.mark.parametrize("cls", dict.fromkeys(RECORD_TYPES), ids=lambda cls: cls.__name__)
def test_all_versions_are_fully_compatible_and_the_type_is_the_latest(cls: type) -> None:
    versions = released(cls)
    assert versions
    assert all(is_full(one, other) for one in versions for other in versions)
    assert versions[-1] == avro.schema_of(cls), (
        f"{cls.__name__} differs from its released schema: add a version to RELEASES"
    )


def test_every_released_file_is_registered_and_no_name_twice() -> None:
    registered = [avro.released_file(schema_id) for schema_id in avro.RELEASES]
    assert len(set(registered)) == len(registered)
    assert set(avro.RELEASED.glob("*")) == set(registered)


def test_the_files_are_what_the_generator_writes() -> None:
    assert avro.main() == 0


def _without(schema: Any, name: str) -> None:
    schema["fields"] = [field for field in schema["fields"] if field["name"] != name]


def _retype(schema: Any, name: str, kind: Any) -> None:
    next(field for field in schema["fields"] if field["name"] == name)["type"] = kind


def _add(schema: Any, **field: Any) -> None:
    schema["fields"].append({"name": "added", "type": ["null", "string"], **field})


def changes() -> Iterator[tuple[str, Any, bool]]:
    """Name, changed schema of `Reward`, whether the change is fully compatible."""
    start = avro.schema_of(avro.RELEASES[2][0])
    for name, change, allowed in (
        ("an optional field more", lambda s: _add(s, default=None), True),
        ("an optional field less", lambda s: _without(s, "confidence"), True),
        ("a field more without default", _add, False),
        ("a field less without default", lambda s: _without(s, "reward_id"), False),
        ("another type", lambda s: _retype(s, "revision", "string"), False),
        ("a wider type", lambda s: _retype(s, "revision", "double"), False),
        ("a union that is narrower", lambda s: _retype(s, "label", "string"), False),
        ("another name", lambda s: s.update(name="Other"), False),
    ):
        changed = copy.deepcopy(start)
        change(changed)
        yield name, changed, allowed


@pytest.mark.parametrize(("name", "changed", "allowed"), list(changes()), ids=lambda v: str(v)[:40])
def test_the_check_tells_allowed_changes_from_the_others(
    name: str, changed: Any, allowed: bool
) -> None:
    assert is_full(avro.schema_of(avro.RELEASES[2][0]), changed) is allowed


def _parts(schema: Any) -> Iterator[Any]:
    """A schema and every schema inside it."""
    if isinstance(schema, list):
        for member in schema:
            yield from _parts(member)
    elif isinstance(schema, dict):
        yield schema
        inner = [field["type"] for field in schema.get("fields", ())]
        for part in (*inner, schema.get("items", ())):
            yield from _parts(part)


@pytest.mark.parametrize("cls", dict.fromkeys(RECORD_TYPES), ids=lambda cls: cls.__name__)
def test_records_and_fields_are_documented_and_enums_have_a_default(cls: type) -> None:
    for part in _parts(avro.schema_of(cls)):
        if part["type"] == "record":
            assert part["doc"]
            assert all(field["doc"] for field in part["fields"])
        if part["type"] == "enum":
            assert part["default"] in part["symbols"]
