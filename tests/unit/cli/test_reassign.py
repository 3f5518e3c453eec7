"""`tidelog reassign`: the files and sentences of kafka-reassign-partitions, and what is wrong with a plan, by line."""

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.driven_brokers import Driven
from tidelog.cli import plan_file
from tidelog.client.records import Record, encode_batch
from tidelog.ids import TopicPartition
from tidelog.testing.intercept import Call
from tidelog.wire import messages as m
from tidelog.wire.batch import Codec
from unit.cli.conftest import Tidelog
from unit.cli.moves_scene import BEFORE, DEAD, placed, rows

FILE = ("--reassignment-json-file", "plan.json")
WANTED = [
    {"topic": "events", "partition": 0, "replicas": [2, 3]},
    {"topic": "events", "partition": 1, "replicas": [3, 1]},
]
NAMED = "events-0,events-1"


@pytest.fixture
def events(cluster: Driven) -> Driven:
    return placed(cluster)


def let(cluster: Driven, partition: int) -> None:
    """A partition moves to its end."""
    target = tuple(WANTED[partition]["replicas"])
    cluster.rejoin(cluster.leader("events", partition), 3)
    cluster.until(lambda: rows(cluster)[partition] == target)


def fill(cluster: Driven, partition: int, megabytes: int) -> None:
    for _ in range(2 * megabytes):
        cluster.append("events", partition, encode_batch([Record(None, bytes(500_000), (), 1)], Codec.NONE))


def size(cluster: Driven, partition: int, broker: int) -> int:
    return int(cluster.brokers.host("events", partition, broker).log.size_bytes)


def plan(where: Path, *rows: dict[str, Any]) -> None:
    (where / "plan.json").write_text(json.dumps({"version": 1, "partitions": rows or WANTED}))


def test_a_plan_from_its_beginning_to_its_end(tidelog: Tidelog, events: Driven, tmp_path: Path) -> None:
    plan(tmp_path)
    result = tidelog("reassign", "execute", *FILE)
    assert result.exit_code == 0
    lines = result.text.splitlines()
    assert lines[0] == "Current partition replica assignment"
    before = {(p["topic"], p["partition"]): p["replicas"] for p in json.loads(lines[2])["partitions"]}
    assert before == {("events", 0): [1, 2], ("events", 1): [2, 1]}
    assert lines[4:] == [
        "Save this to use as the --reassignment-json-file option during rollback",
        f"Successfully started partition reassignments for {NAMED}",
    ]
    (call,) = events.of("AlterPartitionReassignments")
    assert [(p.partition, p.replicas) for p in call.request.topics[0].partitions] == [(0, (2, 3)), (1, (3, 1))]

    result = tidelog("reassign", "list")
    assert result.text.splitlines() == [
        "Current partition reassignments:",
        "events-0: replicas: 2,3,1. adding: 3. removing: 1. copied: 0 bytes of 0 bytes.",
        "events-1: replicas: 3,1,2. adding: 3. removing: 2. copied: 0 bytes of 0 bytes.",
    ]
    let(events, 0)
    result = tidelog("reassign", "verify", *FILE)
    assert result.exit_code == 1
    assert result.text.splitlines() == [
        "Status of partition reassignment:",
        "Reassignment of partition events-0 is completed.",
        "Reassignment of partition events-1 is still in progress.",
    ]
    let(events, 1)
    result = tidelog("reassign", "verify", *FILE, "--watch")
    assert result.exit_code == 0 and result.text.endswith("Reassignment of partition events-1 is completed.\n")
    assert tidelog("reassign", "list").text == "No partition reassignments found.\n"


def test_a_person_sees_how_much_is_copied(tidelog: Tidelog, events: Driven, tmp_path: Path) -> None:
    fill(events, 0, 5)
    fill(events, 1, 3)
    plan(tmp_path, *({"topic": "events", "partition": each, "replicas": [each + 1, 3]} for each in (0, 1)))
    tidelog("reassign", "execute", *FILE, "--throttle", "2000000")
    events.rejoin(1, 3)
    events.until(lambda: size(events, 0, 3) > 1_000_000)
    events.part(1, 3)
    have, whole, other = size(events, 0, 3), size(events, 0, 1), size(events, 1, 2)
    assert tidelog("reassign", "list").text.splitlines()[1:] == [
        "events-0: replicas: 1,3,2. adding: 3. removing: 2. copied: 1.0 MB of 5.0 MB.",
        "events-1: replicas: 2,3,1. adding: 3. removing: 1. copied: 0 bytes of 3.0 MB.",
        "Copied: 1.0 MB of 8.0 MB, 7.0 MB left",
        "Throttle of each broker: leaders 2000000 B/s, followers 2000000 B/s",
    ]
    assert tidelog("reassign", "verify", *FILE).text.splitlines()[1:] == [
        "Reassignment of partition events-0 is still in progress.",
        "Reassignment of partition events-1 is still in progress.",
        "Copied: 1.0 MB of 8.0 MB, 7.0 MB left",
    ]
    for command in (("list",), ("verify", *FILE)):
        rows = json.loads(tidelog("reassign", *command, "--format", "json").text)
        assert [(row["copiedBytes"], row["totalBytes"]) for row in rows] == [(have, whole), (0, other)]


def test_who_waits_sees_bytes_rate_and_what_is_left_in_one_line(
    tidelog: Tidelog, events: Driven, tmp_path: Path
) -> None:
    fill(events, 0, 10)
    plan(tmp_path, {"topic": "events", "partition": 0, "replicas": [1, 3]})
    tidelog("reassign", "execute", *FILE, "--throttle", "5000000")
    events.rejoin(1, 3)
    result = tidelog("reassign", "verify", *FILE, "--watch")
    assert len(events.of("ListPartitionReassignments")) > 4, "it was under way for several looks"
    assert result.exit_code == 0
    assert result.err.splitlines()[-1] == "1/1 partitions have moved, 10.0 MB copied"
    again = tidelog("reassign", "verify", *FILE, "--watch")
    assert again.err.splitlines()[-1] == "1/1 partitions have moved", "nothing is copied now"


def test_brokers_that_do_not_say_how_large_their_logs_are_spoil_nothing(
    tidelog: Tidelog, events: Driven, tmp_path: Path
) -> None:
    plan(tmp_path)
    tidelog("reassign", "execute", *FILE)

    async def unknown(call: Call) -> Any:
        if call.method != "DescribeLogDirs":
            return NotImplemented
        told = (m.LogDirPartition(topic="events", partition=0, size_bytes=-1, offset_lag=0),)
        partitions = told if events.brokers.broker_of(call) == 2 else ()
        return m.DescribeLogDirsResponse(log_dirs=(m.LogDir(path="/data", usable_bytes=1, partitions=partitions),))

    events.faults.append(unknown)
    assert tidelog("reassign", "list").text.splitlines()[1] == "events-0: replicas: 2,3,1. adding: 3. removing: 1."
    (row, _) = json.loads(tidelog("reassign", "list", "--format", "json").text)
    assert "copiedBytes" not in row


def test_a_deleted_topic_hides_nothing_of_the_others(tidelog: Tidelog, events: Driven, tmp_path: Path) -> None:
    plan(tmp_path, {"topic": "gone", "partition": 0, "replicas": [1]}, WANTED[0])
    result = tidelog("reassign", "verify", *FILE)
    assert result.text.splitlines()[1:] == [
        "There is no active reassignment of partition gone-0, and it does not exist.",
        "There is no active reassignment of partition events-0, but replica set is 1,2 rather than 2,3.",
    ]
    assert result.exit_code == 1


def test_what_is_elsewhere_than_the_plan_says(tidelog: Tidelog, events: Driven, tmp_path: Path) -> None:
    plan(tmp_path, {"topic": "events", "partition": 7, "replicas": [1]}, WANTED[0])
    result = tidelog("reassign", "verify", *FILE, "--format", "json")
    assert result.exit_code == 1
    assert [each["status"] for each in json.loads(result.text)] == ["missing", "other"]
    assert (
        "There is no active reassignment of partition events-0, but replica set is 1,2 rather than 2,3."
        in tidelog("reassign", "verify", *FILE).text
    )


def test_a_plan_is_cancelled(tidelog: Tidelog, events: Driven, tmp_path: Path) -> None:
    plan(tmp_path)
    assert tidelog("reassign", "cancel", *FILE).text == "None of the specified partition moves are active.\n"
    tidelog("reassign", "execute", *FILE)
    let(events, 0)
    assert tidelog("reassign", "cancel", *FILE).text == "Successfully cancelled partition reassignments for: events-1\n"
    events.until(lambda: rows(events) == {**BEFORE, 0: (2, 3)})
    assert tidelog("reassign", "list").text == "No partition reassignments found.\n"


def test_another_plan_needs_to_be_called_additional(tidelog: Tidelog, events: Driven, tmp_path: Path) -> None:
    plan(tmp_path)
    tidelog("reassign", "execute", *FILE)
    result = tidelog("reassign", "execute", *FILE)
    assert result.exit_code == 1 and result.error.startswith("tidelog: Cannot execute because there is an existing")
    assert tidelog("reassign", "execute", *FILE, "--additional").exit_code == 0
    assert [call.request.replace for call in events.of("AlterPartitionReassignments")] == [False, True]


def test_a_plan_is_only_checked(tidelog: Tidelog, events: Driven, tmp_path: Path) -> None:
    plan(tmp_path)
    assert tidelog("reassign", "execute", *FILE, "--dry-run").text == f"The plan is valid for {NAMED}\n"
    assert rows(events) == BEFORE


def test_a_throttle_is_set_and_removed(tidelog: Tidelog, events: Driven, tmp_path: Path) -> None:
    plan(tmp_path)
    lines = tidelog("reassign", "execute", *FILE, "--throttle", "5000000").text.splitlines()
    assert lines[-2] == "The inter-broker throttle limit was set to 5000000 B/s"
    limits = "Throttle of each broker: leaders 5000000 B/s, followers 5000000 B/s"
    assert tidelog("reassign", "list").text.splitlines()[-1] == limits
    lines = tidelog("reassign", "execute", *FILE, "--additional", "--throttle", "-1").text.splitlines()
    assert lines[-2] == "The inter-broker throttle limit was removed"
    assert "Throttle" not in tidelog("reassign", "list").text
    result = tidelog("reassign", "execute", *FILE, "--additional", "--throttle", "0")
    assert (result.exit_code, result.error) == (2, "tidelog: --throttle 0 would never end; -1 is no limit")
    result = tidelog("reassign", "execute", *FILE, "--additional", "--throttle", str(2**63))
    assert result.exit_code == 2 and f"'--throttle': must be from -1 to {2**63 - 1}, not {2**63}" in result.error


def test_what_the_controller_refuses_is_one_line(tidelog: Tidelog, events: Driven, tmp_path: Path) -> None:
    plan(tmp_path, {"topic": "events", "partition": 0, "replicas": [1, DEAD]})
    result = tidelog("reassign", "execute", *FILE)
    assert result.exit_code == 1 and rows(events) == BEFORE
    assert result.error == "tidelog: the plan: replicas of events-0 [1, 99] name brokers [99], which are not alive"


def test_a_topic_that_does_not_exist(tidelog: Tidelog, events: Driven, tmp_path: Path) -> None:
    plan(tmp_path, {"topic": "evnts", "partition": 0, "replicas": [1]})
    result = tidelog("reassign", "execute", *FILE)
    assert result.exit_code == 1 and "topic 'evnts' does not exist" in result.error


def test_a_wait_ends_at_its_limit(tidelog: Tidelog, events: Driven, tmp_path: Path) -> None:
    plan(tmp_path)
    result = tidelog("reassign", "execute", *FILE, "--wait", "--timeout-ms", "10", "--format", "json")
    assert result.exit_code == 1
    assert result.error == "tidelog: not everything has moved within 10 ms; it goes on"


TOPICS = ("--topics-to-move-json-file", "topics.json")


def test_a_proposal_is_a_plan(tidelog: Tidelog, events: Driven, tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text('{"version": 1, "topics": [{"topic": "events"}]}')
    result = tidelog("reassign", "generate", *TOPICS, "--broker-list", "1,2,3")
    assert result.exit_code == 0
    lines = result.text.splitlines()
    assert (
        lines[0] == "Current partition replica assignment"
        and lines[3] == "Proposed partition reassignment configuration"
    )
    (tmp_path / "plan.json").write_text(lines[4])
    proposed = plan_file.read_plan(tmp_path / "plan.json")
    assert {row[0] for row in proposed.values()} == {1, 2, 3}, "each leads one"
    assert tidelog("reassign", "execute", *FILE, "--dry-run").exit_code == 0


@pytest.mark.parametrize(
    ("brokers", "problem"),
    [
        ("1,x", "'x' is no broker id"),
        ("1,1", "names a broker twice"),
        ("1,2,99", "[99], which are not alive"),
        ("1", "events-0 needs 2 of them"),
    ],
)
def test_a_proposal_over_bad_brokers(
    tidelog: Tidelog, events: Driven, tmp_path: Path, brokers: str, problem: str
) -> None:
    (tmp_path / "topics.json").write_text('{"topics": [{"topic": "events"}]}')
    result = tidelog("reassign", "generate", *TOPICS, "--broker-list", brokers)
    assert result.exit_code != 0 and problem in result.error


ENTRY = '{"topic": "events", "partition": 0, "replicas": [1]}'
BAD: dict[str, tuple[str, int, str]] = {
    "no JSON": ('{"version": 1,\n "partitions": [}', 2, "Expecting value"),
    "cut off": ('{"version": 1,\n', 2, "Expecting property name"),
    "no object": ("[1]", 1, "it is not"),
    "no list": ('{"partitions": {}}', 1, "it is not"),
    "another version": ('{"version": 2, "partitions": [' + ENTRY + "]}", 1, "'version' is 2"),
    "an unknown field": ('{"partitons": [], "partitions": [' + ENTRY + "]}", 1, "'partitons' is no field"),
    "no partitions": ('{"partitions": []}', 1, "'partitions' is empty"),
    "a number": ('{"partitions": [7]}', 1, "holds 7"),
    "no topic": ('{"partitions": [\n{"partition": 0, "replicas": [1]}]}', 2, "'topic' is None"),
    "a named partition": (
        '{"partitions": [{"topic": "t", "partition": "0", "replicas": [1]}]}',
        1,
        "'partition' is '0'",
    ),
    "true": ('{"partitions": [{"topic": "t", "partition": true, "replicas": [1]}]}', 1, "'partition' is True"),
    "a negative broker": (
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [-1]}]}',
        1,
        "'replicas' is [-1]",
    ),
    "no replicas": (f'{{"partitions": [{ENTRY},\n\n{{"topic": "t", "partition": 0, "replicas": []}}]}}', 3, "is empty"),
    "a broker twice": (
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}',
        1,
        "a broker twice: [1, 1]",
    ),
    "a partition twice": (f'{{"partitions": [\n{ENTRY},\n{ENTRY}]}}', 3, "events-0 comes twice"),
    "a misspelt field": ('{"partitions": [\n\n{"topic": "}{", "partion": 0}]}', 3, "'partion' is no field"),
    "a log directory": (
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/x"]}]}',
        1,
        "'log_dirs' must be",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_malformed_plan_is_refused_with_its_line(
    tidelog: Tidelog, cluster: Driven, tmp_path: Path, name: str
) -> None:
    text, line, problem = BAD[name]
    (tmp_path / "plan.json").write_text(text)
    result = tidelog("reassign", "execute", *FILE)
    assert result.exit_code == 2 and f"plan.json, line {line}: " in result.error and problem in result.error
    assert cluster.calls == []


def test_a_plan_that_is_not_there(tidelog: Tidelog) -> None:
    assert tidelog("reassign", "execute", *FILE).error == "tidelog: plan.json: No such file or directory"


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    rows = {TopicPartition("t", 1): (3, 1), TopicPartition("t", 0): (1, 2)}
    (tmp_path / "plan.json").write_text(plan_file.written(rows))
    assert plan_file.read_plan(tmp_path / "plan.json") == rows
