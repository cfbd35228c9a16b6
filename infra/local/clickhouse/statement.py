"""Enough of ClickHouse's grammar to know where a statement ends and its data begins.

The scanner knows strings, quoted names, comments and parentheses, and looks only at what stands
outside of them. Everything else is the engine's business.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    rb"""
      (?P<skip>\s+|--[^\n]*|\#[!\s][^\n]*|/\*.*?\*/)
    | (?P<quoted>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`\\]|\\.|``)*`)
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])
    | (?P<semicolon>;)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)

_END_OF_LINE = re.compile(rb"[ \t]*(?:;[ \t]*)?(?:\r?\n)?")
_READS = frozenset(
    {b"SELECT", b"WITH", b"SHOW", b"DESCRIBE", b"DESC", b"EXPLAIN", b"EXISTS", b"CHECK", b"FROM"}
)
#: Of the reads, the engine yields only these block by block.
_SELECTS = frozenset({b"SELECT", b"WITH", b"FROM"})
#: Each block of these is complete in itself, so a result may be sent block by block.
_STREAMABLE = frozenset(
    {"Native", "TabSeparated", "TSV", "TabSeparatedRaw", "TSVRaw", "CSV", "RowBinary",
     "JSONEachRow", "NDJSON", "JSONLines", "JSONCompactEachRow", "JSONStringsEachRow"}
)  # fmt: skip


@dataclass(frozen=True)
class Statement:
    """One statement without its data.

    `insert_format` is set when rows follow as data: then `text` is the INSERT without FORMAT, and
    `inline_data_at` the offset in the scanned bytes at which data begins.
    """

    text: str
    is_read: bool = False
    is_select: bool = False
    output_format: str | None = None
    insert_format: str | None = None
    inline_data_at: int | None = None
    forbidden: str | None = None

    def streams_as(self, default_format: str) -> str | None:
        """The format when the result can be sent block by block, else None."""
        name = self.output_format or default_format
        return name if self.is_select and name in _STREAMABLE else None


@dataclass(frozen=True)
class _Word:
    upper: bytes
    start: int
    end: int


def parse(query: bytes) -> Statement:
    """Split and classify. UnicodeDecodeError when the statement is not UTF-8."""
    words = _outer_words(query)
    first = next(words, None)
    if first is not None and first.upper == b"INSERT":
        return _parse_insert(query, words)
    rest = list(words)
    is_read = first is not None and first.upper in _READS and not _inserts(rest)
    return Statement(
        text=query.decode(),
        is_read=is_read,
        is_select=is_read and first is not None and first.upper in _SELECTS,
        output_format=_format_at_end(query, rest),
        forbidden=_forbidden(rest, query),
    )


def reading_file(statement: Statement, path: str) -> str:
    """The INSERT with its data in a file. SETTINGS stand after the file's name."""
    text = statement.text.encode()
    settings = [word.start for word in _outer_words(text) if word.upper == b"SETTINGS"]
    at = settings[0] if settings else len(text)
    name = path.replace("\\", "\\\\").replace("'", "\\'")
    return (
        f"{text[:at].decode()} FROM INFILE '{name}' COMPRESSION 'none' "
        f"{text[at:].decode()} FORMAT {statement.insert_format or 'Values'}"
    )


def _parse_insert(query: bytes, words: Iterator[_Word]) -> Statement:
    seen: list[_Word] = []
    for word in words:
        if word.upper in {b"SELECT", b"WITH"}:
            return Statement(query.decode(), forbidden=_forbidden([*seen, word, *words], query))
        if word.upper == b"VALUES":
            return _insert_of_data(query, seen, word, "Values", word.end)
        if word.upper == b"FORMAT" and (name := next(words, None)) is not None:
            format_name = query[name.start : name.end].decode()
            return _insert_of_data(query, seen, word, format_name, _data_start(query, name.end))
        seen.append(word)
    end = _Word(b"", len(query), len(query))
    return _insert_of_data(query, seen, end, "Values", len(query))


def _insert_of_data(
    query: bytes, seen: list[_Word], keyword: _Word, format_name: str, data_at: int
) -> Statement:
    return Statement(
        query[: keyword.start].decode(),
        insert_format=format_name,
        inline_data_at=data_at,
        forbidden=_forbidden(seen, query),
    )


def _data_start(query: bytes, offset: int) -> int:
    """Only the rest of the line after the format's name is not part of the data."""
    match = _END_OF_LINE.match(query, offset)
    return match.end() if match else offset


def _outer_words(query: bytes) -> Iterator[_Word]:
    """Words and semicolons outside parentheses, one at a time, so that data is not scanned."""
    depth = 0
    for match in _TOKEN.finditer(query):
        kind = match.lastgroup
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth -= 1
        elif depth == 0 and kind in {"word", "semicolon"}:
            yield _Word(match[0].upper(), match.start(), match.end())
        elif (
            depth > 0
            and kind == "word"
            and match[0].upper() == b"SELECT"
            and _only_opens(query, match.start())
        ):
            yield _Word(b"SELECT", match.start(), match.end())


def _only_opens(query: bytes, end: int) -> bool:
    """True when the statement so far is parentheses: `((SELECT 1))` is a read as well."""
    return not query[:end].strip(b" \t\r\n(")


def _inserts(words: list[_Word]) -> bool:
    """`WITH … INSERT INTO …` starts like a read and is none."""
    return any(
        word.upper == b"INSERT" and index + 1 < len(words) and words[index + 1].upper == b"INTO"
        for index, word in enumerate(words)
    )


def _format_at_end(query: bytes, words: list[_Word]) -> str | None:
    for index in range(len(words) - 2, -1, -1):
        if words[index].upper == b"FORMAT":
            name = words[index + 1]
            return query[name.start : name.end].decode()
    return None


def _forbidden(words: list[_Word], query: bytes) -> str | None:
    """What a remote client may not ask for: files of this machine, or a second statement."""
    for index, word in enumerate(words):
        following = words[index + 1].upper if index + 1 < len(words) else b""
        if word.upper == b"INTO" and following == b"OUTFILE":
            return "INTO OUTFILE is not allowed over HTTP"
        if word.upper == b"FROM" and following == b"INFILE":
            return "FROM INFILE is not allowed over HTTP"
        if word.upper == b";" and _has_more(query, word.end):
            return "Multi-statements are not allowed"
    return None


def _has_more(query: bytes, offset: int) -> bool:
    return any(
        match.lastgroup not in {"skip", "semicolon"} for match in _TOKEN.finditer(query, offset)
    )
