"""What the codec of weights makes of optimizer steps, beside two plain ways to write them.

python -m infra.bench.weights [OLD NEW]...

OLD and NEW are checkpoint folders one optimizer step apart, any number of pairs. Without them the
steps are made up: a master copy in 32 bits moves as AdamW moves it, and is rounded to bf16.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import zstandard

from infra.bench.figures import MILLI, Figure, Section
from infra.bench.machine import load_average, this_machine
from infra.bench.page import machine_markdown, text
from schemas.errors import ConfigError
from schemas.weights.checkpoints import read_folder
from schemas.weights.delta import Delta
from schemas.weights.dtypes import Dtype, num_bytes, zigzag
from schemas.weights.shadow import Shadow
from schemas.weights.tensors import Tensor, Tensors, tensor
from schemas.weights.ulpgap import pack, unpack

T = TypeVar("T")

LEARNING_RATES = (1e-6, 3e-6, 1e-5)
#: A tenth of a 135 M model: the same kinds of tensors, fewer layers and words.
_SHAPES = {"embed": (8_192, 576)} | {
    f"layer.{i}.{name}": shape
    for i in range(3)
    for name, shape in {
        "q": (576, 576), "k": (192, 576), "v": (192, 576), "o": (576, 576), "gate": (1_536, 576),
        "up": (1_536, 576), "down": (576, 1_536), "norm": (576,),
    }.items()
}  # fmt: skip
_INDEX_BYTES = 4
_ROUNDS = 3


@dataclass(frozen=True)
class Step:
    """Two versions of a model, one optimizer step apart."""

    label: str
    old: Tensors
    new: Tensors


@dataclass(frozen=True)
class Measured:
    """Bytes of each way to write a step, and seconds of CPU for each part of ours."""

    step: str
    density: float
    checkpoint_bytes: int
    ulpgap_bytes: int
    xor_bytes: int
    raw_bytes: int
    entropy_bytes: float
    diff_seconds: float
    pack_seconds: float
    unpack_seconds: float
    apply_seconds: float
    xor_seconds: float


def made_up_steps(seed: int = 7) -> Iterator[Step]:
    """A step at each learning rate: every weight moves by up to it, as late AdamW does."""
    rng = np.random.default_rng(seed)
    masters = {
        name: rng.standard_normal(int(np.prod(shape)), dtype=np.float32) * np.float32(0.05)
        for name, shape in _SHAPES.items()
    }
    old = {name: _rounded(name, master) for name, master in masters.items()}
    for rate in LEARNING_RATES:
        moves = {n: rng.uniform(-rate, rate, m.size).astype(np.float32) for n, m in masters.items()}
        new = {name: _rounded(name, masters[name] + moves[name]) for name in masters}
        yield Step(f"made up, rate {rate:g}", old, new)


def _rounded(name: str, values: np.ndarray[tuple[int], np.dtype[np.float32]]) -> Tensor:
    """To bf16, ties to even."""
    bits = values.view(np.uint32)
    bits = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return tensor(Dtype.BF16, _SHAPES[name], bits.astype(np.uint16))


def measure_step(step: Step) -> Measured:
    """Ours and the plain ways over the same step; the fastest of three rounds counts."""
    shadow = Shadow(step.old)
    (delta, digests), diff_seconds = _fastest(lambda: shadow.diff(step.new))
    payload, pack_seconds = _fastest(lambda: pack(delta))
    received, unpack_seconds = _fastest(lambda: unpack(payload, shadow.layout))
    began = time.thread_time()
    shadow.apply(received, digests)
    apply_seconds = time.thread_time() - began
    xor_bytes, xor_seconds = _fastest(lambda: _xor_bytes(step))
    return Measured(
        step=step.label,
        density=delta.num_changed / delta.num_elements,
        checkpoint_bytes=shadow.num_bytes,
        ulpgap_bytes=len(payload),
        xor_bytes=xor_bytes,
        raw_bytes=_raw_bytes(delta),
        entropy_bytes=entropy_bytes(delta),
        diff_seconds=diff_seconds,
        pack_seconds=pack_seconds,
        unpack_seconds=unpack_seconds,
        apply_seconds=apply_seconds,
        xor_seconds=xor_seconds,
    )


def _fastest(call: Callable[[], T]) -> tuple[T, float]:
    best = float("inf")
    for _ in range(_ROUNDS):
        began = time.thread_time()
        result = call()
        best = min(best, time.thread_time() - began)
    return result, best


def _xor_bytes(step: Step) -> int:
    """All bits of the old version against all of the new one, as one zstd-1 stream."""
    writer = zstandard.ZstdCompressor(level=1).compressobj()
    size = 0
    for name in sorted(step.old):
        difference = step.old[name].bits ^ step.new[name].bits
        size += len(writer.compress(np.ascontiguousarray(difference).data))
    return size + len(writer.flush())


def _raw_bytes(delta: Delta) -> int:
    """A position in four bytes and the new value for each change."""
    return sum(
        part.positions.size * (_INDEX_BYTES + num_bytes(delta.layout[name].dtype))
        for name, part in delta.changed.items()
    )


def entropy_bytes(delta: Delta) -> float:
    """The least that positions and differences need when each is drawn by itself.

    Positions: every subset of so many elements of a tensor is equally likely. Differences: by how
    often each occurs in the whole step.
    """
    bits = 0.0
    values = []
    for name, part in delta.changed.items():
        size = delta.layout[name].num_elements
        bits += size * _entropy(np.array([part.positions.size, size - part.positions.size]))
        values.append(zigzag(part.differences).astype(np.uint32))
    if values:
        every = np.concatenate(values)
        bits += every.size * _entropy(np.unique(every, return_counts=True)[1])
    return bits / 8


def _entropy(counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
    shares = counts[counts > 0] / counts.sum()
    return -float(np.sum(shares * np.log2(shares)))


def figures_of(found: Measured) -> tuple[Figure, ...]:
    """Pure: one step → figures."""
    name, size = found.step, found.ulpgap_bytes
    return (
        Figure(f"{name}: elements changed", found.density * 100, "%"),
        Figure(f"{name}: delta", size / 1e6, "MB"),
        Figure(f"{name}: checkpoint over delta", found.checkpoint_bytes / size, "times"),
        Figure(
            f"{name}: XOR + zstd over delta", found.xor_bytes / size, "times", 1.7, is_rate=True
        ),
        Figure(
            f"{name}: index + value over delta", found.raw_bytes / size, "times", 3.5, is_rate=True
        ),
        Figure(f"{name}: delta over entropy", size / found.entropy_bytes, "times", 1.15),
        Figure(f"{name}: diff", found.diff_seconds * MILLI, "ms"),
        Figure(f"{name}: pack", found.pack_seconds * MILLI, "ms"),
        Figure(f"{name}: unpack", found.unpack_seconds * MILLI, "ms"),
        Figure(f"{name}: apply and prove", found.apply_seconds * MILLI, "ms"),
        Figure(f"{name}: XOR + zstd", found.xor_seconds * MILLI, "ms"),
    )


def measure(steps: Iterable[Step]) -> Section:
    """All steps, one after the other."""
    figures = [figure for step in steps for figure in figures_of(measure_step(step))]
    return Section(
        "weights",
        "Deltas of weights",
        tuple(figures),
        "CPU time of one thread, the fastest of three rounds (apply: one). Index + value is four "
        "bytes and the element's, uncompressed; XOR + zstd is level 1 over the whole model.",
    )


def _read_steps(folders: list[str]) -> Iterator[Step]:
    for old, new in zip(folders[::2], folders[1::2], strict=True):
        yield Step(
            f"{Path(old).parent.name}/{Path(new).name}", *map(read_folder, map(Path, (old, new)))
        )


def main(folders: list[str]) -> int:
    """Measure and print; 2 with a sentence for folders that cannot be read."""
    if len(folders) % 2:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    before = load_average()
    try:
        section = measure(_read_steps(folders) if folders else made_up_steps())
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{machine_markdown(this_machine())}\n{text(section)}\n")
    sys.stdout.write(f"  load average {before:.1f} → {load_average():.1f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
