"""One text to scan, and where each of its characters was written."""

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Fragment:
    """One decoded text: what to scan, under which keys, and where each character came from."""

    text: str
    context: str | None
    #: Source position of each character and of the end; None means `start + index`.
    origins: tuple[int, ...] | None
    start: int = 0
    is_key: bool = False
    #: Nested deeper than we look.
    is_opaque: bool = False
    #: Where the writing of each character ends; None means where the next one begins.
    ends: tuple[int, ...] | None = None
    #: A JSON number: what stands in its place is a JSON text.
    is_number: bool = False

    def origin(self, index: int) -> int:
        """Where in the source the character at `index` begins (or the text ends)."""
        return self.start + index if self.origins is None else self.origins[index]

    def stop(self, index: int) -> int:
        """Where in the source the writing of the characters before `index` ends."""
        return self.ends[index - 1] if self.ends and index else self.origin(index)

    def part(self, start: int, end: int, context: str | None, *, is_key: bool) -> "Fragment":
        """The fragment of `text[start:end]`, under keys of its own."""
        text = self.text[start:end]
        if self.origins is None:
            return Fragment(text, context, None, self.start + start, is_key)
        ends = self.ends and self.ends[start:end]
        return Fragment(text, context, self.origins[start : end + 1], 0, is_key, ends=ends)

    def reading(
        self, text: str, starts: Sequence[int] | None = None, ends: Sequence[int] | None = None
    ) -> "Fragment":
        """The same read as `text`, whose characters stand at `starts` to `ends` of this one; one
        for one where these are not given."""
        if starts is None or ends is None:
            return replace(self, text=text)
        origins = (*map(self.origin, starts), self.stop(len(self.text)))
        return replace(self, text=text, origins=origins, ends=tuple(map(self.stop, ends)), start=0)
