"""Texts in which next to nothing is private: code, prose about code, logs, protocol.

The code and the prose are Python's own, so that every machine has them. A few lines of them name
their authors: a finding there is right and is still counted as over-redaction.
"""

import json
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, Final

from infra.bench.redaction.gold import Document

_MODULES: Final = (
    "argparse.py", "asyncio/base_events.py", "asyncio/streams.py", "bisect.py", "collections/__init__.py",
    "concurrent/futures/thread.py", "configparser.py", "contextlib.py", "csv.py", "dataclasses.py",
    "difflib.py", "email/message.py", "enum.py", "functools.py", "heapq.py", "html/parser.py",
    "http/client.py", "http/server.py", "importlib/metadata/__init__.py", "ipaddress.py",
    "json/decoder.py", "json/encoder.py", "logging/__init__.py", "multiprocessing/pool.py", "pathlib.py",
    "queue.py", "random.py", "sched.py", "selectors.py", "shutil.py", "smtplib.py", "socketserver.py",
    "sqlite3/dump.py", "statistics.py", "string.py", "subprocess.py", "tarfile.py", "tempfile.py",
    "textwrap.py", "threading.py", "tokenize.py", "traceback.py", "typing.py", "unittest/case.py",
    "urllib/request.py", "uuid.py", "venv/__init__.py", "weakref.py", "xmlrpc/client.py", "zipfile.py",
)  # fmt: skip
_CHUNK_CHARACTERS: Final = 4_000
_MAX_CHUNKS_A_FILE: Final = 3
_NUM_LOGS: Final = 40
_LINES_A_LOG: Final = 40
_MAX_REQUESTS: Final = 40


def negatives(shared: Path) -> Iterator[Document]:
    """All of them, in pieces of about 4 kB."""
    library = Path(sysconfig.get_path("stdlib"))
    for name in _MODULES:
        for chunk in _chunks((library / name).read_text(encoding="utf-8")):
            yield Document("code", "en", chunk, ())
    for name in sorted(topics)[::2]:
        for chunk in _chunks(topics[name])[:1]:
            yield Document("prose about code", "en", chunk, ())
    for seed in range(_NUM_LOGS):
        rng = random.Random(seed)
        yield Document("logs", "en", "\n".join(_log_line(rng) for _ in range(_LINES_A_LOG)), ())
    for path in sorted((shared / "requests").glob("*/*POST*.json"))[::3][:_MAX_REQUESTS]:
        body = json.loads(path.read_text()).get("body")
        text = "\n".join(_strings(body))[:_CHUNK_CHARACTERS]
        if text:
            yield Document("protocol", "en", text, ())


def _chunks(text: str) -> list[str]:
    pieces: list[str] = []
    lines: list[str] = []
    size = 0
    for line in text.splitlines():
        lines.append(line)
        size += len(line) + 1
        if size >= _CHUNK_CHARACTERS:
            pieces.append("\n".join(lines))
            lines, size = [], 0
    return [*pieces, "\n".join(lines)][:_MAX_CHUNKS_A_FILE]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _strings(item)


# ruff: noqa: E501 - lines of a log are as long as they are
def _log_line(rng: random.Random) -> str:
    """One line of a service that mentions nobody."""
    at = f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}T{rng.randint(0, 23):02}:{rng.randint(0, 59):02}"
    hexes = "".join(rng.choices("0123456789abcdef", k=40))
    number = rng.randint(1, 10**9)
    return rng.choice(
        (
            f"{at}:07.123Z INFO  [worker-{number % 8}] Processed {number % 5000} records in {number % 900} ms",
            f"{at}:10 ERROR KafkaConsumer: Offset {number} out of range for partition raw.events.v1-{number % 12}",
            f"[{at}:11] WARN o.a.k.c.NetworkClient - Node {number % 9} disconnected, backing off {number % 100} ms",
            f'level=info ts={at}:12Z caller=main.go:{number % 400} msg="Server started" port={number % 60000}',
            f"GET /v1/models/{hexes[:8]} 200 {number % 9000} - {number % 300}.{number % 10} ms",
            f'{{"time":"{at}:13Z","level":"debug","step_id":"{hexes[:32]}","tokens":{number % 4096}}}',
            f"commit {hexes} Merge branch 'release-{number % 20}.{number % 9}' into main",
            f"pod/gateway-{hexes[:10]}-{hexes[10:15]} Running restarts={number % 4} age={number % 90}d",
            f"FAILED tests/unit/test_codec.py::test_round_trip[{number % 50}] - AssertionError: {number} != {number + 1}",
            f"epoch {number % 30} step {number % 10000} loss {number % 1000 / 500:.4f} lr 3e-4 grad_norm 0.{number % 1000:03}",
            f"Table steps has {number} rows in {number % 700} parts, kind = model_call, read in {number % 90} ms",
            f"Compiling regex-automata v0.{number % 9}.{number % 14} ({number % 200}/412), Finished release in {number % 80}.{number % 99:02}s",
            f"{number % 90} Items processed, 4 Workers idle, {number % 40} Tests passed, 2 Retries left, queue 7 of 12",
            f"ArrayIndexOutOfBoundsException: Index {number % 100} out of bounds for length {number % 90}",
            f"sha256:{hexes}{hexes[:24]} pulled in {number % 60}.{number % 10}s (v1.{number % 40}.{number % 10})",
        )
    )
