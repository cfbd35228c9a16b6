"""The cache is bounded, forgets the least used, and holds no text."""

from streams.redaction.cache import DigestCache, Digester
from streams.redaction.detect.contract import Span

KEY = b"0123456789abcdef"


def digester(**changes: str) -> Digester:
    parts = {"policy_version": "1", "language": "en", "detector_version": "d"} | changes
    return Digester(tenant_key=KEY, **parts)


def test_the_least_recently_used_leaves_first() -> None:
    cache = DigestCache(max_bytes=1000)
    for name in (b"a", b"b", b"c"):
        cache.put(name, ())
    assert cache.get(b"a") == ()
    cache.put(b"d", ())
    cache.put(b"e", ())
    assert cache.get(b"b") is None
    assert cache.get(b"a") == ()
    assert cache.num_bytes <= 1000
    assert (cache.counters.num_hits, cache.counters.num_misses) == (2, 1)
    assert cache.counters.num_evicted == 1


def test_an_entry_larger_than_the_cache_is_not_kept() -> None:
    cache = DigestCache(max_bytes=400)
    cache.put(b"small", ())
    cache.put(b"large", [Span(n, n + 1, "PERSON") for n in range(9)])
    assert cache.get(b"small") == ()
    assert cache.get(b"large") is None


def test_a_replaced_entry_is_counted_once() -> None:
    cache = DigestCache()
    cache.put(b"a", [Span(0, 1, "PERSON")])
    cache.put(b"a", ())
    alone = DigestCache()
    alone.put(b"a", ())
    assert cache.num_bytes == alone.num_bytes
    assert cache.num_entries == 1


def test_every_part_of_the_digest_counts() -> None:
    digests = {
        digester().digest("text", None),
        digester().digest("text", ""),
        digester().digest("text", "key"),
        digester().digest("textkey", ""),
        digester(policy_version="2").digest("text", None),
        digester(language="de").digest("text", None),
        digester(detector_version="e").digest("text", None),
        Digester(
            tenant_key=b"fedcba9876543210", policy_version="1", language="en", detector_version="d"
        ).digest("text", None),
    }
    assert len(digests) == 8
    assert digester().digest("\ud83d", None) != digester().digest("\ud83e", None)


def test_every_part_of_a_derived_digest_counts() -> None:
    one = digester()
    digests = {
        one.digest("text", None),
        one.derived(one.digest("text", None), b"text", b""),
        one.derived(one.digest("text", None), b"key", b""),
        one.derived(one.digest("text", None), b"tex", b"t"),
        one.derived(one.digest("other", None), b"text", b""),
        one.derived(one.digest("text", None), b"text", b"mia"),
        digester(policy_version="2").derived(one.digest("text", None), b"text", b""),
    }
    assert len(digests) == 7
