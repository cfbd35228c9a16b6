"""Whatever comes in whatever order, and whenever the process is killed."""

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.atdp.weights import AckStatus
from schemas.rings import MAX_SERVED, proposal_id
from tests.ring_events import POLICY, RING, ack, at, beat, manifest, proposal, ref
from tests.unit.promotion.world import World

VERSIONS = st.integers(1, 6)  # 6 is never published
WORKERS = st.sampled_from(["a", "b", "c"])
EVENTS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 5)),
    st.tuples(st.just("propose"), VERSIONS, st.sampled_from([None, 0.2, 0.7])),
    st.tuples(st.just("ack"), WORKERS, VERSIONS, st.sampled_from(list(AckStatus))),
    st.tuples(st.just("beat"), WORKERS, VERSIONS),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 6.0, 11.0])),
    st.tuples(st.just("do"), st.sampled_from([World.step, World.settle, World.restart])),
)


def play(world: World, event: tuple[object, ...]) -> None:
    match event:
        case ("publish", int(version)):
            world.add(manifest(version))
        case ("propose", int(version), share):
            world.add(proposal(version, proposed_at=at(world.seconds), canary_share=share))
        case ("ack", str(worker), int(version), AckStatus() as status):
            world.add(ack(worker, version, status))
        case ("beat", str(worker), int(version)):
            world.add(beat(worker, version, heartbeat_at=at(world.seconds)))
        case ("wait", float(seconds)):
            world.seconds += seconds
        case ("do", act):
            act(world)  # type: ignore[operator]
    world.seconds += 0.01  # no two proposals are made at one time


@settings(max_examples=300, deadline=None)
@given(st.lists(EVENTS, max_size=60))
def test_assignments_are_sound_whatever_happens(events: list[tuple[object, ...]]) -> None:
    world = World()
    for event in events:
        play(world, event)
    world.seconds += 6.0
    world.settle()

    made = [change.assignment for change in world.written if change.assignment is not None]
    assert [ring.sequence for ring in made] == list(range(1, len(made) + 1))
    published = {event[1] for event in events if event[0] == "publish"}
    for ring in made:
        named = [ring.stable, *ring.served, *([ring.canary] if ring.canary else [])]
        assert all(version == ref(version.version) for version in named)
        assert {version.version for version in named} <= published
        assert ring.stable not in ring.served
        assert len(set(ring.served)) == len(ring.served) <= MAX_SERVED
        assert (ring.canary is None) == (ring.canary_share == 0.0)
        assert ring.canary != ring.stable
        assert ring.canary is not None or not ring.canary_workers
        assert len(ring.canary_workers) < 3
    answers = [change.answer.proposal_id for change in world.written if change.answer is not None]
    assert len(set(answers)) == len(answers), "a proposal was answered twice"
    assert not world.state.pending()


@settings(max_examples=200, deadline=None)
@given(st.lists(EVENTS, max_size=40))
def test_a_killed_process_goes_on_where_one_that_lived_would(
    events: list[tuple[object, ...]],
) -> None:
    """Reading the compacted topics leads to the same assignment and the same open proposals."""
    world = World()
    for event in events:
        play(world, event)
    before = world.state
    world.restart()
    assert world.state.rings == before.rings
    assert world.state.answers == before.answers
    assert world.state.acks_end == before.acks_end
    assert [p.proposal for p in world.state.pending()] == [p.proposal for p in before.pending()]


@settings(max_examples=100, deadline=None)
@given(st.lists(VERSIONS.filter(lambda v: v < 6), min_size=1, max_size=12))
def test_the_last_proposal_wins(versions: list[int]) -> None:
    world = World()
    world.add(*(manifest(version) for version in range(1, 6)))
    for number, version in enumerate(versions):
        world.add(proposal(version, proposed_at=at(number)))
    world.settle()
    ring = world.state.rings[POLICY, RING]
    last = proposal(versions[-1], proposed_at=at(len(versions) - 1))
    assert ring.stable == ref(versions[-1])
    assert ring.decision_id == proposal_id(last)
