"""The demo scene by scene: a version learned and promoted, a broken one refused, a rollback."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from infra.demo.weights.agent import Agent, Reply
from infra.demo.weights.corruption import FlippingBus
from infra.demo.weights.learning import Lesson, learn
from infra.local.serving import Served
from infra.rings import Watch, make_proposal, watching
from schemas import codec, topics
from schemas.atdp.weights import AckStatus, RingAssignment, WeightsAck, WeightsManifest
from schemas.bus import Bus
from schemas.errors import ConfigError, TransientError
from schemas.store import BlobStore
from schemas.weights.checkpoints import read_folder
from schemas.weights.publish import Publisher
from schemas.weights.shadow import Shadow
from schemas.weights.tensors import Tensors, tensor

_SETTLE_SECONDS = 120.0
_BROKEN_SHARE = 0.01

Show = Callable[[str, str], None]
"""Takes who or what a line is about, and the line."""


@dataclass(frozen=True, slots=True)
class Scenery:
    """Where the demo plays. `key` lets the agent in."""

    bus: Bus
    blobs: BlobStore
    gateway_url: str
    key: str
    policy: str
    ring: str
    served: Served
    folder: Path
    #: Signs manifests, where the deployment asks for that.
    weights_key: bytes | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """A version, and how long it took to publish."""

    manifest: WeightsManifest
    seconds: float


@dataclass(frozen=True, slots=True)
class Move:
    """What became of a promotion. `seconds` from the proposal until every worker had said so."""

    ring: RingAssignment
    ack: WeightsAck
    seconds: float


@dataclass(frozen=True, slots=True)
class Played:
    """All that happened."""

    snapshot: Published
    learned: Published
    promoted: Move
    broken: Published
    refused: Move
    rolled_back: Move
    answers: tuple[Reply, ...]
    replies: tuple[Reply, ...]

    @property
    def num_failed(self) -> int:
        """Calls of the agent that got no answer."""
        return sum(not reply.is_answer for reply in self.replies)

    @property
    def num_mislabelled(self) -> int:
        """Answers that are not what their version says. Decoding is greedy, so there is one."""
        said = {reply.version: reply.text for reply in self.answers}
        return sum(r.is_answer and said.get(r.version) != r.text for r in self.replies)

    @property
    def problems(self) -> list[str]:
        """What did not go as it should, in sentences; empty where all did."""
        first, as_published, changed, kept, back = self.answers
        found = {
            "version 1 answers otherwise than the model did": first.text != as_published.text,
            "version 2 answers as version 1 did": changed.text == as_published.text,
            "the learned answer does not carry version 2": changed.version != 2,
            "version 3 was not refused": self.refused.ack.status is not AckStatus.REFUSED,
            "the ring did not go back to version 2": self.refused.ring.stable.version != 2,
            "the refused version changed the answer": kept.text != changed.text,
            "the rollback did not bring the first answer back": back.text != as_published.text,
            f"{self.num_failed} calls failed": self.num_failed > 0,
            f"{self.num_mislabelled} answers carry a wrong version": self.num_mislabelled > 0,
        }
        return [sentence for sentence, is_so in found.items() if is_so]


def play(scenery: Scenery, lesson: Lesson, show: Show) -> Played:
    """All scenes, with the agent at work from the first to the last."""

    def heard(reply: Reply) -> None:
        version = "no version" if reply.version is None else f"version {reply.version}"
        show("agent", f"{version}: {reply.text}" if reply.is_answer else f"HTTP {reply.status}")

    show("agent", f"asks again and again: {lesson.question}")
    name = scenery.served.name
    agent = Agent(scenery.gateway_url, scenery.key, name, lesson.question, heard)
    with agent, watching(scenery.bus, scenery.weights_key) as watch:
        answers = [agent.next_answer()]
        publisher = Publisher(scenery.bus, scenery.blobs, scenery.policy, key=scenery.weights_key)
        try:
            snapshot = _published(publisher, read_folder(scenery.served.folder), show)
            _moved(watch, scenery, 1, show)
            answers.append(agent.next_answer())
            tensors = _taught(scenery, lesson, show)
            learned = _published(publisher, tensors, show, snapshot)
        finally:
            publisher.close()
        promoted = _moved(watch, scenery, 2, show)
        answers.append(agent.next_answer())
        broken = _published_broken(scenery, tensors, show)
        refused = _moved(watch, scenery, 3, show)
        answers.append(agent.next_answer())
        show("you", "roll back to version 1")
        rolled_back = _moved(watch, scenery, 1, show)
        answers.append(agent.next_answer())
    return Played(
        snapshot, learned, promoted, broken, refused, rolled_back,
        tuple(answers), tuple(agent.replies),
    )  # fmt: skip


def _taught(scenery: Scenery, lesson: Lesson, show: Show) -> Tensors:
    show("learning", f"“{lesson.answer}”, in the last {lesson.num_layers} layers")

    def step(fields: dict[str, Any]) -> None:
        show("learning", f"step {fields['step']}: loss {fields['loss']:.2f}")

    base = scenery.served.folder
    learned = learn(scenery.served.python, base, scenery.folder / "learned", lesson, step)
    show("learning", f"{learned.num_steps} steps, {learned.seconds:.1f} s")
    return read_folder(learned.folder)


def _published(
    publisher: Publisher, tensors: Tensors, show: Show, whole: Published | None = None
) -> Published:
    started = time.monotonic()
    manifest = publisher.publish(tensors)
    published = Published(manifest, time.monotonic() - started)
    size = f"{manifest.num_bytes / 1e6:.2f} MB"
    if whole is None:
        what = f"{manifest.kind.value} of {size}"
    else:
        smaller = whole.manifest.num_bytes / manifest.num_bytes
        what = (
            f"delta of {size}, {smaller:.0f} times smaller than the snapshot; "
            f"{manifest.density:.2%} of all elements changed"
        )
    show(f"version {manifest.version}", f"{what}, published in {published.seconds * 1000:.0f} ms")
    return published


def _published_broken(scenery: Scenery, tensors: Tensors, show: Show) -> Published:
    """A further version whose delta lies on the topic with one bit of each chunk flipped."""
    bus = FlippingBus(scenery.bus)
    publisher = Publisher(bus, scenery.blobs, scenery.policy, key=scenery.weights_key)
    try:
        publisher.start_from(2, Shadow(tensors))
        published = _published(publisher, _nudged(tensors), show, None)
    finally:
        publisher.close()
    show("version 3", "one bit of its delta flipped on the way to Kafka")
    return published


def _nudged(tensors: Tensors) -> Tensors:
    """The same weights with a little of one tensor moved by the least step."""
    name = max(tensors, key=lambda n: (tensors[n].bits.size, n))
    old = tensors[name]
    bits = old.bits.copy()
    bits[: max(1, int(bits.size * _BROKEN_SHARE))] ^= np.array(1, bits.dtype)
    return {**tensors, name: tensor(old.spec.dtype, old.spec.shape, bits)}


def _moved(watch: Watch, scenery: Scenery, version: int, show: Show) -> Move:
    """Propose a version and wait until the workers have said what they did with it."""
    if not watch.until(lambda: watch.state.root_of(scenery.policy, version) is not None, 30.0):
        raise TransientError(f"The manifest of version {version} cannot be read.")
    begins = _end_of_acks(scenery.bus)
    started = time.monotonic()
    proposal = make_proposal(watch, scenery.policy, scenery.ring, version, reason="demo")
    watch.propose(proposal)
    answer = watch.answer_to(proposal, _SETTLE_SECONDS)
    assigned = watch.ring(scenery.policy, scenery.ring)
    if answer is None or assigned is None:
        raise TransientError("Nobody decides. `headrace logs promotion` says why.")
    if answer.status.value != "accepted":
        raise ConfigError(answer.reason)
    if not watch.settle(assigned, _SETTLE_SECONDS):
        raise TransientError("The worker says nothing. `headrace logs worker` says why.")
    seconds = time.monotonic() - started
    ack = _ack_of(scenery.bus, begins, version)
    if ack.status is not AckStatus.APPLIED:  # the only worker: the ring goes back by itself
        watch.until(lambda: _sequence(watch, scenery) > assigned.sequence, 30.0)
    ring = watch.ring(scenery.policy, scenery.ring) or assigned
    show(f"version {version}", _told(ack, ring))
    return Move(ring, ack, seconds)


def _sequence(watch: Watch, scenery: Scenery) -> int:
    ring = watch.ring(scenery.policy, scenery.ring)
    return 0 if ring is None else ring.sequence


def _told(ack: WeightsAck, ring: RingAssignment) -> str:
    if ack.status is AckStatus.APPLIED:
        times = f"staged in {ack.stage_ms or 0:.0f} ms, engine paused {ack.pause_ms or 0:.0f} ms"
        return f"applied and proved {ack.apply_ms or 0:.0f} ms after it was asked for ({times})"
    return f"{ack.status.value}: {ack.error}; ring {ring.ring} serves version {ring.stable.version}"


def _end_of_acks(bus: Bus) -> int:
    admin = bus.admin()
    try:
        return admin.watermarks(topics.WEIGHTS_ACKS)[0][1]
    finally:
        admin.close()


def _ack_of(bus: Bus, begins: int, version: int) -> WeightsAck:
    """The last word of a worker on that version, of the acks from `begins` on."""
    consumer = bus.consumer()
    try:
        consumer.assign({(topics.WEIGHTS_ACKS, 0): begins})
        deadline, found = time.monotonic() + 30.0, None
        while time.monotonic() < deadline and not (found and consumer.at_end()):
            for record in consumer.poll(100, 0.1):
                ack = codec.decode(record.value) if record.value else None
                if isinstance(ack, WeightsAck) and ack.version == version:
                    found = ack
    finally:
        consumer.close()
    if found is None:
        raise TransientError(f"No worker has acknowledged version {version}.")
    return found
