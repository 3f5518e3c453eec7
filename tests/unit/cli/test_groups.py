"""`tidelog groups` where it changes a group, or where groups change: kafka-consumer-groups' words."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.driven_brokers import Driven, driven_brokers
from tidelog.coordinator.election import shard_of
from tidelog.errors import ErrorCode
from tidelog.testing.intercept import Call
from tidelog.wire import messages as m
from unit.cli.conftest import Served, Tidelog
from unit.cli.groups_scene import SHARDS, T0, T1, table, with_groups


@pytest.fixture
def own() -> Iterator[Served]:
    with driven_brokers(coordinator_shards=SHARDS) as served:
        yield served


@pytest.fixture
def busy(cluster: Driven) -> Driven:
    return with_groups(cluster)


def test_list(tidelog: Tidelog, busy: Driven) -> None:
    assert tidelog("groups", "list").text == "busy\nidle\n"
    assert table(tidelog("groups", "list", "--state")) == [["GROUP", "STATE"], ["busy", "Stable"], ["idle", "Empty"]]
    assert tidelog("groups", "list", "--in-state", "empty,PreparingRebalance").text == "idle\n"
    assert json.loads(tidelog("groups", "list", "--format", "json").text) == [
        {"group": "busy", "state": "Stable"},
        {"group": "idle", "state": "Empty"},
    ]
    busy.kill_unnoticed(2)
    found = tidelog("groups", "list", "--command-property", "request.timeout.ms=500")
    assert (found.exit_code, found.text) == (1, "idle\n")
    assert found.error.startswith("tidelog: broker 2 did not answer (UNAVAILABLE")
    assert found.error.endswith("groups that it coordinates are missing")


def test_a_list_says_that_shards_have_no_coordinator(tidelog: Tidelog, busy: Driven) -> None:
    vacant = sorted(set(range(SHARDS)) - {shard_of(name, SHARDS) for name in ("busy", "idle")})[:2]

    async def deposed(call: Call) -> Any:
        """Two shards have lost their coordinators, and no broker has taken them yet."""
        if call.method != "ListGroups":
            return NotImplemented
        answer = await call.serve()
        return replace(answer, shards=tuple(shard for shard in answer.shards if shard not in vacant))

    busy.faults.append(deposed)
    found = tidelog("groups", "list", "--command-property", "request.timeout.ms=500")
    assert (found.exit_code, found.text) == (1, "busy\nidle\n"), "what is known is shown"
    assert found.error == "tidelog: 2 shards of the groups have no coordinator now: their groups are missing"


def test_describe_does_not_wait_for_a_partition_without_a_leader(tidelog: Tidelog, busy: Driven) -> None:
    busy.kill(1)
    busy.notice(1)
    assert table(tidelog("groups", "describe", "busy"))[1][3:6] == ["3", "-", "-"]


def test_an_offset_beyond_the_end_is_no_negative_lag(tidelog: Tidelog, busy: Driven) -> None:
    busy.create_group("ahead", {T0: 10})
    busy.lose_power(1)
    assert table(tidelog("groups", "describe", "ahead"))[1][3:6] == ["10", "0", "0"]


def test_delete(tidelog: Tidelog, busy: Driven) -> None:
    found = tidelog("groups", "delete", "busy", "idle", "--group", "nope")
    assert found.text == "Deletion of requested consumer groups ('idle') was successful.\n"
    assert found.exit_code == 1
    first, second = found.err.splitlines()
    assert first.startswith("tidelog: group 'busy' has members: stop its consumers first")
    assert second.startswith("tidelog: group 'nope' does not exist")
    assert tidelog("groups", "list").text == "busy\n"
    busy.leave("a")
    busy.leave("b")
    told = tidelog("groups", "delete", "--all-groups", "--format", "json")
    assert json.loads(told.text) == [{"group": "busy", "deleted": True, "error": None}]
    assert tidelog("groups", "list").text == ""


def test_nothing_is_changed_without_execute(tidelog: Tidelog, busy: Driven) -> None:
    args = ("groups", "reset-offsets", "idle", "--topic", "t:0", "--to-earliest")
    silent = tidelog(*args)
    assert silent.err == "Nothing was changed: this was a dry run; say --execute to do it.\n"
    assert tidelog(*args, "--dry-run").err == ""
    told = tidelog(*args, "--format", "json")
    wanted = [{"group": "idle", "topic": "t", "partition": 0, "newOffset": 0}]
    assert json.loads(told.text) == {"executed": False, "offsets": wanted}
    assert busy.offsets("idle")[T0] == 4 and busy.of("CommitOffsets") == []
    done = tidelog(*args, "--execute")
    assert (table(done)[1:], done.err) == ([["idle", "t", "0", "0"]], "")
    assert busy.offsets("idle")[T0] == 0
    assert json.loads(tidelog(*args, "--execute", "--format", "json").text)["executed"] is True


def test_a_group_that_does_not_exist_can_be_placed_beforehand(tidelog: Tidelog, busy: Driven) -> None:
    assert tidelog("groups", "reset-offsets", "new", "--topic", "t", "--to-latest", "--execute").exit_code == 0
    assert busy.offsets("new")[T0] == 10


def test_what_is_exported_is_read_again(tidelog: Tidelog, busy: Driven, tmp_path: Path) -> None:
    args = ("groups", "reset-offsets", "idle")
    exported = tidelog(*args, "--topic", "t:0,1", "--to-current", "--export")
    assert (exported.text, exported.err) == ("t,0,4\nt,1,0\n", "")
    (tmp_path / "plan.csv").write_text("t,0,6\n\n t , 1 , 5\n")
    read = tidelog(*args, "--from-file", "plan.csv", "--execute")
    assert read.err == "Warning: t-1: offset 5 is higher than the last of the log; 0 is taken.\n"
    assert {tp: offset for tp, offset in busy.offsets("idle").items() if tp.topic == "t"} == {T0: 6, T1: 0}
    busy.create_group("second", {T0: 8})
    both = tidelog("groups", "reset-offsets", "idle", "second", "--topic", "t:0", "--to-current", "--export")
    assert both.text == "idle,t,0,6\nsecond,t,0,8\n"
    (tmp_path / "both.csv").write_text("idle,t,0,1\nsecond,t,0,2\n")
    assert tidelog("groups", "reset-offsets", "idle", "second", "--from-file", "both.csv", "--execute").exit_code == 0
    assert [busy.offsets(g)[T0] for g in ("idle", "second")] == [1, 2]


def test_a_group_with_members_is_refused_before_anything_is_changed(tidelog: Tidelog, busy: Driven) -> None:
    args = ("--topic", "t:0", "--to-earliest")
    for end in (("--execute",), ("--dry-run",)):
        refused = tidelog("groups", "reset-offsets", "idle", "busy", *args, *end)
        assert (refused.exit_code, refused.text) == (1, "")
        assert refused.error == (
            "tidelog: group 'busy' has members: stop its consumers first; `tidelog groups members busy` shows them"
        )
    assert busy.of("CommitOffsets") == []

    async def joined_meanwhile(call: Call) -> Any:
        return m.CommitOffsetsResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)

    busy.once("CommitOffsets", joined_meanwhile)
    refused = tidelog("groups", "reset-offsets", "idle", *args, "--execute")
    assert refused.exit_code == 1 and "group 'idle' has members: stop its consumers first" in refused.error


def test_a_partition_whose_offset_was_refused_is_named(tidelog: Tidelog, busy: Driven) -> None:
    async def partly(call: Call) -> Any:
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
