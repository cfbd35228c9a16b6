"""Server-sent events out of bytes (WHATWG HTML, section 9.2.6), for a stream that has ended.

The bytes are decoded as a whole, so a character or a line that was split over segments is whole
again whatever the framing was. An event without its final blank line counts: the stream may have
been cut right there.
"""

import io
import re
from collections.abc import Iterator

_BLANK_LINES = re.compile(r"\n{3,}")


def data_of_events(body: bytes) -> Iterator[str]:
    """The data of each event in order; lines of one event are joined by newlines."""
    text = body.decode("utf-8", "replace").removeprefix("\ufeff")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _BLANK_LINES.sub("\n\n", text)  # megabytes of them are no work then
    lines: list[str] = []
    for ended in io.StringIO(text):
        line = ended.removesuffix("\n")
        if line == "":
            if lines:
                yield "\n".join(lines)
            lines = []
        elif line.startswith("data:"):
            lines.append(line[5:].removeprefix(" "))
    if lines:
        yield "\n".join(lines)
