"""What the clients of the bench of updates make of an engine's headers."""

import pytest

from infra.bench.updates_load import NUM_TOKENS, Seen, is_sound, spans_of

SPANS, VERSION = "x-headrace-policy-spans", "x-headrace-policy-version"


def test_answers_are_counted_by_what_their_headers_say() -> None:
    seen = Seen()
    for headers in ({VERSION: "3"}, {SPANS: "0:3,20:4"}, {SPANS: "0:3,9:,30:5"}, {}):
        seen.take(headers)
    assert (seen.num_whole, seen.num_unlabelled) == (1, 1)
    assert seen.boundaries == [((0, 3), (20, 4)), ((0, 3), (9, None), (30, 5))]
    seen.gaps_seconds += [0.01, 0.02, 0.5]
    told = "\n".join(seen.sentences())
    assert "boundaries that cannot be: 0" in told
    assert "version 3 from token 0, version None from token 9, version 5 from token 30" in told
    assert "20 ms, 500 ms at most" in told


@pytest.mark.parametrize(
    "header", ["1:3,20:4", "0:3,20:4,20:5", "0:3,30:4,20:5", "0:3,20:3", f"0:3,{NUM_TOKENS + 1}:4"]
)
def test_boundaries_that_cannot_be_are_seen(header: str) -> None:
    assert is_sound(spans_of("0:3,20:4"), NUM_TOKENS)
    assert not is_sound(spans_of(header), NUM_TOKENS)
    seen = Seen()
    seen.take({SPANS: header})
    assert "boundaries that cannot be: 1" in seen.sentences()
