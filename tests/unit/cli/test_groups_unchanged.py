"""`tidelog groups` where it only shows or refuses. Nothing here changes a group, so one cluster serves all tests."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.driven_brokers import Driven, driven_brokers
from tidelog.ids import TopicPartition
from tidelog.testing.clock import SimClock
from unit.cli.conftest import SHARED, Result, Served, Tidelog
from unit.cli.groups_scene import SHARDS, T0, table, with_groups

pytestmark = SHARED


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    with driven_brokers(coordinator_shards=SHARDS) as served:
        with_groups(served[0])
        served[0].delete_records("t", 0, 2)
        served[0].create("other", partitions=2)
        yield served


@pytest.fixture
def busy(cluster: Driven) -> Driven:
    return cluster


def test_describe_shows_offsets_and_lag(tidelog: Tidelog, busy: Driven) -> None:
    assert table(tidelog("groups", "describe", "busy")) == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"],
        ["busy", "t", "0", "3", "10", "7", "a", "/a", "tidelog-consumer"],
        ["busy", "t", "1", "-", "0", "-", "a", "/a", "tidelog-consumer"],
        ["busy", "t", "2", "0", "0", "0", "b", "/b", "tidelog-consumer"],
    ]
    idle = tidelog("groups", "describe", "--group", "idle")
    assert idle.err == "Consumer group 'idle' has no active members.\n"
    assert table(idle)[1:] == [
        ["idle", "gone", "0", "7", "-", "-", "-", "-", "-"],  # the topic has been deleted
        ["idle", "t", "0", "4", "10", "6", "-", "-", "-"],
    ]
    every = table(tidelog("groups", "describe", "--all-groups", "--offsets"))
    assert [row[0] for row in every] == ["GROUP", "busy", "busy", "busy", "idle", "idle"]
    (described,) = json.loads(tidelog("groups", "describe", "busy", "--format", "json").text)
    assert (described["group"], described["state"], described["generation"]) == ("busy", "Stable", 2)
    first, second, _ = described["partitions"]
    assert (first["topicId"], second["topicId"]) == (busy.topic_id("t").hex(), None)
    assert (first["currentOffset"], first["logEndOffset"], first["lag"], first["consumerId"]) == (3, 10, 7, "a")
    assert (second["currentOffset"], second["lag"], second["host"]) == (None, None, "/a")


def test_describe_state_and_members(tidelog: Tidelog, busy: Driven) -> None:
    state = tidelog("groups", "describe", "busy", "idle", "--state")
    head, first, second = state.text.splitlines()
    assert re.split("  +", head) == ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
    assert first.split() == ["busy", "broker-2:9092", "(2)", "range", "Stable", "2"]
    assert second.split() == ["idle", "broker-3:9092", "(3)", "-", "Empty", "0"]
    (told,) = json.loads(tidelog("groups", "describe", "busy", "--state", "--format", "json").text)
    assert told["coordinator"] == {"id": 2, "address": "broker-2:9092"}
    assert (told["coordinatorEpoch"], told["assignor"], told["members"]) == (1, "range", 2)
    wanted = [
        ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"],
        ["busy", "a", "/a", "tidelog-consumer", "2", "t(0,1)"],
        ["busy", "b", "/b", "tidelog-consumer", "1", "t(2)"],
    ]
    assert table(tidelog("groups", "describe", "busy", "--members")) == wanted
    assert table(tidelog("groups", "members", "busy")) == wanted
    (told,) = json.loads(tidelog("groups", "members", "busy", "--format", "json").text)
    assert [each["consumerId"] for each in told["members"]] == ["a", "b"]
    assert told["members"][1]["partitions"] == [{"topic": "t", "partition": 2}]


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
    busy: Driven,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    offsets: list[int],
) -> None:
    monkeypatch.setattr(SimClock, "wall_ms", lambda _: 10_000)
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
def test_shifts_stay_within_the_log(tidelog: Tidelog, busy: Driven, shift: str, offset: int, warning: str) -> None:
    plan, said = reset(tidelog, "--topic", "t:0", f"--shift-by={shift}")
    assert (plan, said.err) == ({T0: offset}, warning)


def test_a_time_after_the_last_record_is_the_end_and_says_so(tidelog: Tidelog, busy: Driven) -> None:
    plan, said = reset(tidelog, "--topic", "t:0", "--to-datetime", "2100-01-01")
    assert plan == {T0: 10}
    assert said.err == "Warning: t-0 has no record so late; the log's end is taken.\n"


def test_the_scope_is_what_was_named(tidelog: Tidelog, busy: Driven) -> None:
    plan, _ = reset(tidelog, "--topic", "t:0,2", "--topic", "other:1", "--to-latest")
    assert plan == {T0: 10, TopicPartition("t", 2): 0, TopicPartition("other", 1): 0}
    plan, said = reset(tidelog, "--all-topics", "--to-latest")
    assert (plan, said.err) == ({T0: 10}, "Warning: topic 'gone' does not exist any more; it is left out.\n")
    plan, _ = reset(tidelog, "--all-topics", "--to-current")
    assert plan == {T0: 4}


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
    tidelog: Tidelog, busy: Driven, tmp_path: Path, args: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "words.csv").write_text("t,0,1\nt,zero,1\n")
    (tmp_path / "twice.csv").write_text("t,0,1\nt,0,2\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "others.csv").write_text("other,t,0,2\n")
    found = tidelog(*args, "--command-property", "request.timeout.ms=500")
    assert (found.exit_code, found.out) == (code, b"")
    assert said in found.error
    assert busy.of("CommitOffsets") == []
