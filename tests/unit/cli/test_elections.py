"""`tidelog elect-leaders` and `tidelog brokers release-veto`: kafka-leader-election's sentences, and its exit codes."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.driven_brokers import Driven
from tidelog.testing.intercept import Call
from tidelog.wire import messages as m
from unit.cli.conftest import SHARED, Tidelog

ALL = "--all-topic-partitions"
PREFERRED = ("elect-leaders", "--election-type", "preferred")
UNCLEAN = ("elect-leaders", "--election-type", "unclean")


@pytest.fixture
def displaced(events: Driven) -> Driven:
    """All partitions are led by broker 1, which events-1 and events-2 do not prefer."""
    events.kill(2, 3)
    events.settle()
    events.restart(2, 3)
    assert [events.leader("events", partition) for partition in range(3)] == [1, 1, 1]
    return events


def test_kafkas_sentences_for_what_was_elected_and_what_was_valid(tidelog: Tidelog, displaced: Driven) -> None:
    result = tidelog(*PREFERRED, ALL)
    assert result.exit_code == 0
    assert result.text.splitlines() == [
        "Successfully completed leader election (PREFERRED) for partitions events-1, events-2",
    ]
    (call,) = displaced.of("ElectLeaders")
    assert (call.request.unclean, call.request.topics) == (False, ())
    again = tidelog(*PREFERRED, "--topic", "events", "--partition", "0")
    assert (again.exit_code, again.text) == (0, "Valid replica already elected for partitions events-0\n")


def test_one_partition_by_topic_and_number(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("pair", replicas=2, min_insync_replicas="1")
    cluster.kill(2)
    cluster.settle()
    cluster.kill(1)
    cluster.notice(1)
    cluster.launch(2)
    cluster.wait(1.0)  # it is out of sync, and the last replica in sync is down
    assert tidelog(*UNCLEAN, "--topic", "pair", "--partition", "0").text == (
        "Successfully completed leader election (UNCLEAN) for partitions pair-0\n"
        "pair-0: leader 2, 0 records of live replicas lost; log ends: broker 2: 0 (epoch -1)\n"
    )
    (call,) = cluster.of("ElectLeaders")
    assert call.request.unclean
    assert [(each.topic, each.partitions) for each in call.request.topics] == [("pair", (0,))]


def test_what_failed_is_named_and_the_exit_code_is_not_zero(tidelog: Tidelog, events: Driven) -> None:
    events.kill(1)
    events.settle()
    result = tidelog(*PREFERRED, "--topic", "events", "--partition", "0")
    assert result.exit_code == 1
    assert result.text == (
        "Error completing leader election (PREFERRED) for partition: events-0: PREFERRED_LEADER_NOT_AVAILABLE: "
        "broker 1 is not alive, not in sync, suspected or shutting down\n"
    )
    assert result.error == "tidelog: 1 replica(s) could not be elected"


def test_several_partitions_from_a_file_and_the_answer_as_json(
    tidelog: Tidelog, displaced: Driven, tmp_path: Path
) -> None:
    chosen = [{"topic": "events", "partition": 0}, {"topic": "events", "partition": 1}, {"topic": "no", "partition": 0}]
    (tmp_path / "chosen.json").write_text(json.dumps({"partitions": chosen}))
    result = tidelog(*PREFERRED, "--path-to-json-file", "chosen.json", "--format", "json")
    assert result.exit_code == 1
    assert json.loads(result.text) == {
        "electionType": "preferred",
        "elected": [{"topic": "events", "partition": 1}],
        "alreadyValid": [{"topic": "events", "partition": 0}],
        "failed": [
            {
                "topic": "no",
                "partition": 0,
                "error": "UNKNOWN_TOPIC_OR_PARTITION",
                "message": "topic 'no' does not exist",
            }
        ],
    }


def test_release_veto_has_sentences_of_its_own(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("thin", partitions=2)

    async def released(_: Call) -> m.ReleaseVetoResponse:
        return m.ReleaseVetoResponse(results=(m.ElectionResult(topic="thin", partition=1, leader=-1),))

    cluster.once("ReleaseVeto", released)
    assert tidelog("brokers", "release-veto", "--topic", "thin", "--partition", "1").text == (
        "Released the veto for partitions thin-1\n"
    )
    assert tidelog("brokers", "release-veto", "--topic", "thin", "--partition", "1").text == (
        "No veto holds partitions thin-1\n"
    )
    assert tidelog("brokers", "release-veto", ALL).text == "No partition needs it.\n"
    assert len(cluster.of("ReleaseVeto")) == 3


def test_describe_shows_what_is_vetoed_and_what_recovers(tidelog: Tidelog, events: Driven) -> None:
    async def described(call: Call) -> object:
        if call.method != "DescribeTopics":
            return NotImplemented
        answer = await call.serve()
        (topic,) = answer.topics
        first, second, third = topic.partitions
        told = (replace(first, vetoed=True), replace(second, recovering=True), third)
        return replace(answer, topics=(replace(topic, partitions=told),))

    events.faults.append(described)
    lines = tidelog("topics", "describe", "events").text.splitlines()[1:]
    assert [line.partition("LastKnownElr: N/A")[2] for line in lines] == [
        "\tStatus: vetoed",
        "\tStatus: recovering",
        "",
    ]
    (topic,) = json.loads(tidelog("topics", "describe", "events", "--format", "json").text)
    assert [(each["vetoed"], each["recovering"]) for each in topic["partitions"]] == [
        (True, False),
        (False, True),
        (False, False),
    ]


@SHARED
@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("elect-leaders", ALL), 2, "Missing option '--election-type'"),
        (("elect-leaders", "--election-type", "fair", ALL), 2, "'fair' is not one of 'preferred', 'unclean'"),
        (PREFERRED, 2, "one and only one of these is required: --topic, --path-to-json-file, --all-topic-partitions"),
        ((*PREFERRED, ALL, "--topic", "events", "--partition", "0"), 2, "one and only one"),
        ((*PREFERRED, ALL, "--path-to-json-file", "x.json"), 2, "one and only one"),
        ((*PREFERRED, "--topic", "events"), 2, "--topic needs --partition"),
        ((*PREFERRED, ALL, "--partition", "0"), 2, "--partition is only allowed with --topic"),
        ((*PREFERRED, "--topic", "events", "--partition", "-1"), 2, "--partition': must be at least 0, not -1"),
        ((*PREFERRED, "--topic", "events", "--partition", "one"), 2, "'one' is not a whole number"),
        ((*PREFERRED, "--topic", "events", "--partition", "3"), 1, "1 replica.s. could not be elected"),
        ((*PREFERRED, "--topic", "nope", "--partition", "0"), 1, "1 replica.s. could not be elected"),
        ((*PREFERRED, "--path-to-json-file", "none.json"), 2, "none.json: No such file"),
        ((*PREFERRED, "--path-to-json-file", "list.json"), 2, r'list.json is not {"partitions": \['),
        ((*PREFERRED, "--path-to-json-file", "text.json"), 2, "text.json is not"),
        ((*PREFERRED, "--path-to-json-file", "twice.json"), 2, "twice.json names a partition twice"),
        ((*PREFERRED, "--path-to-json-file", "empty.json"), 2, "empty.json names no partition"),
        (
            (
                "brokers",
                "release-veto",
            ),
            2,
            "one and only one",
        ),
        (("brokers", "release-veto", "--topic", "events"), 2, "--topic needs --partition"),
    ],
)
def test_bad_input_is_one_line_and_not_zero(
    tidelog: Tidelog, events: Driven, tmp_path: Path, args: tuple[str, ...], code: int, said: str
) -> None:
    one = {"topic": "events", "partition": 1}
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "text.json").write_text('{"partitions": [{"topic": "events", "partition": "1"}]}')
    (tmp_path / "twice.json").write_text(json.dumps({"partitions": [one, one]}))
    (tmp_path / "empty.json").write_text('{"partitions": []}')
    result = tidelog(*args)
    assert result.exit_code == code
    assert re.search(said, result.error), result.error
    assert events.leader("events", 1) == 2


def chosen(leader: int) -> m.ElectLeadersResponse:
    ends = (
        m.ReplicaLogEnd(broker_id=1, last_epoch=-1, end_offset=0),
        m.ReplicaLogEnd(broker_id=2, last_epoch=4, end_offset=90),
    )
    result = m.ElectionResult(topic="events", partition=0, leader=leader, ends=ends)
    return m.ElectLeadersResponse(results=(result,))


@pytest.fixture
def level_3(events: Driven) -> Driven:
    """A cluster that elects broker 2, or the one that is named."""

    async def elected(call: Call) -> m.ElectLeadersResponse:
        return chosen(*(call.request.candidates or (2,)))

    for _ in range(2):
        events.once("ElectLeaders", elected)
    return events


ONE = ("--topic", "events", "--partition", "0")


def test_an_unclean_loss_is_shown_before_and_after(tidelog: Tidelog, level_3: Driven) -> None:
    line = (
        "events-0: leader 2, 0 records of live replicas lost; log ends: broker 1: 0 (epoch -1), broker 2: 90 (epoch 4)"
    )
    before = tidelog(*UNCLEAN, *ONE, "--dry-run")
    assert before.text.splitlines() == ["Would be elected without a clean leader: events-0", line]
    after = tidelog(*UNCLEAN, *ONE)
    assert after.text.splitlines()[1] == line
    assert [call.request.validate_only for call in level_3.of("ElectLeaders")] == [True, False]


def test_an_operator_chooses_another_broker(tidelog: Tidelog, level_3: Driven) -> None:
    result = tidelog(*UNCLEAN, *ONE, "--broker", "1", "--format", "json")
    assert json.loads(result.text)["elected"] == [
        {
            "topic": "events",
            "partition": 0,
            "leader": 1,
            "recordsLost": 90,
            "logEnds": [
                {"broker": 1, "lastEpoch": -1, "endOffset": 0},
                {"broker": 2, "lastEpoch": 4, "endOffset": 90},
            ],
        }
    ]
    (call,) = level_3.of("ElectLeaders")
    assert call.request.candidates == (1,)


def test_an_older_cluster_would_overlook_the_choice(tidelog: Tidelog, events: Driven) -> None:
    async def older(call: Call) -> m.DescribeClusterResponse:
        return replace(await call.serve(), feature_level=2)

    for option in (("--broker", "1"), ("--dry-run",)):
        events.once("DescribeCluster", older)
        result = tidelog(*UNCLEAN, *ONE, *option)
        assert result.exit_code == 1 and "need feature level 3" in result.error
        assert tidelog(*PREFERRED, *ONE, *option).exit_code == 2
    assert events.of("ElectLeaders") == []
