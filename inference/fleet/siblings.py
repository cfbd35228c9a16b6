"""What the other processes of this gateway say of themselves, by a small file each.

Whoever asks for /metrics or /health reaches one process of several; that one answers for all. A
process writes its file every two seconds; one that has written nothing for ten is silent.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

_WRITE_SECONDS = 2.0
_SILENT_SECONDS = 10.0
_LABEL = "worker"


@dataclass(frozen=True, slots=True)
class _Told:
    """The file of a process."""

    worker: str
    why: str
    metrics: str


class Siblings:
    """One process among several. `number` counts from 0."""

    def __init__(self, folder: Path, number: int, num_workers: int) -> None:
        self._folder, self._number, self._num_workers = folder, number, num_workers
        self._written_at = 0.0
        self._began_at = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def tell(self, registry: CollectorRegistry, why: str) -> None:
        """Write what this process says, where that is due. `why` is what is wrong with it."""
        if time.monotonic() - self._written_at < _WRITE_SECONDS:
            return
        self._written_at = time.monotonic()
        told = {"why": why, "metrics": generate_latest(registry).decode()}
        temporary = self._path(self._number).with_suffix(f".{os.getpid()}")
        try:
            temporary.write_text(json.dumps(told))
            temporary.replace(self._path(self._number))
        except OSError:  # a full disk: the others see that this one is silent
            temporary.unlink(missing_ok=True)

    def metrics(self, registry: CollectorRegistry) -> bytes:
        """The metrics of all processes, each sample with the number of its own."""
        own = _Told(str(self._number), "", generate_latest(registry).decode())
        merged: dict[str, Metric] = {}
        for told in (own, *self._others()):
            for family in text_string_to_metric_families(told.metrics):
                into = merged.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    labels = {**sample.labels, _LABEL: told.worker}
                    into.add_sample(sample.name, labels, sample.value, sample.timestamp)
        collector = CollectorRegistry()
        collector.register(_Fixed(list(merged.values())))
        return generate_latest(collector)

    def why(self) -> str:
        """What is wrong with the other processes; empty where nothing is."""
        if time.monotonic() - self._began_at < _SILENT_SECONDS:
            return ""  # they may be starting
        told = {one.worker: one.why for one in self._others()}
        for number in range(self._num_workers):
            if number == self._number:
                continue
            why = told.get(str(number), "it says nothing; the log says whether it starts anew.")
            if why:
                return f"Process {number} of the gateway: {why}"
        return ""

    def _others(self) -> list[_Told]:
        found = []
        for number in range(self._num_workers):
            path = self._path(number)
            try:
                if number != self._number and time.time() - path.stat().st_mtime < _SILENT_SECONDS:
                    told = json.loads(path.read_text())
                    found.append(_Told(str(number), told["why"], told["metrics"]))
            except FileNotFoundError:
                continue
        return found

    def _path(self, number: int) -> Path:
        return self._folder / f"gateway-{number}.json"


class _Fixed:
    """A collector of metrics that are there already."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        return iter(self._metrics)
