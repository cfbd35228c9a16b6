"""Where a statement ends and its data begins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.local.clickhouse.statement import parse


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1", "  -- note\nselect 1", "/* a */ WITH 1 AS x SELECT x", "SHOW TABLES",
        "DESCRIBE TABLE t", "((SELECT 1))", "EXPLAIN SELECT 1", "EXISTS TABLE t",
        "SELECT 'INSERT INTO t'",
    ],
)  # fmt: skip
def test_reads_are_reads(query: str) -> None:
    assert parse(query.encode()).is_read


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO t VALUES (1)", "CREATE TABLE t (a Int8)", "DROP TABLE t", "ALTER TABLE t",
        "TRUNCATE TABLE t", "WITH 1 AS x INSERT INTO t SELECT x", "SET a = 1", "",
        "SYSTEM FLUSH LOGS", "OPTIMIZE TABLE t", "-- SELECT 1\nDROP TABLE t",
    ],
)  # fmt: skip
def test_writes_are_no_reads(query: str) -> None:
    assert not parse(query.encode()).is_read


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT 1 FORMAT JSON", "JSON"),
        ("SELECT 1 format Native ;", "Native"),
        ("SELECT 'x FORMAT CSV'", None),
        ("SELECT (SELECT 1 FORMAT CSV)", None),
        ("SELECT 1", None),
    ],
)
def test_the_output_format_is_found(query: str, expected: str | None) -> None:
    assert parse(query.encode()).output_format == expected


@pytest.mark.parametrize(
    ("head", "statement", "format_name"),
    [
        ("INSERT INTO t (a, `format`) FORMAT Native\n", "INSERT INTO t (a, `format`) ", "Native"),
        ("insert into t format CSV\n", "insert into t ", "CSV"),
        ("INSERT INTO t SETTINGS async_insert=0 FORMAT JSONEachRow\r\n",
         "INSERT INTO t SETTINGS async_insert=0 ", "JSONEachRow"),
        ("INSERT INTO t VALUES", "INSERT INTO t ", "Values"),
        ("/* FORMAT CSV */ INSERT INTO t FORMAT TSV\n", "/* FORMAT CSV */ INSERT INTO t ", "TSV"),
    ],
)  # fmt: skip
def test_data_begins_right_after_the_statement(head: str, statement: str, format_name: str) -> None:
    data = b"\x00\x01; DROP (\xff"
    parsed = parse(head.encode() + data)
    assert parsed.text == statement
    assert parsed.insert_format == format_name
    assert parsed.inline_data_at == len(head.encode())
    assert parsed.forbidden is None


@given(st.binary(max_size=200))
def test_binary_data_is_never_looked_at(data: bytes) -> None:
    head = b"INSERT INTO t (a) FORMAT Native\n"
    parsed = parse(head + data)
    assert (parsed.inline_data_at, parsed.forbidden) == (len(head), None)


def test_an_insert_from_a_select_has_no_data() -> None:
    parsed = parse(b"INSERT INTO t SELECT 1 FORMAT Null")
    assert parsed.insert_format is None
    assert not parsed.is_read


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT 1 INTO OUTFILE '/tmp/x'", "OUTFILE"),
        ("INSERT INTO t FROM INFILE '/etc/passwd' FORMAT CSV", "INFILE"),
        ("SELECT 1; DROP TABLE t", "Multi-statements"),
        ("SELECT 1 -- ;\n; DROP TABLE t", "Multi-statements"),
    ],
)
def test_what_a_remote_client_may_not_ask(query: str, why: str) -> None:
    forbidden = parse(query.encode()).forbidden
    assert forbidden is not None
    assert why in forbidden


@pytest.mark.parametrize(
    "query", ["SELECT 1;", "SELECT ';'", "SELECT 1 -- ; x", "SELECT 1; -- end\n"]
)
def test_a_semicolon_alone_is_no_second_statement(query: str) -> None:
    assert parse(query.encode()).forbidden is None


@pytest.mark.parametrize(
    ("query", "streams"),
    [
        ("SELECT 1 FORMAT Native", True),
        ("SELECT 1", True),
        ("SELECT 1 FORMAT JSON", False),
        ("SELECT 1 FORMAT Parquet", False),
        ("SHOW TABLES FORMAT Native", False),
    ],
)
def test_only_formats_without_header_or_footer_are_sent_by_block(query: str, streams: bool) -> None:
    assert (parse(query.encode()).streams_as("TabSeparated") is not None) == streams
