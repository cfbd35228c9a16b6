"""What the commands about rings know of versions."""

from dataclasses import replace

import pytest

from infra.rings import make_proposal, watching
from schemas import topics
from schemas.bus.memory import MemoryBus
from schemas.errors import ConfigError
from schemas.weights.manifests import signed
from tests.ring_events import POLICY, RING, manifest, write

KEY = b"k" * 32


def test_with_a_key_a_version_is_the_signed_one() -> None:
    """A forged manifest that came first must not stand in the way of the real one."""
    bus = MemoryBus()
    bus.admin().create_topics(topics.all_topics(), 1, 1)
    forged = replace(manifest(1), root="f" * 64, epoch=9)
    write(bus, [signed(forged, b"x" * 32), signed(manifest(1), KEY), manifest(2)])
    with watching(bus, KEY) as watch:
        assert make_proposal(watch, POLICY, RING, 1).target.root == manifest(1).root
        with pytest.raises(ConfigError, match="no version 2"):
            make_proposal(watch, POLICY, RING, 2)
    with watching(bus) as watch:
        assert make_proposal(watch, POLICY, RING, 1).target.root == forged.root
