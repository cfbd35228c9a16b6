"""Requests, credentials and errors of the ClickHouse front."""

import base64

import pytest

from infra.local.clickhouse.errors import ClickHouseError, from_engine
from infra.local.clickhouse.request import parse_request, preamble
from infra.local.clickhouse.users import User, Users

USERS = Users({"headrace": "s3cret", "headrace_ro": "other"})


def test_settings_parameters_and_transport_are_told_apart() -> None:
    request = parse_request(
        {"query": "SELECT 1", "database": "d", "param_x": "1", "max_threads": "2", "query_id": "q",
         "enable_http_compression": "1"}, {}, "fresh",
    )  # fmt: skip
    assert request.settings == {"max_threads": "2"}
    assert request.parameters == {"x": "1"}
    assert (request.database, request.query_id, request.compress_response) == ("d", "q", True)


def test_readonly_is_set_last_so_that_nothing_lifts_it() -> None:
    request = parse_request({"max_threads": "2", "readonly": "0"}, {}, "q")
    assert preamble(request, readonly=True)[-1] == "SET readonly = 1"
    assert "readonly" not in request.settings


def test_names_and_values_are_quoted() -> None:
    request = parse_request({"database": "a`b", "max_threads": "1' , readonly='0"}, {}, "q")
    use, settings = preamble(request, readonly=False)
    assert use == "USE `a\\`b`"
    assert settings == "SET max_threads = '1\\' , readonly=\\'0'"


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"a = 1; DROP TABLE t": "1"}, "UNKNOWN_SETTING"),
        ({"compress": "1"}, "NOT_IMPLEMENTED"),
        ({"session_timeout": "99999"}, "INVALID_SESSION_TIMEOUT"),
        ({"session_timeout": "-1"}, "INVALID_SESSION_TIMEOUT"),
    ],
)
def test_what_cannot_be_served_is_refused(fields: dict[str, str], name: str) -> None:
    with pytest.raises(ClickHouseError) as caught:
        parse_request(fields, {}, "q")
    assert caught.value.name == name


def _basic(text: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(text.encode()).decode()}"}


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ({"X-ClickHouse-User": "headrace", "X-ClickHouse-Key": "s3cret"}, {}),
        (_basic("headrace:s3cret"), {}),
        ({}, {"user": "headrace", "password": "s3cret"}),
    ],
)
def test_three_ways_to_sign_in(headers: dict[str, str], fields: dict[str, str]) -> None:
    assert USERS.authenticate(headers, fields) == User("headrace", readonly=False)


def test_the_second_user_only_reads() -> None:
    assert USERS.authenticate(_basic("headrace_ro:other"), {}).readonly


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Basic !!!"}, 401),
        (_basic("headrace:wrong"), 403),
        (_basic("headrace:"), 403),
        (_basic("nobody:s3cret"), 403),
        (_basic("nobody:\0"), 403),
    ],
)
def test_others_are_refused(headers: dict[str, str], status: int) -> None:
    with pytest.raises(ClickHouseError) as caught:
        USERS.authenticate(headers, {})
    assert caught.value.status == status
    assert "s3cret" not in str(caught.value)


def test_passwords_are_not_shown() -> None:
    assert "s3cret" not in repr(USERS)


def test_the_engine_s_error_keeps_code_name_and_sentence() -> None:
    error = from_engine(
        RuntimeError("Code: 60. DB::Exception: Table a.b does not exist. (UNKNOWN_TABLE)")
    )
    assert (error.code, error.name, error.status) == (60, "UNKNOWN_TABLE", 404)
    assert error.message == "Table a.b does not exist."
    assert error.text("26.9") == (
        "Code: 60. DB::Exception: Table a.b does not exist. (UNKNOWN_TABLE) (version 26.9 (chDB))\n"
    )


def test_a_streamed_error_is_read_behind_its_prefix() -> None:
    error = from_engine(
        RuntimeError("Streaming query failed: Code: 62. DB::Exception: no (SYNTAX_ERROR)")
    )
    assert (error.code, error.status) == (62, 400)


def test_an_error_without_code_is_still_told() -> None:
    error = from_engine(RuntimeError("connection lost"))
    assert (error.code, error.status, error.message) == (1002, 500, "connection lost")
