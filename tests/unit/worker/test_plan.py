"""What comes next, over any history: a step leads to the target or says why not."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.worker.plan import (
    MAX_DELTAS,
    Advance,
    Refuse,
    Relabel,
    Restore,
    TakeBack,
    next_step,
)
from schemas.atdp.weights import ManifestKind, VersionRef, WeightsManifest
from schemas.weights.manifests import History
from schemas.weights.refusals import Refusal


def manifest(version: int, base: int | None, *, snapshot: bool = False) -> WeightsManifest:
    return WeightsManifest(
        policy="main",
        version=version,
        kind=ManifestKind.SNAPSHOT if snapshot else ManifestKind.DELTA,
        epoch=1,
        from_version=base,
        from_root=None if base is None else root(base),
        root=root(version),
        codec="ulpgap/1",
        dtype="BF16",
        sha256="",
        created_at=datetime.now(UTC),
    )


def root(version: int) -> str:
    return f"root-{version}"


def ref(version: int) -> VersionRef:
    return VersionRef(version=version, root=root(version))


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Version 1 as a snapshot, then deltas from any version before, some with snapshots beside."""
    history = History("main")
    history.take(manifest(1, None, snapshot=True))
    for version in range(2, draw(st.integers(2, 12))):
        base = draw(st.integers(max(1, version - 3), version - 1))
        history.take(manifest(version, base))
        if draw(st.booleans()):
            history.take(manifest(version, base, snapshot=True))
    return history


@given(histories(), st.data())
def test_every_step_leads_to_the_target(history: History, data: st.DataObject) -> None:
    versions = sorted(history.versions)
    at, target = data.draw(st.sampled_from(versions)), data.draw(st.sampled_from(versions))
    undo = data.draw(st.lists(st.sampled_from(versions), max_size=4))
    match next_step(root(at), ref(target), history, [root(v) for v in undo]):
        case Relabel():
            assert at == target
        case TakeBack(num_updates):
            assert undo[-num_updates] == target
        case Advance(manifests):
            here = root(at)
            for step in manifests:
                assert step.from_root == here
                here = step.root
            assert here == root(target)
        case Restore(version):
            assert version == target
        case Refuse() as refused:
            pytest.fail(f"{refused} although all is there")


def test_a_target_that_nobody_published_is_refused_with_the_reason() -> None:
    history = History("main")
    history.take_all([manifest(1, None, snapshot=True), manifest(2, 1)])
    other = VersionRef(version=2, root="elsewhere")
    assert next_step(root(1), ref(9), history) == Refuse(Refusal.UNKNOWN_BASE)
    assert next_step(root(1), other, history) == Refuse(Refusal.WRONG_ROOT)
    history.take_all([manifest(5, 4)])
    assert next_step(root(1), ref(5), history) == Refuse(Refusal.UNKNOWN_BASE)


def test_a_long_way_is_gone_by_a_snapshot() -> None:
    history = History("main")
    history.take(manifest(1, None, snapshot=True))
    for version in range(2, MAX_DELTAS + 9):
        history.take(manifest(version, version - 1))
    near = next_step(root(1), ref(MAX_DELTAS), history)
    assert isinstance(near, Advance)
    assert next_step(root(1), ref(MAX_DELTAS + 8), history) == Restore(MAX_DELTAS + 8)


def test_without_a_snapshot_there_is_no_other_way() -> None:
    history = History("main")
    history.versions[7] = manifest(7, 6)
    assert next_step("elsewhere", ref(7), history) == Refuse(Refusal.NO_SNAPSHOT)
