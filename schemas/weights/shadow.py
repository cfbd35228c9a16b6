"""The weights of one version on the CPU: what deltas start from and are proved on."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from schemas.weights.delta import Delta, Positions, difference, moved
from schemas.weights.dtypes import Bits, are_finite
from schemas.weights.refusals import Refusal, RefusedError
from schemas.weights.tensors import (
    Layout,
    Tensor,
    Tensors,
    digest,
    digests_of,
    layout_of,
    require_layout,
    require_same_layout,
    root_of,
)


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """Absolute values of one tensor. Writing `new` twice is harmless; `old` undoes it."""

    positions: Positions
    old: Bits
    new: Bits


@dataclass(frozen=True, slots=True, eq=False)
class Patch:
    """What an engine writes to come from one root to another, and what undoes it."""

    from_root: str
    root: str
    changes: Mapping[str, Change]

    def inverse(self) -> "Patch":
        """The patch back."""
        back = {n: Change(c.positions, c.new, c.old) for n, c in self.changes.items()}
        return Patch(self.root, self.from_root, back)


class Shadow:
    """Owns its arrays, with a digest for each and the root of all. Not for several threads."""

    def __init__(self, tensors: Tensors, *, copy: bool = True) -> None:
        """Copies the bits, or takes over arrays that nobody else writes.

        RefusedError for a layout beyond the limits or values that are not finite.
        """
        require_layout(layout_of(tensors))
        for name, tensor in tensors.items():
            if not are_finite(tensor.spec.dtype, tensor.bits):
                raise RefusedError(Refusal.NOT_FINITE, name)
        self._tensors = {
            name: Tensor(tensors[name].spec, np.array(tensors[name].bits, copy=copy or None))
            for name in sorted(tensors)
        }
        self._layout = layout_of(self._tensors)
        self._digests = digests_of(self._tensors)
        self._root = root_of(self._layout, self._digests)

    @property
    def root(self) -> str:
        """SHA-256 in hex over all leaves."""
        return self._root

    @property
    def layout(self) -> Layout:
        """Names, number formats and shapes, sorted by name."""
        return self._layout

    @property
    def digests(self) -> Mapping[str, bytes]:
        """XXH3-128 of each tensor."""
        return self._digests

    @property
    def tensors(self) -> Tensors:
        """The tensors themselves: to read, not to write."""
        return self._tensors

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(spec.num_bytes for spec in self._layout.values())

    def diff(self, new: Tensors) -> tuple[Delta, dict[str, bytes]]:
        """The delta from here to `new`, and the new digests of the tensors that changed.

        RefusedError for another layout, or for a changed value that is NaN or infinite.
        """
        require_same_layout(self._layout, layout_of(new))
        changed, digests = {}, {}
        for name, old in self._tensors.items():
            part = difference(name, old, new[name])
            if part is not None:
                changed[name] = part
                digests[name] = digest(new[name].bits)
        root = root_of(self._layout, {**self._digests, **digests})
        return Delta(self._layout, changed, self._root, root), digests

    def apply(self, delta: Delta, digests: Mapping[str, bytes] | None = None) -> Patch:
        """Move to the delta's root and prove it. All or nothing.

        `digests` are those that the manifest gives the changed tensors. RefusedError when the
        delta starts elsewhere, or when what comes out is not what was promised.
        """
        if delta.from_root != self._root:
            raise RefusedError(Refusal.WRONG_BASE)
        require_same_layout(self._layout, delta.layout)
        patch = Patch(delta.from_root, delta.root, dict(self._changes(delta)))
        self.write(patch, digests)
        return patch

    def _changes(self, delta: Delta) -> list[tuple[str, Change]]:
        changes = []
        for name, part in delta.changed.items():
            old = self._tensors[name].bits[part.positions]
            new = moved(old, part.differences)
            if not are_finite(self._layout[name].dtype, new):
                raise RefusedError(Refusal.NOT_FINITE, name)
            changes.append((name, Change(part.positions, old, new)))
        return changes

    def write(self, patch: Patch, digests: Mapping[str, bytes] | None = None) -> None:
        """Write a patch that starts here and prove it, or write its old values back.

        RefusedError as for `apply`. `write(patch.inverse())` takes a version back.
        """
        if patch.from_root != self._root:
            raise RefusedError(Refusal.WRONG_BASE)
        for name, change in patch.changes.items():
            self._tensors[name].bits[change.positions] = change.new
        fresh = {name: digest(self._tensors[name].bits) for name in patch.changes}
        root = root_of(self._layout, {**self._digests, **fresh})
        wrong = _first_difference(fresh, digests)
        if wrong is None and root == patch.root:
            self._digests.update(fresh)
            self._root = root
            return
        for name, change in patch.changes.items():
            self._tensors[name].bits[change.positions] = change.old
        if wrong is not None:
            raise RefusedError(Refusal.WRONG_DIGEST, wrong)
        raise RefusedError(Refusal.WRONG_ROOT)

    def prove(self) -> None:
        """Digest everything anew. RefusedError names a tensor that is not what it was."""
        wrong = _first_difference(digests_of(self._tensors), self._digests)
        if wrong is not None:
            raise RefusedError(Refusal.WRONG_DIGEST, wrong)


def _first_difference(found: Mapping[str, bytes], said: Mapping[str, bytes] | None) -> str | None:
    if said is None:
        return None
    return next((n for n in sorted({*found, *said}) if found.get(n) != said.get(n)), None)


def coalesced(patches: Sequence[Patch]) -> Patch:
    """One patch for several that follow one another: the oldest old values, the newest new ones.

    RefusedError when one does not start where the one before it ends. At least one is given.
    """
    for before, after in itertools.pairwise(patches):
        if before.root != after.from_root:
            raise RefusedError(Refusal.WRONG_BASE)
    names = sorted({name for patch in patches for name in patch.changes})
    merged = {name: _merged([p.changes[name] for p in patches if name in p.changes])
              for name in names}  # fmt: skip
    return Patch(patches[0].from_root, patches[-1].root, merged)


def _merged(changes: list[Change]) -> Change:
    if len(changes) == 1:
        return changes[0]
    everywhere = np.concatenate([change.positions for change in changes])
    old = np.concatenate([change.old for change in changes])
    new = np.concatenate([change.new for change in changes])
    positions, first = np.unique(everywhere, return_index=True)
    last = everywhere.size - 1 - np.unique(everywhere[::-1], return_index=True)[1]
    return Change(positions, old[first], new[last])
