"""Retention was faster than a reader, or than a replay: told, counted, and passed over."""

import pytest

from infra.local.control import ask
from infra.local.launch import find_settings
from schemas import topics
from schemas.log_gaps import GAP_RECORDED, LogGap, Why, parse
from tests.integration.replay.stack import Stack, run, until
from tests.retention import delete_before

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


def test_what_was_deleted_before_it_was_read_is_a_gap(stack: Stack) -> None:
    num_conversations = stack.count("trajectories")
    ask(stack.data_dir, "stop-child", ["redaction"])
    unread = ends_of(stack, topics.RAW_EVENTS)
    stack.send(range(500, 506))
    ends = ends_of(stack, topics.RAW_EVENTS)
    cut(stack, topics.RAW_EVENTS, ends)
    ask(stack.data_dir, "start-child", ["redaction"])
    lost = {
        LogGap(topics.REDACTION, topics.RAW_EVENTS, partition, unread[partition], end)
        for partition, end in ends.items() if unread[partition] < end
    }  # fmt: skip
    assert sum(gap.num_records for gap in lost) == 6 * 6
    until(lambda: gaps_of(stack, Why.RETENTION) == lost, lambda: f"{lost} was not recorded")
    stack.send([506])  # what comes afterwards is processed as ever
    stack.settle(num_conversations + 1)
    report = stack.reconcile()
    assert report["adds_up"], report["repairs"]
    lines = [line for line in report["lines"] if line["topic"] == topics.RAW_EVENTS]
    assert sum(line["gaps"] for line in lines) == 36
    assert sum(line["stored"] for line in lines) == 6
    assert sum(line["unread"] for line in lines) == 0
    assert any("deleted 36 records of raw.events.v1" in gap for gap in stack.status()["gaps"])


def test_a_replay_says_what_it_was_asked_for_and_is_gone(stack: Stack) -> None:
    before = stack.checksums()
    first = starts_of(stack, topics.RAW_EVENTS)
    assert '"why": "replay"' in stack.replay("redaction", "--from-time", "2020-01-01")
    expected = {
        LogGap(topics.REDACTION, topics.RAW_EVENTS, partition, 0, offset, Why.REPLAY)
        for partition, offset in first.items() if offset
    }  # fmt: skip
    assert expected
    until(lambda: gaps_of(stack, Why.REPLAY) == expected, lambda: f"{expected} was not recorded")
    stack.settle(before[2].num_rows)
    assert stack.checksums() == before


def test_a_replay_of_what_is_left_keeps_the_rows_of_what_is_gone(stack: Stack) -> None:
    before = stack.checksums()
    refused = run(stack.replay_command())
    assert (refused.returncode, "--keep-tables" in refused.stderr) == (2, True)
    stack.replay("--keep-tables")
    stack.settle(before[2].num_rows)
    assert stack.checksums() == before
    assert stack.reconcile()["adds_up"]


def test_trajectories_are_not_joined_anew_from_a_part_of_their_steps(stack: Stack) -> None:
    before = stack.checksums()
    cut(stack, topics.STEPS, {0: 1})
    refused = run(stack.replay_command("assembly", "sink"))
    assert refused.returncode == 2
    assert topics.STEPS in refused.stderr
    assert stack.checksums() == before
    assert stack.reconcile()["adds_up"]


def gaps_of(stack: Stack, why: Why) -> set[LogGap]:
    rows = stack.rows(f"SELECT actor, details FROM audit_events WHERE action = '{GAP_RECORDED}'")
    found = [parse(row["actor"], row["details"]) for row in rows]
    return {gap for gap in found if gap is not None and gap.why is why}


def starts_of(stack: Stack, topic: str) -> dict[int, int]:
    admin = stack.bus.admin()
    try:
        return {partition: first for partition, (first, _) in admin.watermarks(topic).items()}
    finally:
        admin.close()


def ends_of(stack: Stack, topic: str) -> dict[int, int]:
    admin = stack.bus.admin()
    try:
        return {partition: end for partition, (_, end) in admin.watermarks(topic).items()}
    finally:
        admin.close()


def cut(stack: Stack, topic: str, before: dict[int, int]) -> None:
    servers = find_settings(stack.data_dir).kafka.bootstrap_servers
    for partition, offset in before.items():
        delete_before(servers, topic, partition, offset)
