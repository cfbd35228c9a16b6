"""An adapter learns, versions are adapters, and a killed trainer goes on as if it had not been."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from schemas.atdp.weights import ManifestKind, RingState
from schemas.bus.memory import MemoryBus
from schemas.errors import ConfigError
from schemas.settings import TrainerSettings
from schemas.store import BlobStore
from schemas.telemetry import Metrics
from schemas.weights.adapters import fetch_adapter
from schemas.weights.tensors import Tensors
from schemas.weights.versions import read_history, restore
from tests.unit.trainer.batches import (
    POLICY,
    load,
    make_model,
    new_bus,
    put,
    some_examples,
    stream,
)
from tests.unit.trainer.test_forking import assign
from tests.unit.trainer.test_loop import Death, Killed, Unseen, dying
from trainer.adapter_versions import AdapterVersions
from trainer.checkpoint import Checkpoints
from trainer.intake import Intake, Limits
from trainer.learner import Learner
from trainer.loop import Loop
from trainer.lora import Lora, LoraPolicy, is_untouched, with_adapter
from trainer.publish import root_of_all
from trainer.sentinels import Bounds

SIZE = 8
LORA = Lora(rank=3, alpha=6, targets=("q_proj", "v_proj", "down_proj"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_model(tmp_path / "model")


class Life:
    """One life of a trainer of an adapter."""

    def __init__(self, bus: MemoryBus, folder: Path, model: Path, death: Death | None = None):
        own = TrainerSettings(
            policy=POLICY, min_trajectories=SIZE, learning_rate=3e-2, model=model, lora_rank=3
        )
        base = load(model)
        at_base = base.tensors()
        self.policy = with_adapter(base, LORA)
        self.learner = Learner(self.policy, own, Bounds(), self.policy.copy())
        self.blobs = BlobStore((folder / "blobs").as_uri())
        self.versions = AdapterVersions(
            bus,
            self.blobs,
            POLICY,
            "default",
            base=at_base,
            lora=LORA,
            untouched=self.policy.tensors(),
        )
        checkpoints = Checkpoints(folder / "checkpoints")
        if death is not None:
            targets = {"learn": self.learner, "save": checkpoints, "publish_adapter":
                       self.versions._publisher, "_propose": self.versions}  # fmt: skip
            dying(targets[death.at], death)
        self.loop = Loop(own, self.learner, checkpoints, self.versions, Unseen(), Metrics())
        limits = Limits(POLICY, self.policy.vocabulary_size, self.policy.max_length)
        self.intake = Intake(bus, self.blobs, limits, self.loop.begin(), Metrics())

    def run(self) -> None:
        at_end = False
        while not at_end:
            at_end = self.intake._consumer.at_end()
            self.loop.turn(self.intake, 0.0)


def bits(tensors: Tensors) -> dict[str, bytes]:
    return {name: tensor.bits.tobytes() for name, tensor in tensors.items()}


def test_a_fresh_adapter_changes_nothing_and_the_matrices_alone_learn(model: Path) -> None:
    plain, adapted = load(model), with_adapter(load(model), LORA)
    examples = some_examples(plain, 8)
    with torch.no_grad():
        expected = plain.figures(examples, 1.0).logp
        assert torch.equal(adapted.figures(examples, 1.0).logp, expected)
    names = {name.rpartition(".lora_")[0] for name in adapted.parameters()}
    assert names == {
        f"model.layers.{layer}.{module}"
        for layer in range(2)
        for module in ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj")
    }
    before = {n: p.detach().clone() for n, p in adapted.model.named_parameters()}
    own = TrainerSettings(learning_rate=1e-2)
    one = Learner(adapted, own, Bounds(), adapted.copy())
    assert one.learn(examples, 1).alarm is None
    moved = {n for n, p in adapted.model.named_parameters() if not torch.equal(p, before[n])}
    assert moved
    assert moved <= set(adapted.parameters())


def test_an_adapter_is_what_adding_its_product_to_the_weights_is(model: Path) -> None:
    """Independent of the layer's own arithmetic: W + alpha/rank B A, as PEFT's merge says."""
    adapted, merged = with_adapter(load(model), LORA), load(model)
    with torch.no_grad():
        for name, parameter in adapted.parameters().items():
            if "lora_B" in name:
                parameter.normal_(0, 0.1, generator=torch.Generator().manual_seed(len(name)))
        weights = dict(merged.model.named_parameters())
        matrices = adapted.parameters()
        for name in matrices:
            if "lora_A" in name:
                at = name.removesuffix(".lora_A.weight")
                product = matrices[f"{at}.lora_B.weight"] @ matrices[name]
                weights[f"{at}.weight"] += LORA.alpha / LORA.rank * product
        examples = some_examples(load(model), 6)
        found = adapted.figures(examples, 1.0).logp
        torch.testing.assert_close(found, merged.figures(examples, 1.0).logp)


def test_versions_are_adapters_on_the_weights_of_the_model(tmp_path: Path, model: Path) -> None:
    bus = new_bus()
    put(bus, *stream(load(model), 3, SIZE))
    life = Life(bus, tmp_path, model)
    life.run()
    history = read_history(bus, POLICY)
    kinds = [history.versions[v].kind for v in (1, 2, 3, 4)]
    assert kinds == [ManifestKind.SNAPSHOT, *[ManifestKind.ADAPTER] * 3]
    assert [history.versions[v].from_version for v in (2, 3, 4)] == [1, 1, 1]
    weights = restore(bus, life.blobs, history, 1).tensors
    assert root_of_all(weights) == root_of_all(load(model).tensors())
    adapter = fetch_adapter(life.blobs, history.versions[4])
    assert bits(adapter.tensors()) == bits(life.policy.tensors())
    assert adapter.root(history.versions[1].root) == history.versions[4].root


def test_a_killed_trainer_of_an_adapter_ends_at_the_same_bits(tmp_path: Path, model: Path) -> None:
    batches = stream(load(model), 4, SIZE)
    whole = new_bus()
    put(whole, *batches)
    undisturbed = Life(whole, tmp_path / "whole", model)
    undisturbed.run()
    drawn = random.Random(7)
    bus, num_deaths = new_bus(), 0
    put(bus, *batches)
    for at in ("learn", "save", "publish_adapter", "_propose"):
        death = Death(at, drawn.randint(1, 2), drawn.random() < 0.5)
        try:
            Life(bus, tmp_path / "killed", model, death).run()
        except Killed:
            num_deaths += 1
    last = Life(bus, tmp_path / "killed", model)
    last.run()
    assert num_deaths >= 2
    assert bits(last.policy.tensors()) == bits(undisturbed.policy.tensors())
    for name, parameter in undisturbed.policy.parameters().items():
        assert torch.equal(parameter, last.policy.parameters()[name])
    roots = [{v: m.root for v, m in read_history(b, POLICY).versions.items()} for b in (whole, bus)]
    assert roots[0] == roots[1]


def test_the_trainer_goes_back_to_an_earlier_adapter_and_to_the_bare_weights(
    tmp_path: Path, model: Path
) -> None:
    bus, batches = new_bus(), stream(load(model), 4, SIZE)
    put(bus, *batches[:2])
    life = Life(bus, tmp_path, model)
    life.run()
    assign(bus, 2, 1, RingState.ROLLED_BACK)
    life.loop.turn(life.intake, 0.0)
    second = read_history(bus, POLICY).versions[2]
    assert bits(life.policy.tensors()) == bits(fetch_adapter(life.blobs, second).tensors())
    assign(bus, 1, 2, RingState.ROLLED_BACK)
    life.loop.turn(life.intake, 0.0)
    assert is_untouched(life.policy.tensors())


def test_adapters_of_weights_that_nobody_published_are_refused(tmp_path: Path, model: Path) -> None:
    bus = new_bus()
    Life(bus, tmp_path, model)
    other = make_model(tmp_path / "other", seed=5)
    with pytest.raises(ConfigError, match="adapters"):
        Life(bus, tmp_path / "elsewhere", other)


def test_names_that_no_layer_has_are_refused(model: Path) -> None:
    with pytest.raises(ConfigError, match="LORA_TARGETS"):
        with_adapter(load(model), replace(LORA, targets=("nowhere",)))


def test_peft_reads_the_files_and_computes_the_same(tmp_path: Path, model: Path) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed where torch is")
    adapted: LoraPolicy = with_adapter(load(model), LORA)
    with torch.no_grad():
        for name, parameter in adapted.parameters().items():
            parameter.copy_(parameter.to(torch.bfloat16))
            if "lora_B" in name:
                parameter.fill_(0.125)
    LORA.adapter_of(adapted.tensors()).write(tmp_path / "adapter")
    plain = load(model)
    plain.model = peft.PeftModel.from_pretrained(plain.model, tmp_path / "adapter").eval()
    examples = some_examples(load(model), 4)
    with torch.no_grad():
        found = plain.figures(examples, 1.0).logp
        torch.testing.assert_close(found, adapted.figures(examples, 1.0).logp)
