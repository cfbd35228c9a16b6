"""headrace promote, rollback, workers: which version is served, and by whom."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infra.cli.options import AsJson, DataDir
from schemas.errors import ConfigError, TransientError

if TYPE_CHECKING:
    from infra.rings import Watch, WorkerView
    from schemas.atdp.weights import Proposal, ProposalAnswer, RingAssignment, VersionRef

Policy = Annotated[str, typer.Option("--policy", "-p", help="Policy line.")]
Ring = Annotated[str, typer.Option("--ring", "-r", help="Ring of workers.")]
Reason = Annotated[str, typer.Option(help="Why, for whoever asks later.")]
Wait = Annotated[
    float,
    typer.Option(min=0, help="Seconds to wait for the answer, and as long again for the workers."),
]
_WAIT_SECONDS = 30.0


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (promote, rollback, workers):
        app.command()(command)


def promote(
    version: Annotated[int, typer.Argument(help="Version to serve.", min=1)],
    policy: Policy = "main",
    ring: Ring = "default",
    canary: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Share of the trajectories that gets it on trial, as in 0.1. "
            "Needs two workers. Without it the version is served to all.",
        ),
    ] = None,
    reason: Reason = "",
    wait: Wait = _WAIT_SECONDS,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Let a ring of workers serve a version, or try it on some.

    Writes a proposal; the promotion process answers it, workers apply it live and prove it. A
    version that every worker refuses is taken back.

    Example: headrace promote 3 --policy support --canary 0.1
    """
    from infra.rings import make_proposal

    with _rings(data_dir) as watch:
        proposal = make_proposal(watch, policy, ring, version, canary_share=canary, reason=reason)
        _propose(watch, proposal, wait, as_json=as_json)


def rollback(
    to: Annotated[
        int | None,
        typer.Option(min=1, help="Version to serve. Default: the one served before this one."),
    ] = None,
    policy: Policy = "main",
    ring: Ring = "default",
    reason: Reason = "rollback",
    wait: Wait = _WAIT_SECONDS,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Let a ring serve an earlier version again; during a trial, end the trial.

    Example: headrace rollback --to 2 --policy support
    """
    from infra.rings import make_proposal, version_before

    with _rings(data_dir) as watch:
        version = version_before(watch, policy, ring) if to is None else to
        proposal = make_proposal(watch, policy, ring, version, reason=reason)
        _propose(watch, proposal, wait, as_json=as_json)


def workers(policy: Policy = "main", data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show the rings of a policy and its workers: what each serves, and whether it gets calls.

    Example: headrace workers --policy support --json
    """
    with _rings(data_dir) as watch:
        rings = [ring for (name, _), ring in sorted(watch.state.rings.items()) if name == policy]
        views = watch.workers(policy)
    if as_json:
        shown = {
            "rings": [_ring_json(r) for r in rings],
            "workers": [_worker_json(v) for v in views],
        }
        typer.echo(json.dumps({"policy": policy, **shown}))
        return
    for ring in rings:
        typer.echo(_ring_line(ring))
    for view in views:
        typer.echo(_worker_line(view))
    if not rings:
        typer.echo(f"Policy {policy} has no ring yet. `headrace promote VERSION` makes one.")
    if not views:
        typer.echo(f"Policy {policy} has no worker. `headrace up --with model` starts one.")


@contextmanager
def _rings(data_dir: Path | None) -> "Iterator[Watch]":
    """The state of all rings, as the process that decides sees it."""
    from infra.connection import open_bus
    from infra.rings import watching
    from schemas.secrets import load_weights_key

    with open_bus(data_dir) as (settings, bus, _):
        key = load_weights_key(settings.weights_key_file)
        with watching(bus, key) as watch:
            yield watch


def _propose(watch: "Watch", proposal: "Proposal", wait: float, *, as_json: bool) -> None:
    watch.propose(proposal)
    version = proposal.target.version
    if wait == 0:
        _print({"status": "proposed", "version": version}, "proposed", as_json=as_json)
        return
    answer = watch.answer_to(proposal, wait)
    if answer is None:
        raise TransientError(
            f"Nobody answered within {wait:g} s. The proposal stays and counts once the promotion "
            "process runs; `python -m controlplane.promotion` starts it."
        )
    if answer.status.value != "accepted":
        raise ConfigError(answer.reason)
    assigned = watch.ring(proposal.policy, proposal.ring)
    if assigned is None:
        raise TransientError("The answer came without its assignment. Run the command again.")
    is_settled = watch.settle(assigned, wait)
    _report(watch, answer, assigned, is_settled=is_settled, as_json=as_json)


def _report(
    watch: "Watch", answer: "ProposalAnswer", assigned: "RingAssignment", *,
    is_settled: bool, as_json: bool,
) -> None:  # fmt: skip
    ring = watch.ring(assigned.policy, assigned.ring) or assigned
    views = watch.workers(assigned.policy, assigned.ring)
    found = {
        "status": answer.status.value,
        "version": answer.version,
        "ring": _ring_json(ring),
        "workers": [_worker_json(view) for view in views],
        "settled": is_settled,
    }
    lines = [_ring_line(ring), *map(_worker_line, views)]
    if not views:
        lines.append("No worker of this ring is there; those that come will serve it.")
    if not is_settled:
        lines.append("Not every worker has answered yet. `headrace workers` shows them later.")
    _print(found, "\n".join(lines), as_json=as_json)
    if ring.sequence > (answer.sequence or 0) and ring.state.value in {"rolled_back", "frozen"}:
        raise ConfigError(f"{ring.reason}. `headrace workers` shows what each of them says.")


def _ring_line(ring: "RingAssignment") -> str:
    what = f"version {ring.stable.version}"
    if ring.canary is not None:
        what += f", version {ring.canary.version} on trial for {ring.canary_share:.0%}"
    why = f"  ({ring.reason})" if ring.reason else ""
    return f"ring {ring.ring} of {ring.policy}: {what}, {ring.state.value}{why}"


def _worker_line(view: "WorkerView") -> str:
    beat, ack = view.heartbeat, view.ack
    serving = f"serves {_version(view.serves)}" if view.may_get_calls else "gets no calls"
    parts = [f"  {beat.worker_id}  {beat.address}  {serving}"]
    if view.target is not None and view.target != view.serves:
        parts.append(f"shall serve {view.target.version}")
    if ack is not None:
        parts.append(f"{ack.status.value} {ack.version}{_times(ack.pause_ms, ack.apply_ms)}")
        if ack.error:
            parts.append(ack.error)
    parts.append(f"heard {view.age_seconds:.0f} s ago")
    return ", ".join(parts)


def _times(pause_ms: float | None, apply_ms: float | None) -> str:
    if pause_ms is None or apply_ms is None:
        return ""
    return f" in {apply_ms:.0f} ms, paused {pause_ms:.0f} ms"


def _version(ref: "VersionRef | None") -> str:
    return "the model it was started with" if ref is None else f"version {ref.version}"


def _plain(event: Any) -> Any:
    from schemas import codec

    return None if event is None else json.loads(codec.to_json(event))


def _ring_json(ring: "RingAssignment") -> dict[str, Any]:
    plain: dict[str, Any] = _plain(ring)
    return plain


def _worker_json(view: "WorkerView") -> dict[str, Any]:
    return {
        **_plain(view.heartbeat),
        "ack": _plain(view.ack),
        "target": _plain(view.target),
        "serves": _plain(view.serves),
        "age_seconds": round(view.age_seconds, 1),
        "may_get_calls": view.may_get_calls,
    }


def _print(found: dict[str, Any], text: str, *, as_json: bool) -> None:
    typer.echo(json.dumps(found) if as_json else text)
