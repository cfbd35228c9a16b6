"""What a worker does next, from what it serves, what it shall serve and what is published. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.atdp.weights import VersionRef, WeightsManifest
from schemas.weights.manifests import History
from schemas.weights.refusals import Refusal, RefusedError

#: With more deltas than this between two versions a snapshot is read instead.
MAX_DELTAS = 40


@dataclass(frozen=True, slots=True)
class Relabel:
    """The engine holds these weights already: prove it and say so."""


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Undo the last updates, as many as this."""

    num_updates: int


@dataclass(frozen=True, slots=True)
class Advance:
    """Apply these deltas, in order, in one go."""

    manifests: tuple[WeightsManifest, ...]


@dataclass(frozen=True, slots=True)
class Restore:
    """Read the version from its nearest snapshot and write what differs."""

    version: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """Serve on what is served, and say why."""

    refusal: Refusal


Step = Relabel | TakeBack | Advance | Restore | Refuse


def next_step(
    root: str, target: VersionRef, history: History, undo_roots: Sequence[str] = ()
) -> Step:
    """How to come from the weights with `root` to the target.

    `undo_roots` are the roots before each update that can be taken back, oldest first.
    """
    manifest = history.versions.get(target.version)
    if manifest is None:
        return Refuse(_why_unknown(target, history))
    if manifest.root != target.root:
        return Refuse(Refusal.WRONG_ROOT)
    if (weights := history.weights_of(target)) != target:
        return next_step(root, weights, history, undo_roots)
    if root == target.root:
        return Relabel()
    if target.root in undo_roots:
        last = len(undo_roots) - 1 - list(reversed(undo_roots)).index(target.root)
        return TakeBack(len(undo_roots) - last)
    deltas = deltas_between(root, target, history)
    if deltas is not None:
        return Advance(deltas)
    return restore_step(target, history)


def restore_step(target: VersionRef, history: History) -> Step:
    """The way by a snapshot, or why there is none."""
    version = history.weights_of(target).version
    try:
        history.path_to(version)
    except RefusedError as error:
        return Refuse(error.refusal)
    return Restore(version)


def deltas_between(
    root: str, target: VersionRef, history: History
) -> tuple[WeightsManifest, ...] | None:
    """The deltas from the weights with `root` to the target; None where there is no short way."""
    deltas: list[WeightsManifest] = []
    at: int | None = target.version
    while at is not None and at in history.versions and len(deltas) < MAX_DELTAS:
        manifest = history.versions[at]
        if manifest.from_root is None:
            return None
        deltas.append(manifest)
        if manifest.from_root == root:
            return tuple(reversed(deltas))
        at = manifest.from_version
    return None


def _why_unknown(target: VersionRef, history: History) -> Refusal:
    """Why the manifest of the target was not taken; that nobody published it, otherwise."""
    reasons = [reason for manifest, reason in history.refused if manifest.version == target.version]
    return reasons[-1] if reasons else Refusal.UNKNOWN_BASE
