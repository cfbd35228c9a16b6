"""A payload as records of weights.chunks.v1, and back. A manifest says where each part lies."""

import hashlib
from collections.abc import Iterable, Iterator

import xxhash

from schemas import topics
from schemas.atdp.weights import ChunkRef, WeightsManifest
from schemas.bus.api import Delivery, Received, Record
from schemas.weights.refusals import Refusal, RefusedError

PART_BYTES = 900_000
#: Larger payloads go to the blob store.
MAX_TOPIC_BYTES = 8 * 1024**2


def split(policy: str, epoch: int, version: int, payload: bytes) -> list[Record]:
    """The records to produce, in order."""
    parts = [payload[start : start + PART_BYTES] for start in range(0, len(payload), PART_BYTES)]
    return [
        Record(
            topics.WEIGHTS_CHUNKS,
            policy.encode(),
            part,
            (
                ("policy", policy.encode()),
                ("epoch", str(epoch).encode()),
                ("version", str(version).encode()),
                ("part", str(index).encode()),
                ("parts", str(len(parts)).encode()),
                ("xxh3", xxhash.xxh3_128_hexdigest(part).encode()),
            ),
            partition=0,
        )
        for index, part in enumerate(parts)
    ]


def references(records: Iterable[Record], deliveries: Iterable[Delivery]) -> tuple[ChunkRef, ...]:
    """Where the broker put them."""
    return tuple(
        ChunkRef(
            partition=delivery.partition,
            offset=delivery.offset,
            num_bytes=len(record.value or b""),
            xxh3=dict(record.headers)["xxh3"].decode(),
        )
        for record, delivery in zip(records, deliveries, strict=True)
    )


def joined(manifest: WeightsManifest, received: Iterable[Received]) -> bytes:
    """The payload, from what lies where the manifest says.

    RefusedError for a part that is missing, came twice, belongs elsewhere or is not what its
    publisher wrote; and for a manifest whose parts cannot be a payload.
    """
    require_parts(manifest)
    found: dict[tuple[int, int], Received] = {}
    for record in received:
        if (record.partition, record.offset) in found:
            raise RefusedError(Refusal.CHUNK_DUPLICATE, f"offset {record.offset}")
        found[record.partition, record.offset] = record
    payload = b"".join(_parts(manifest, found))
    if hashlib.sha256(payload).hexdigest() != manifest.sha256:
        raise RefusedError(Refusal.CORRUPT, f"version {manifest.version}")
    return payload


def require_parts(manifest: WeightsManifest) -> None:
    """Refuse parts that no publisher writes, before anything is read."""
    sizes = [part.num_bytes for part in manifest.parts]
    fits = 0 < len(sizes) <= -(-MAX_TOPIC_BYTES // PART_BYTES)
    fits = fits and all(size == PART_BYTES for size in sizes[:-1]) and 0 < sizes[-1] <= PART_BYTES
    if not fits or sum(sizes) != manifest.num_bytes:
        raise RefusedError(Refusal.CORRUPT, f"parts of version {manifest.version}")
    places = [(part.partition, part.offset) for part in manifest.parts]
    if len(set(places)) != len(places):
        raise RefusedError(Refusal.CHUNK_DUPLICATE, f"version {manifest.version}")
    if places != sorted(places):
        raise RefusedError(Refusal.CHUNK_OUT_OF_ORDER, f"version {manifest.version}")


def _parts(manifest: WeightsManifest, found: dict[tuple[int, int], Received]) -> Iterator[bytes]:
    for index, part in enumerate(manifest.parts):
        where = f"part {index} of version {manifest.version}"
        record = found.get((part.partition, part.offset))
        if record is None or record.value is None:
            raise RefusedError(Refusal.CHUNK_MISSING, where)
        headers = dict(record.headers)
        owner = headers.get("policy"), headers.get("epoch"), headers.get("version")
        wanted = tuple(str(v).encode() for v in (manifest.policy, manifest.epoch, manifest.version))
        if owner != wanted:
            raise RefusedError(Refusal.CHUNK_MISSING, where)
        place = headers.get("part"), headers.get("parts")
        if place != (str(index).encode(), str(len(manifest.parts)).encode()):
            raise RefusedError(Refusal.CHUNK_OUT_OF_ORDER, where)
        digest = xxhash.xxh3_128_hexdigest(record.value)
        if len(record.value) != part.num_bytes or digest != part.xxh3:
            raise RefusedError(Refusal.CHUNK_CORRUPT, where)
        if headers.get("xxh3") != digest.encode():
            raise RefusedError(Refusal.CHUNK_CORRUPT, where)
        yield record.value
