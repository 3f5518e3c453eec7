"""`tidelog groups`: kafka-consumer-groups' words, against coordinators in memory."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.fake_broker import FakeCall, FakeCluster
from tidelog.client.records import Record, encode_batch
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m
from unit.cli.conftest import Result, Tidelog


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def fill(cluster: FakeCluster, tp: TopicPartition, times_ms: list[int]) -> None:
    for time_ms in times_ms:
        batch = encode_batch([Record(None, b"v", (), time_ms)])
        cluster.partition(*tp).append(batch, cluster.batch_bytes_max)


@pytest.fixture
def busy(cluster: FakeCluster) -> FakeCluster:
    """Group `busy` with two members, at 3 of 10 in t-0; `idle` without any."""
    cluster.create("t", partitions=3)
    fill(cluster, T0, [1000 * n for n in range(10)])
    cluster.groups.create("busy", {T0: 3}, coordinator=2, members={"a": [T0, T1], "b": [("t", 2)]})
    cluster.groups.create("idle", {T0: 4, ("gone", 0): 7}, coordinator=3)
    return cluster


def table(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.err
    return [line.split() for line in result.text.splitlines()]


# -- list, describe, members, delete ----------------------------------------------------------------------------------


def test_list(tidelog: Tidelog, busy: FakeCluster) -> None:
    assert tidelog("groups", "list").text == "busy\nidle\n"
    assert table(tidelog("groups", "list", "--state")) == [["GROUP", "STATE"], ["busy", "Stable"], ["idle", "Empty"]]
    assert tidelog("groups", "list", "--in-state", "empty,PreparingRebalance").text == "idle\n"
    assert json.loads(tidelog("groups", "list", "--format", "json").text) == [
        {"group": "busy", "state": "Stable"},
        {"group": "idle", "state": "Empty"},
    ]
    busy.down.add(2)
    busy.deaths_are_known = False
    found = tidelog("groups", "list", "--command-property", "request.timeout.ms=500")
    assert (found.exit_code, found.text) == (1, "idle\n")
    assert found.error.startswith("tidelog: broker 2 did not answer (UNAVAILABLE")
    assert found.error.endswith("groups that it coordinates are missing")


def test_a_list_says_that_shards_have_no_coordinator(tidelog: Tidelog, busy: FakeCluster) -> None:
    busy.groups.shards = [1, None, 3, None]
    found = tidelog("groups", "list", "--command-property", "request.timeout.ms=500")
    assert (found.exit_code, found.text) == (1, "busy\nidle\n"), "what is known is shown"
    assert found.error == "tidelog: 2 shards of the groups have no coordinator now: their groups are missing"


def test_describe_shows_offsets_and_lag(tidelog: Tidelog, busy: FakeCluster) -> None:
    assert table(tidelog("groups", "describe", "busy")) == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"],
        ["busy", "t", "0", "3", "10", "7", "a", "/10.0.0.7", "client-a"],
        ["busy", "t", "1", "-", "0", "-", "a", "/10.0.0.7", "client-a"],
        ["busy", "t", "2", "-", "0", "-", "b", "/10.0.0.7", "client-b"],
    ]
    idle = tidelog("groups", "describe", "--group", "idle")
    assert idle.err == "Consumer group 'idle' has no active members.\n"
    assert table(idle)[1:] == [
        ["idle", "gone", "0", "7", "-", "-", "-", "-", "-"],  # the topic has been deleted
        ["idle", "t", "0", "4", "10", "6", "-", "-", "-"],
    ]
    every = table(tidelog("groups", "describe", "--all-groups", "--offsets"))
    assert [row[0] for row in every] == ["GROUP", "busy", "busy", "busy", "idle", "idle"]
    offsets = busy.groups.groups["busy"].offsets
    offsets.update({tp: replace(each, topic_id=b"\x0b\xad") for tp, each in offsets.items()})
    (described,) = json.loads(tidelog("groups", "describe", "busy", "--format", "json").text)
    assert (described["group"], described["state"], described["generation"]) == ("busy", "Stable", 1)
    first, second, _ = described["partitions"]
    assert (first["topicId"], second["topicId"]) == ("0bad", None)
    assert (first["currentOffset"], first["logEndOffset"], first["lag"], first["consumerId"]) == (3, 10, 7, "a")
    assert (second["currentOffset"], second["lag"], second["host"]) == (None, None, "/10.0.0.7")


def test_describe_does_not_wait_for_a_partition_without_a_leader(tidelog: Tidelog, busy: FakeCluster) -> None:
    busy.partition("t", 0).leader = -1
    assert table(tidelog("groups", "describe", "busy"))[1][3:6] == ["3", "-", "-"]


def test_an_offset_beyond_the_end_is_no_negative_lag(tidelog: Tidelog, busy: FakeCluster) -> None:
    busy.groups.create("ahead", {T0: 12})
    assert table(tidelog("groups", "describe", "ahead"))[1][3:6] == ["12", "10", "0"]


def test_describe_state_and_members(tidelog: Tidelog, busy: FakeCluster) -> None:
    state = tidelog("groups", "describe", "busy", "idle", "--state")
    head, first, second = state.text.splitlines()
    assert head.split("  ")[0] == "GROUP" and "COORDINATOR (ID)  ASSIGNMENT-STRATEGY  STATE   #MEMBERS" in head
    assert first.split() == ["busy", "b2:9092", "(2)", "range", "Stable", "2"]
    assert second.split() == ["idle", "b3:9092", "(3)", "range", "Empty", "0"]
    (told,) = json.loads(tidelog("groups", "describe", "busy", "--state", "--format", "json").text)
    assert told["coordinator"] == {"id": 2, "address": "b2:9092"}
    assert (told["coordinatorEpoch"], told["assignor"], told["members"]) == (5, "range", 2)
    wanted = [
        ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"],
        ["busy", "a", "/10.0.0.7", "client-a", "2", "t(0,1)"],
        ["busy", "b", "/10.0.0.7", "client-b", "1", "t(2)"],
    ]
    assert table(tidelog("groups", "describe", "busy", "--members")) == wanted
    assert table(tidelog("groups", "members", "busy")) == wanted
    (told,) = json.loads(tidelog("groups", "members", "busy", "--format", "json").text)
    assert [each["consumerId"] for each in told["members"]] == ["a", "b"]
    assert told["members"][1]["partitions"] == [{"topic": "t", "partition": 2}]


def test_delete(tidelog: Tidelog, busy: FakeCluster) -> None:
    found = tidelog("groups", "delete", "busy", "idle", "--group", "nope")
    assert found.text == "Deletion of requested consumer groups ('idle') was successful.\n"
    assert found.exit_code == 1
    first, second = found.err.splitlines()
    assert first.startswith("tidelog: group 'busy' has members: stop its consumers first")
    assert second.startswith("tidelog: group 'nope' does not exist")
    assert list(busy.groups.groups) == ["busy"]
    busy.groups.groups["busy"].members.clear()
    told = tidelog("groups", "delete", "--all-groups", "--format", "json")
    assert json.loads(told.text) == [{"group": "busy", "deleted": True, "error": None}]
    assert busy.groups.groups == {}


# -- reset-offsets -----------------------------------------------------------------------------------------------------


def reset(tidelog: Tidelog, *args: str) -> tuple[dict[TopicPartition, int], Result]:
    """The plan of a dry run for group idle, and that alone."""
    result = tidelog("groups", "reset-offsets", "idle", *args, "--dry-run")
    head, *rows = table(result)
    assert head == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    assert all(row[0] == "idle" for row in rows)
    return {TopicPartition(row[1], int(row[2])): int(row[3]) for row in rows}, result


@pytest.fixture
def in_tokyo() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_tokyo")
@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (("--to-earliest",), [2, 0, 0]),
        (("--to-latest",), [10, 0, 0]),
        (("--to-current",), [4, 0, 0]),
        (("--to-offset", "0"), [2, 0, 0]),
        (("--to-offset", "99"), [10, 0, 0]),
        (("--to-datetime", "1970-01-01T00:00:05"), [5, 0, 0]),
        (("--to-datetime", "1970-01-01T01:00:05.000+01:00"), [5, 0, 0]),
        (("--to-datetime", "1960-01-01"), [2, 0, 0]),
        (("--to-datetime", "1969-12-31T23:59:59.999"), [2, 0, 0]),  # -1 would be the log's end
        (("--to-datetime", "2100-01-01T00:00:00Z"), [10, 0, 0]),
        (("--by-duration", "PT3S"), [7, 0, 0]),
        (("--by-duration", "PT0S"), [10, 0, 0]),
        (("--by-duration", "P30000DT1H"), [2, 0, 0]),
    ],
)
def test_every_target(
    tidelog: Tidelog,
    busy: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    offsets: list[int],
) -> None:
    monkeypatch.setattr(busy.clock, "wall_ms", lambda: 10_000)
    busy.partition("t", 0).log_start = 2
    plan, _ = reset(tidelog, "--topic", "t", *options)
    assert plan == {TopicPartition("t", p): offset for p, offset in enumerate(offsets)}


@pytest.mark.parametrize(
    ("shift", "offset", "warning"),
    [
        ("3", 7, ""),
        ("-2", 2, ""),
        ("-4", 2, "Warning: t-0: offset 0 is lower than the first of the log; 2 is taken.\n"),
        ("-99", 2, "Warning: t-0: offset -95 is lower than the first of the log; 2 is taken.\n"),
        ("99", 10, "Warning: t-0: offset 103 is higher than the last of the log; 10 is taken.\n"),
    ],
)
def test_shifts_stay_within_the_log(tidelog: Tidelog, busy: FakeCluster, shift: str, offset: int, warning: str) -> None:
    busy.partition("t", 0).log_start = 2
    plan, said = reset(tidelog, "--topic", "t:0", f"--shift-by={shift}")
    assert (plan, said.err) == ({T0: offset}, warning)


def test_a_time_after_the_last_record_is_the_end_and_says_so(tidelog: Tidelog, busy: FakeCluster) -> None:
    plan, said = reset(tidelog, "--topic", "t:0", "--to-datetime", "2100-01-01")
    assert plan == {T0: 10}
    assert said.err == "Warning: t-0 has no record so late; the log's end is taken.\n"


def test_the_scope_is_what_was_named(tidelog: Tidelog, busy: FakeCluster) -> None:
    busy.create("other", partitions=2)
    plan, _ = reset(tidelog, "--topic", "t:0,2", "--topic", "other:1", "--to-latest")
    assert plan == {T0: 10, TopicPartition("t", 2): 0, TopicPartition("other", 1): 0}
    plan, said = reset(tidelog, "--all-topics", "--to-latest")
    assert (plan, said.err) == ({T0: 10}, "Warning: topic 'gone' does not exist any more; it is left out.\n")
    plan, _ = reset(tidelog, "--all-topics", "--to-current")
    assert plan == {T0: 4}


def test_nothing_is_changed_without_execute(tidelog: Tidelog, busy: FakeCluster) -> None:
    args = ("groups", "reset-offsets", "idle", "--topic", "t:0", "--to-earliest")
    silent = tidelog(*args)
    assert silent.err == "Nothing was changed: this was a dry run; say --execute to do it.\n"
    assert tidelog(*args, "--dry-run").err == ""
    told = tidelog(*args, "--format", "json")
    wanted = [{"group": "idle", "topic": "t", "partition": 0, "newOffset": 0}]
    assert json.loads(told.text) == {"executed": False, "offsets": wanted}
    assert busy.groups.groups["idle"].offsets[T0].offset == 4 and busy.of("CommitOffsets") == []
    done = tidelog(*args, "--execute")
    assert (table(done)[1:], done.err) == ([["idle", "t", "0", "0"]], "")
    assert busy.groups.groups["idle"].offsets[T0].offset == 0
    assert json.loads(tidelog(*args, "--execute", "--format", "json").text)["executed"] is True


def test_a_group_that_does_not_exist_can_be_placed_beforehand(tidelog: Tidelog, busy: FakeCluster) -> None:
    assert tidelog("groups", "reset-offsets", "new", "--topic", "t", "--to-latest", "--execute").exit_code == 0
    assert busy.groups.groups["new"].offsets[T0].offset == 10


def test_what_is_exported_is_read_again(tidelog: Tidelog, busy: FakeCluster, tmp_path: Path) -> None:
    args = ("groups", "reset-offsets", "idle")
    exported = tidelog(*args, "--topic", "t:0,1", "--to-current", "--export")
    assert (exported.text, exported.err) == ("t,0,4\nt,1,0\n", "")
    (tmp_path / "plan.csv").write_text("t,0,6\n\n t , 1 , 5\n")
    read = tidelog(*args, "--from-file", "plan.csv", "--execute")
    assert read.err == "Warning: t-1: offset 5 is higher than the last of the log; 0 is taken.\n"
    assert {tp: o.offset for tp, o in busy.groups.groups["idle"].offsets.items() if tp.topic == "t"} == {T0: 6, T1: 0}
    busy.groups.create("second", {T0: 8})
    both = tidelog("groups", "reset-offsets", "idle", "second", "--topic", "t:0", "--to-current", "--export")
    assert both.text == "idle,t,0,6\nsecond,t,0,8\n"
    (tmp_path / "both.csv").write_text("idle,t,0,1\nsecond,t,0,2\n")
    assert tidelog("groups", "reset-offsets", "idle", "second", "--from-file", "both.csv", "--execute").exit_code == 0
    assert [busy.groups.groups[g].offsets[T0].offset for g in ("idle", "second")] == [1, 2]


def test_a_group_with_members_is_refused_before_anything_is_changed(tidelog: Tidelog, busy: FakeCluster) -> None:
    args = ("--topic", "t:0", "--to-earliest")
    for end in (("--execute",), ("--dry-run",)):
        refused = tidelog("groups", "reset-offsets", "idle", "busy", *args, *end)
        assert (refused.exit_code, refused.text) == (1, "")
        assert refused.error == (
            "tidelog: group 'busy' has members: stop its consumers first; `tidelog groups members busy` shows them"
        )
    assert busy.of("CommitOffsets") == []

    async def joined_meanwhile(call: FakeCall) -> Any:
        return m.CommitOffsetsResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)

    busy.once("CommitOffsets", joined_meanwhile)
    refused = tidelog("groups", "reset-offsets", "idle", *args, "--execute")
    assert refused.exit_code == 1 and "group 'idle' has members: stop its consumers first" in refused.error


def test_a_partition_whose_offset_was_refused_is_named(tidelog: Tidelog, busy: FakeCluster) -> None:
    async def partly(call: FakeCall) -> Any:
        known, refused = call.request.offsets
        return m.CommitOffsetsResponse(
            results=(
                m.CommittedResult(topic=known.topic, partition=known.partition),
                m.CommittedResult(
                    topic=refused.topic, partition=refused.partition, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                ),
            )
        )

    busy.once("CommitOffsets", partly)
    said = tidelog("groups", "reset-offsets", "idle", "--topic", "t:0,1", "--to-latest", "--execute")
    assert (said.exit_code, said.text) == (1, "")
    assert said.error == "tidelog: group 'idle': t-1: UNKNOWN_TOPIC_OR_PARTITION"


RESET = ("groups", "reset-offsets", "idle")


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("groups", "list", "--in-state", "sleepy"), 2, "--in-state 'sleepy' is not one of Empty, Stable"),
        (("groups", "describe"), 2, "name groups, as arguments or with --group, or say --all-groups"),
        (("groups", "describe", "idle", "--all-groups"), 2, "name groups"),
        (("groups", "describe", "idle", "--members", "--state"), 2, "exclude each other"),
        (("groups", "describe", "nope"), 1, "group 'nope' does not exist; `tidelog groups list` shows those that do"),
        (("groups", "describe", "a/b"), 2, "group_id 'a/b' holds something else"),
        (("groups", "members", ""), 2, "group_id is empty"),
        (("groups", "delete", "shards"), 1, "group_id may not be 'shards'"),
        (("groups", "reset-offsets", "x" * 250, "--to-latest", "--topic", "t"), 2, "group_id has 250 characters"),
        (("groups", "delete"), 2, "name groups"),
        ((*RESET,), 2, "say where to, with one of --to-earliest"),
        ((*RESET, "--to-earliest", "--to-latest", "--topic", "t"), 2, "say where to, with one of"),
        ((*RESET, "--to-earliest"), 2, "say which partitions: --topic, --all-topics or --from-file"),
        ((*RESET, "--to-earliest", "--topic", "t", "--all-topics"), 2, "say which partitions"),
        ((*RESET, "--from-file", "f.csv", "--topic", "t"), 2, "say which partitions"),
        ((*RESET, "--to-earliest", "--topic", "t", "--execute", "--dry-run"), 2, "--dry-run and --execute exclude"),
        ((*RESET, "--to-earliest", "--topic", "t", "--export", "--format", "json"), 2, "--export prints CSV"),
        ((*RESET, "--to-earliest", "--topic", "t:x"), 2, "--topic 't:x' is not a topic"),
        ((*RESET, "--to-earliest", "--topic", "t:7"), 1, "topic 't' has partitions 0 to 2, partition 7 does not exist"),
        ((*RESET, "--to-earliest", "--topic", "nowhere"), 1, "topic 'nowhere' does not exist"),
        ((*RESET, "--to-offset", "-1", "--topic", "t"), 2, "must be from 0 to"),
        ((*RESET, "--shift-by", "1", "--topic", "t:1"), 1, "t-1: nothing is committed that could be shifted"),
        ((*RESET, "--to-datetime", "yesterday", "--topic", "t"), 2, "--to-datetime 'yesterday' is not a time like"),
        ((*RESET, "--by-duration", "1h", "--topic", "t"), 2, "--by-duration '1h' is not a duration like P1DT2H"),
        ((*RESET, "--by-duration", "P", "--topic", "t"), 2, "--by-duration 'P' is not a duration"),
        ((*RESET, "--by-duration", "P1DT", "--topic", "t"), 2, "--by-duration 'P1DT' is not a duration"),
        ((*RESET, "--by-duration", "P9999999999999D", "--topic", "t"), 2, "is not a duration"),
        ((*RESET, "--from-file", "nope.csv"), 2, "nope.csv: No such file"),
        ((*RESET, "--from-file", "."), 2, "Is a directory"),
        ((*RESET, "--from-file", "words.csv"), 2, "words.csv: line 2 is not topic,partition,offset"),
        ((*RESET, "--from-file", "twice.csv"), 2, "twice.csv: line 2 names t-0 again"),
        ((*RESET, "--from-file", "empty.csv"), 2, "empty.csv names no partition for group 'idle'"),
        ((*RESET, "--from-file", "others.csv"), 2, "others.csv names no partition for group 'idle'"),
        (("groups", "reset-offsets", "new", "--all-topics", "--to-latest"), 1, "group 'new' has committed nothing"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_errors_are_one_line(
    tidelog: Tidelog, busy: FakeCluster, tmp_path: Path, args: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "words.csv").write_text("t,0,1\nt,zero,1\n")
    (tmp_path / "twice.csv").write_text("t,0,1\nt,0,2\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "others.csv").write_text("other,t,0,2\n")
    found = tidelog(*args, "--command-property", "request.timeout.ms=500")
    assert (found.exit_code, found.out) == (code, b"")
    assert said in found.error
    assert busy.of("CommitOffsets") == []
