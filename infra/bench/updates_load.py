"""Clients that ask an engine for long answers all the time, and what they see of its updates.

One takes whole answers, whose headers name the versions that made them and from which token on; one
takes streams, and counts the time between two parts of an answer.
"""

import itertools
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from statistics import median
from typing import Any

NUM_CLIENTS = 2
NUM_TOKENS = 64
_SECONDS = 60.0
_SPANS, _VERSION = "x-headrace-policy-spans", "x-headrace-policy-version"

Spans = tuple[tuple[int, int | None], ...]
"""First token and version, in order."""


@dataclass
class Seen:
    """What the clients saw. Complete once the load has ended."""

    num_failed: int = 0
    #: Answers that one version made, and those of which nobody knows which.
    num_whole: int = 0
    num_unlabelled: int = 0
    #: Boundaries of each answer that several versions made.
    boundaries: list[Spans] = field(default_factory=list)
    #: Seconds between two parts of one stream.
    gaps_seconds: list[float] = field(default_factory=list)

    def take(self, headers: Any) -> None:
        """Count an answer by what its headers say."""
        spans = headers.get(_SPANS)
        if spans is not None:
            self.boundaries.append(spans_of(spans))
        elif headers.get(_VERSION) is not None:
            self.num_whole += 1
        else:
            self.num_unlabelled += 1

    def sentences(self) -> list[str]:
        """For people."""
        wrong = [spans for spans in self.boundaries if not is_sound(spans, NUM_TOKENS)]
        found = [
            f"failed calls: {self.num_failed}",
            f"answers of one version: {self.num_whole}",
            f"answers with boundaries: {len(self.boundaries)}",
            f"answers without a label: {self.num_unlabelled}",
            f"boundaries that cannot be: {len(wrong)}",
        ]
        if self.boundaries:
            longest = max(self.boundaries, key=len)
            found.append("one of them: " + ", ".join(f"version {v} from token {at}"
                                                     for at, v in longest))  # fmt: skip
        if self.gaps_seconds:
            found.append(
                f"between two tokens of a stream: {1000 * median(self.gaps_seconds):.0f} ms, "
                f"{1000 * max(self.gaps_seconds):.0f} ms at most"
            )
        return found


def spans_of(header: str) -> Spans:
    """`0:5,163:6` → ((0, 5), (163, 6)); a version that nobody knows is None."""
    parts = (part.partition(":") for part in header.split(","))
    return tuple((int(at), int(version) if version else None) for at, _, version in parts)


def is_sound(spans: Spans, num_tokens: int) -> bool:
    """Whether boundaries begin at 0, rise within the answer, and each has another version."""
    places, versions = [at for at, _ in spans], [version for _, version in spans]
    rises = all(a < b for a, b in itertools.pairwise(places))
    differs = all(a != b for a, b in itertools.pairwise(versions))
    return places[0] == 0 and rises and differs and places[-1] <= num_tokens


@contextmanager
def load(url: str, model: str) -> Iterator[Seen]:
    """Ask at that address for the length of the block."""
    stop, seen = threading.Event(), Seen()

    def client(ask: Callable[[str, str, Seen], None]) -> None:
        while not stop.is_set():
            try:
                ask(url, model, seen)
            except (OSError, HTTPException):
                seen.num_failed += 1

    threads = [threading.Thread(target=client, args=(ask,), daemon=True)
               for ask in (_ask_whole, _ask_stream)]  # fmt: skip
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        stop.set()
        for thread in threads:
            thread.join(_SECONDS)


def _request(url: str, model: str, *, stream: bool) -> urllib.request.Request:
    body = {"model": model, "prompt": "Once upon a time", "max_tokens": NUM_TOKENS,
            "ignore_eos": True, "stream": stream}  # fmt: skip
    return urllib.request.Request(  # noqa: S310 - our own server
        url + "/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )


def _ask_whole(url: str, model: str, seen: Seen) -> None:
    with urllib.request.urlopen(  # noqa: S310 - our own server
        _request(url, model, stream=False), timeout=_SECONDS
    ) as answer:
        answer.read()
        seen.take(answer.headers)


def _ask_stream(url: str, model: str, seen: Seen) -> None:
    with urllib.request.urlopen(  # noqa: S310 - our own server
        _request(url, model, stream=True), timeout=_SECONDS
    ) as answer:
        before: float | None = None
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            now = time.perf_counter()
            if before is not None:
                seen.gaps_seconds.append(now - before)
            before = now
