"""Reads over clickhouse-connect in a thread; every query names the tenant."""

import asyncio
from collections.abc import Sequence
from typing import Any

from schemas.errors import ConfigError, TransientError
from schemas.settings import Settings

_CONNECT_SECONDS = 5
_REQUEST_SECONDS = 30
MAX_STEPS = 2_000
_STEPS = (
    "SELECT step_id, parent_step_id, step_index, kind, started_at, outcome, model, policy_version,"
    " response_id, new_messages, output, reasoning, prompt_tokens, completion_tokens, redactions"
    " FROM steps WHERE tenant_id = {tenant:String} AND trajectory_id = {trajectory:String}"
    " ORDER BY step_index, started_at, step_id LIMIT {max_steps:UInt32}"
)
_REWARDS = (
    "SELECT reward_id, step_id, name, kind, value, label, text, rater_id, confidence, revision,"
    " retracted, occurred_at FROM rewards"
    " WHERE tenant_id = {tenant:String} AND trajectory_id = {trajectory:String}"
    " ORDER BY occurred_at, reward_id"
)
_TRAJECTORY = (
    "SELECT * FROM trajectories"
    " WHERE tenant_id = {tenant:String} AND trajectory_id = {trajectory:String}"
)


async def read_trajectory(
    settings: Settings, tenant_id: str, trajectory_id: str
) -> dict[str, Any] | None:
    """The trajectory of that tenant as plain values, None where it has none of that id.

    ConfigError where the store's client is not installed, TransientError where the store is away.
    """
    return await asyncio.to_thread(_read, settings, tenant_id, trajectory_id)


def _read(settings: Settings, tenant_id: str, trajectory_id: str) -> dict[str, Any] | None:
    try:
        import clickhouse_connect
        from clickhouse_connect.driver.exceptions import ClickHouseError
    except ImportError:
        raise ConfigError(
            "This gateway is installed without the store's client. Install "
            "headrace[gateway,streams], or query ClickHouse itself."
        ) from None
    store = settings.clickhouse
    named = {"tenant": tenant_id, "trajectory": trajectory_id, "max_steps": MAX_STEPS}
    try:
        client = clickhouse_connect.get_client(
            host=store.host, port=store.port, username=store.user, database=store.database,
            password=settings.clickhouse_password, secure=store.secure,
            ca_cert=None if store.ca_file is None else str(store.ca_file),
            connect_timeout=_CONNECT_SECONDS, send_receive_timeout=_REQUEST_SECONDS,
        )  # fmt: skip
        try:
            steps = _rows(client.query(_STEPS, parameters=named))
            if not steps:
                return None
            summary = _rows(client.query(_TRAJECTORY, parameters=named))
            rewards = _rows(client.query(_REWARDS, parameters=named))
        finally:
            client.close()
    except ClickHouseError as error:
        raise TransientError(
            f"The store cannot be read ({type(error).__name__}). `headrace status` shows whether "
            "it runs.", retry_after_seconds=2,
        ) from error  # fmt: skip
    found = summary[0] if summary else {"tenant_id": tenant_id, "trajectory_id": trajectory_id}
    return {**found, "steps": steps, "rewards": rewards}


def _rows(result: Any) -> list[dict[str, Any]]:
    names: Sequence[str] = result.column_names
    return [dict(zip(names, row, strict=True)) for row in result.result_rows]
