"""headrace versions: publish, list, show and compare versions of a policy's weights."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infra.cli.options import AsJson, DataDir
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from schemas.atdp.weights import WeightsManifest
    from schemas.bus import Bus
    from schemas.store import BlobStore
    from schemas.weights.manifests import History
    from schemas.weights.publish import Publisher

Policy = Annotated[str, typer.Option("--policy", "-p", help="Policy line.")]
Version = Annotated[int, typer.Argument(help="Number of the version.", min=1)]
_MAX_LINES = 20


def register(app: typer.Typer) -> None:
    """Add the commands."""
    versions = typer.Typer(help="Versions of a policy's weights.", no_args_is_help=True)
    for command in (publish, show, diff):
        versions.command()(command)
    versions.command("list")(list_versions)
    app.add_typer(versions, name="versions")


def publish(
    folder: Annotated[
        Path, typer.Argument(help="Hugging Face checkpoint folder with *.safetensors.")
    ],
    policy: Policy = "main",
    from_version: Annotated[
        int | None, typer.Option(min=1, help="Version to start from; the newest where not given.")
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Publish a checkpoint: the first of a policy as a whole, a later one as what changed.

    A folder with a LoRA adapter is published whole, on the version that it starts from.

    Nothing serves it yet: a promotion does that. Another publisher of the policy is ended.

    Example: headrace versions publish checkpoints/step-100 --policy support
    """
    from infra.connection import open_bus
    from schemas.secrets import load_weights_key
    from schemas.store import BlobStore
    from schemas.weights.publish import Publisher

    with open_bus(data_dir) as (settings, bus, _):
        blobs, key = BlobStore(settings.blobs), load_weights_key(settings.weights_key_file)
        publisher = Publisher(bus, blobs, policy, key=key)
        try:
            newest = publisher.history.newest_weights
            start = from_version or (None if newest is None else newest.version)
            manifest = _publish(publisher, bus, blobs, folder, start)
        finally:
            publisher.close()
    _print(_shown(manifest), _line(manifest), as_json=as_json)


def _publish(
    publisher: "Publisher", bus: "Bus", blobs: "BlobStore", folder: Path, start: int | None
) -> "WeightsManifest":
    """What is in the folder, from version `start`."""
    from schemas.weights.adapters import is_adapter, read_adapter
    from schemas.weights.checkpoints import read_folder
    from schemas.weights.versions import restore

    history = publisher.history
    if start is not None and not history.versions:
        raise ConfigError(f"Policy {history.policy} has no versions yet. Leave --from-version out.")
    if start is not None:
        _require_weights(history, start)
    if is_adapter(folder):
        if start is None:
            raise ConfigError("An adapter lies on a version of the policy. Publish that one first.")
        return publisher.publish_adapter(read_adapter(folder), start)
    tensors = read_folder(folder)
    if start is not None:
        shadow = restore(bus, blobs, history, start)
        if not shadow.diff(tensors)[0].changed:
            raise ConfigError(f"Version {start} of {history.policy} holds these weights already.")
        publisher.start_from(start, shadow)
    return publisher.publish(tensors)


def list_versions(
    policy: Policy = "main", data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """Show the versions of a policy, oldest first, and manifests that readers refuse.

    Example: headrace versions list --policy support --json
    """
    history = _history(data_dir, policy)
    if as_json:
        refused = [{"version": m.version, "refused": why.value} for m, why in history.refused]
        made = [_summary(m, history) for m in history.versions.values()]
        typer.echo(json.dumps({"policy": policy, "versions": made, "refused": refused}))
        return
    for manifest in history.versions.values():
        beside = "  + snapshot" if _has_snapshot_beside(manifest, history) else ""
        typer.echo(_line(manifest) + beside)
    for manifest, why in history.refused:
        typer.echo(f"{manifest.version:>6}  refused: {why.value}")
    if not history.versions:
        typer.echo(f"Policy {policy} has no versions. `headrace versions publish DIR` makes one.")


def show(
    version: Version, policy: Policy = "main", data_dir: DataDir = None, as_json: AsJson = False
) -> None:
    """Show all that is known of a version.

    Example: headrace versions show 3
    """
    manifest = _require(_history(data_dir, policy), version)
    lines = [f"{name:<16} {value}" for name, value in _shown(manifest).items() if name != "tensors"]
    tensors = [f"  {t.name}  {t.dtype}{list(t.shape)}  {t.num_changed}" for t in manifest.tensors]
    _print(_shown(manifest), "\n".join([*lines, *_shortened(tensors)]), as_json=as_json)


def diff(
    old: Version,
    new: Annotated[int, typer.Argument(help="Version to compare it with.", min=1)],
    policy: Policy = "main",
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Compare two versions element by element; both are restored and proved for it.

    Example: headrace versions diff 2 5 --policy support
    """
    from infra.connection import open_bus
    from schemas.secrets import load_weights_key
    from schemas.store import BlobStore
    from schemas.weights import ulpgap
    from schemas.weights.versions import read_history, restore

    with open_bus(data_dir) as (settings, bus, _):
        blobs, key = BlobStore(settings.blobs), load_weights_key(settings.weights_key_file)
        history = read_history(bus, policy, key)
        shadows = [
            restore(bus, blobs, history, _require_weights(history, v).version) for v in (old, new)
        ]
    delta, _ = shadows[0].diff(shadows[1].tensors)
    changed = {name: part.positions.size for name, part in delta.changed.items()}
    found = {
        "policy": policy,
        "old": old,
        "new": new,
        "num_changed": delta.num_changed,
        "density": delta.num_changed / max(delta.num_elements, 1),
        "num_bytes": len(ulpgap.pack(delta)),
        "tensors": changed,
    }
    head = (
        f"{delta.num_changed} of {delta.num_elements} elements differ "
        f"({found['density']:.4%}), in {len(changed)} of {len(delta.layout)} tensors; "
        f"{found['num_bytes']} bytes as a delta"
    )
    most = sorted(changed.items(), key=lambda item: -item[1])
    lines = _shortened([f"  {name}  {count}" for name, count in most])
    _print(found, "\n".join([head, *lines]), as_json=as_json)


def _history(data_dir: Path | None, policy: str) -> "History":
    from infra.connection import open_bus
    from schemas.secrets import load_weights_key
    from schemas.weights.versions import read_history

    with open_bus(data_dir) as (settings, bus, _):
        return read_history(bus, policy, load_weights_key(settings.weights_key_file))


def _require(history: "History", version: int) -> "WeightsManifest":
    if version not in history.versions:
        raise ConfigError(
            f"Policy {history.policy} has no version {version}. "
            f"`headrace versions list --policy {history.policy}` shows them."
        )
    return history.versions[version]


def _require_weights(history: "History", version: int) -> "WeightsManifest":
    """A version that is weights of its own."""
    manifest = _require(history, version)
    if manifest.kind.value == "adapter":
        raise ConfigError(
            f"Version {version} is an adapter. Name version {manifest.from_version}, on which it "
            "lies."
        )
    return manifest


def _has_snapshot_beside(manifest: "WeightsManifest", history: "History") -> bool:
    return manifest.kind.value == "delta" and manifest.version in history.snapshots


def _summary(manifest: "WeightsManifest", history: "History") -> dict[str, Any]:
    shown = {name: value for name, value in _shown(manifest).items() if name != "tensors"}
    return {**shown, "snapshot": manifest.version in history.snapshots}


def _shown(manifest: "WeightsManifest") -> dict[str, Any]:
    from schemas import codec

    plain: dict[str, Any] = json.loads(codec.to_json(manifest))
    return plain


def _line(manifest: "WeightsManifest") -> str:
    what = f"{manifest.num_bytes / 1e6:.2f} MB"
    if manifest.kind.value == "adapter":
        what += f" on version {manifest.from_version}"
    if manifest.kind.value == "delta":
        what += f", {manifest.num_changed} elements ({manifest.density:.2%})"
        what += f" since {manifest.from_version}"
    made = f"{manifest.created_at:%Y-%m-%d %H:%M}"
    return f"{manifest.version:>6}  {manifest.kind.value}  {manifest.root[:12]}  {made}  {what}"


def _shortened(lines: list[str]) -> list[str]:
    more = len(lines) - _MAX_LINES
    return [*lines[:_MAX_LINES], f"  … and {more} more; --json shows all"] if more > 0 else lines


def _print(found: dict[str, Any], text: str, *, as_json: bool) -> None:
    typer.echo(json.dumps(found) if as_json else text)
