"""headrace keys: make, list and revoke the keys of the gateway."""

import json
import re
import secrets
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.options import AsJson, DataDir
from schemas.errors import ConfigError, TransientError
from schemas.ids import is_tenant_id

if TYPE_CHECKING:
    from schemas.atdp.internal import KeyRecord
    from schemas.bus import Bus

_DELIVERY_SECONDS = 15.0
_ID = re.compile(r"[A-Za-z0-9._:@+=-]{1,200}\Z")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    keys = typer.Typer(help="Make, list and revoke the gateway's keys.", no_args_is_help=True)
    for command in (create, list_keys, revoke):
        keys.command("list" if command is list_keys else None)(command)
    app.add_typer(keys, name="keys")


def make_key(
    tenant_id: str,
    scopes: tuple[str, ...],
    agent_id: str | None = None,
    rater_id: str | None = None,
) -> tuple[str, "KeyRecord"]:
    """A new key and the record to publish of it. ConfigError for a name that cannot be used."""
    from inference.access.keys import SCOPES, key_hash
    from schemas.atdp.internal import KeyRecord

    if not is_tenant_id(tenant_id):
        raise ConfigError(
            "Name a tenant with 1 to 63 letters, digits, _ or -; a letter or digit comes first."
        )
    for name, value in (("--agent", agent_id), ("--rater", rater_id)):
        if value is not None and not _ID.match(value):
            raise ConfigError(f"{name} takes 1 to 200 letters, digits or any of . _ : @ + = -")
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        raise ConfigError(f"Give --scope one of {', '.join(SCOPES)}; several times for several.")
    key = f"hr_{tenant_id}_{secrets.token_urlsafe(32)}"
    record = KeyRecord(
        key_id=f"key_{secrets.token_hex(8)}",
        key_hash=key_hash(key),
        tenant_id=tenant_id,
        scopes=scopes,
        agent_id=agent_id,
        rater_id=rater_id,
        created_at=datetime.now(UTC),
    )
    return key, record


def publish_key(bus: "Bus", record: "KeyRecord") -> None:
    """Publish a key's record. TransientError when Kafka does not confirm it in time."""
    from schemas import codec, topics
    from schemas.bus import Delivery, Record

    reports: list[Delivery] = []
    producer = bus.producer("headrace.cli")
    value = Record(topics.KEYS, record.key_id.encode(), codec.encode(record))
    producer.send(value, reports.append)
    producer.flush(_DELIVERY_SECONDS)
    if not reports:
        raise TransientError("Kafka did not confirm the key. Is it up? `headrace status` shows it.")
    producer.close()
    if reports[0].error is not None:
        raise reports[0].error


def read_keys(bus: "Bus") -> dict[str, "KeyRecord"]:
    """The latest record of every key, by its id."""
    from schemas import codec, topics

    admin = bus.admin()
    ends = admin.watermarks(topics.KEYS)
    admin.close()
    found: dict[str, KeyRecord] = {}
    waiting = {p: end for p, (first, end) in ends.items() if end > first}
    consumer = bus.consumer()
    consumer.assign({(topics.KEYS, p): ends[p][0] for p in waiting})
    deadline = datetime.now(UTC).timestamp() + _DELIVERY_SECONDS
    while waiting:
        for message in consumer.poll(500, 0.2):
            record = codec.decode(message.value)
            found[record.key_id] = record
            if message.offset + 1 >= waiting.get(message.partition, 0):
                waiting.pop(message.partition, None)
        if datetime.now(UTC).timestamp() > deadline:
            raise TransientError(
                "The keys could not be read in time. Is Kafka up? `headrace status` shows it."
            )
    consumer.close()
    return found


def create(
    tenant: Annotated[str, typer.Option(help="Owner of everything captured through the key.")],
    scope: Annotated[
        list[str],
        typer.Option(
            help="capture, feedback:write, events:write, trajectories:read or admin (all of them); "
            "several times for several."
        ),
    ],
    agent: Annotated[str | None, typer.Option(help="Agent that uses it.")] = None,
    rater: Annotated[str | None, typer.Option(help="Rater its feedback is ascribed to.")] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and show it. It is shown only once.

    Example: headrace keys create --tenant acme --scope capture --scope feedback:write
    """
    key, record = make_key(tenant, tuple(dict.fromkeys(scope)), agent, rater)
    publish_key(_bus(data_dir), record)
    if as_json:
        typer.echo(json.dumps({"key": key, **_shown(record)}))
        return
    typer.echo(key)
    typer.secho(
        f"{record.key_id} of tenant {tenant}; it is not stored and cannot be shown again.", err=True
    )


def list_keys(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show the keys, without the keys themselves.

    Example: headrace keys list --json
    """
    records = sorted(read_keys(_bus(data_dir)).values(), key=lambda r: r.created_at)
    if as_json:
        typer.echo(json.dumps([_shown(record) for record in records]))
        return
    for record in records:
        state = f"revoked {record.revoked_at:%Y-%m-%d %H:%M}" if record.revoked_at else "good"
        scopes = ",".join(record.scopes)
        typer.echo(f"{record.key_id}  {record.tenant_id}  {scopes}  {state}")


def revoke(
    key_id: Annotated[str, typer.Argument(help="Id of the key; `headrace keys list` shows it.")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """End a key. Gateways follow within moments.

    Example: headrace keys revoke key_0123456789abcdef
    """
    bus = _bus(data_dir)
    record = read_keys(bus).get(key_id)
    if record is None:
        raise ConfigError(f"There is no key {key_id}. `headrace keys list` shows them.")
    record = replace(record, revoked_at=record.revoked_at or datetime.now(UTC))
    publish_key(bus, record)
    typer.echo(json.dumps(_shown(record)) if as_json else f"{key_id} is revoked")


def _shown(record: "KeyRecord") -> dict[str, object]:
    return {
        "key_id": record.key_id,
        "tenant_id": record.tenant_id,
        "scopes": list(record.scopes),
        "agent_id": record.agent_id,
        "rater_id": record.rater_id,
        "created_at": record.created_at.isoformat(),
        "revoked_at": record.revoked_at.isoformat() if record.revoked_at else None,
    }


def _bus(data_dir: DataDir) -> "Bus":
    from infra.local.launch import find_settings
    from schemas.bus.kafka import KafkaBus

    return KafkaBus.from_settings(find_settings(data_dir).kafka)
