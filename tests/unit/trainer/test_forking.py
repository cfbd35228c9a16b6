"""A version that was taken back takes back what was learned on top of it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from schemas import codec, topics
from schemas.atdp.weights import RingAssignment, RingState, VersionRef
from schemas.bus.api import Record, deliver_now
from schemas.bus.memory import MemoryBus
from schemas.rings import ring_key
from schemas.weights.versions import read_history
from tests.unit.trainer.batches import POLICY, load, make_model, new_bus, put, stream
from tests.unit.trainer.test_loop import SIZE, Trainer


def assign(bus: MemoryBus, version: int, sequence: int, state: RingState) -> None:
    root = read_history(bus, POLICY).versions[version].root
    assignment = RingAssignment(
        policy=POLICY, ring="default", stable=VersionRef(version=version, root=root), state=state,
        decision_id="test", sequence=sequence, decided_at=datetime.now(UTC),
    )  # fmt: skip
    key = ring_key(POLICY, "default")
    record = Record(topics.WEIGHTS_PROMOTIONS, key, codec.encode(assignment))
    deliver_now(bus.producer("test"), [record], 5.0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_model(tmp_path / "model")


def test_the_trainer_goes_on_from_what_the_ring_went_back_to(tmp_path: Path, model: Path) -> None:
    bus, batches = new_bus(), stream(load(model), 5, SIZE)
    put(bus, *batches[:3])
    trainer = Trainer(bus, tmp_path, model)
    trainer.run()
    assign(bus, 2, 1, RingState.ROLLED_BACK)
    put(bus, *batches[3:])
    trainer.run()
    history = read_history(bus, POLICY)
    assert [history.versions[v].from_version for v in (4, 5, 6)] == [3, 2, 5]

    again = Trainer(bus, tmp_path, model)  # it does not fork once more
    put(bus, *stream(load(model), 6, SIZE)[5:])
    again.run()
    assert read_history(bus, POLICY).versions[7].from_version == 6


def test_an_ordinary_promotion_changes_nothing(tmp_path: Path, model: Path) -> None:
    bus, batches = new_bus(), stream(load(model), 2, SIZE)
    put(bus, batches[0])
    trainer = Trainer(bus, tmp_path, model)
    trainer.run()
    assign(bus, 1, 1, RingState.STABLE)
    put(bus, batches[1])
    trainer.run()
    assert read_history(bus, POLICY).versions[3].from_version == 2
