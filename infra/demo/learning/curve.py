"""The learning curve: in the terminal, and as a PNG without a library."""

import itertools
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

_WIDTH, _HEIGHT, _MARGIN = 640, 360, 20
_WHITE, _GRAY, _BLUE, _RED = (255, 255, 255), (200, 200, 200), (30, 90, 200), (200, 60, 40)
_BLOCKS = " ▁▂▃▄▅▆▇█"

Color = tuple[int, int, int]


def smoothed(rewards: Sequence[float], num_points: int) -> list[float]:
    """Means of so many parts of equal length; fewer where there are fewer rewards."""
    number = min(num_points, len(rewards))
    edges = [len(rewards) * i // max(number, 1) for i in range(number + 1)]
    return [sum(rewards[first:end]) / (end - first) for first, end in itertools.pairwise(edges)]


def terminal(rewards: Sequence[float], num_columns: int = 60, num_rows: int = 8) -> list[str]:
    """The curve in characters, with the scale from 0 to 1 at the left."""
    points = smoothed(rewards, num_columns)
    lines = []
    for row in range(num_rows, 0, -1):
        level = [round((point * num_rows - (row - 1)) * 8) for point in points]
        bar = "".join(_BLOCKS[max(0, min(8, eighths))] for eighths in level)
        lines.append(f"{row / num_rows:4.2f} |{bar}")
    return [*lines, "     +" + "-" * len(points)]


def write_png(path: Path, learning: Sequence[float], control: Sequence[float]) -> None:
    """Reward over tasks, learning in blue and the control in red; lines at 0, 0.25, … 1."""
    pixels = [[_WHITE] * _WIDTH for _ in range(_HEIGHT)]
    for quarter in range(5):
        y = _row(quarter / 4)
        for x in range(_MARGIN, _WIDTH - _MARGIN):
            pixels[y][x] = _GRAY
    for rewards, color in ((control, _RED), (learning, _BLUE)):
        _draw(pixels, smoothed(rewards, 60), color)
    path.write_bytes(_png(pixels))


def _row(value: float) -> int:
    return round(_HEIGHT - _MARGIN - value * (_HEIGHT - 2 * _MARGIN))


def _draw(pixels: list[list[Color]], points: Sequence[float], color: Color) -> None:
    width = _WIDTH - 2 * _MARGIN
    for index in range(len(points) - 1):
        left, right = (_MARGIN + width * i // (len(points) - 1) for i in (index, index + 1))
        for x in range(left, right):
            share = (x - left) / max(right - left, 1)
            y = _row(points[index] + share * (points[index + 1] - points[index]))
            for thick in (-1, 0, 1):
                pixels[min(max(y + thick, 0), _HEIGHT - 1)][x] = color


def _png(pixels: list[list[Color]]) -> bytes:
    raw = b"".join(b"\0" + bytes(value for pixel in row for value in pixel) for row in pixels)
    head = struct.pack(">IIBBBBB", _WIDTH, _HEIGHT, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(raw, 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
