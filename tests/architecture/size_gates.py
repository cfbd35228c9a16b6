"""Size gates: a file has at most 400 lines of code, a function at most 60, the gateway 500.

Run as `python -m tests.architecture.size_gates`; exit 1 names every violation. A line of code is
a line that is neither blank, nor a comment, nor part of a docstring. Exceptions stand in
`size_exceptions.toml` with a reason. The list only shrinks: an entry that is no longer needed, or
whose number could be lower, fails the gate as well. Complexity is ruff's business (C90).
"""

import ast
import io
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("schemas", "streams", "inference", "infra", "trainer", "controlplane", "tests")
EXCEPTIONS = Path(__file__).with_name("size_exceptions.toml")
GATEWAY = "inference/gateway"

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_GATEWAY_LINES = 500

_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip


@dataclass(frozen=True)
class Size:
    """The number of lines of code of a file, a function or a folder, and what it may be."""

    name: str
    num_lines: int
    limit: int


def code_lines(source: str) -> set[int]:
    """Numbers of the lines that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines - set(_docstring_lines(ast.parse(source)))


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def sizes_of_file(name: str, source: str) -> Iterator[Size]:
    """The file itself, then each function in it, nested ones included."""
    lines = code_lines(source)
    yield Size(name, len(lines), MAX_FILE_LINES)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = lines & set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            yield Size(f"{name}::{node.name}", len(inside), MAX_FUNCTION_LINES)


def sizes(root: Path) -> Iterator[Size]:
    """Everything that has a limit."""
    gateway = 0
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            source = path.read_text()
            if name.startswith(f"{GATEWAY}/"):
                gateway += len(code_lines(source))
            yield from sizes_of_file(name, source)
    yield Size(GATEWAY, gateway, MAX_GATEWAY_LINES)


def violations(found: list[Size], exceptions: dict[str, int]) -> list[str]:
    """A sentence for each size above its limit and each exception that should shrink."""
    largest: dict[str, int] = {}
    sentences = []
    for size in found:
        limit = exceptions.get(size.name, size.limit)
        if size.num_lines > limit:
            sentences.append(
                f"{size.name} has {size.num_lines} lines of code, at most {limit} are allowed. "
                "Split it along what it does."
            )
        if size.num_lines > size.limit:
            largest[size.name] = max(size.num_lines, largest.get(size.name, 0))
    for name, allowed in exceptions.items():
        needed = largest.get(name, 0)
        if needed < allowed:
            what = f"lower it to {needed}" if needed else "remove it"
            sentences.append(f"The exception for {name} is larger than needed: {what}.")
    return sentences


def read_exceptions(path: Path = EXCEPTIONS) -> dict[str, int]:
    """Name → lines allowed. Every entry must give a reason."""
    entries = tomllib.loads(path.read_text()).get("exception", [])
    for entry in entries:
        if not entry.get("reason", "").strip():
            raise SystemExit(f"{path.name}: the exception for {entry['name']} gives no reason.")
    return {entry["name"]: entry["lines"] for entry in entries}


def main() -> int:
    """Print the violations; 1 when there is one."""
    sentences = violations(list(sizes(ROOT)), read_exceptions())
    for sentence in sentences:
        sys.stdout.write(f"{sentence}\n")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
