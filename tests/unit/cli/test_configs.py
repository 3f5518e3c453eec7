"""`tidelog configs`, `delete-records` and `log-dirs`: Kafka's words, and one line for what is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.driven_brokers import Driven
from tidelog.errors import ErrorCode
from tidelog.wire import messages as m
from unit.cli.conftest import Tidelog

FILE = "offsets.json"


def synonym(key: str, value: str, source: str, origin: str = "") -> m.ConfigSynonym:
    return m.ConfigSynonym(key=key, value=value, source=source, origin=origin)


DESCRIBED = (
    m.DescribedConfig(
        key="retention.ms",
        value="5",
        source="DYNAMIC_TOPIC_CONFIG",
        synonyms=(
            synonym("retention.ms", "5", "DYNAMIC_TOPIC_CONFIG"),
            synonym("log_retention_ms", "-1", "DEFAULT_CONFIG"),
        ),
    ),
    m.DescribedConfig(
        key="flush", value="none", source="DEFAULT_CONFIG", synonyms=(synonym("flush", "none", "DEFAULT_CONFIG"),)
    ),
)
RACK = m.DescribedConfig(
    key="rack",
    value="r1",
    source="STATIC_BROKER_CONFIG",
    read_only=True,
    synonyms=(synonym("rack", "r1", "STATIC_BROKER_CONFIG", "TIDELOG_RACK"), synonym("rack", "", "DEFAULT_CONFIG")),
)


def answer(cluster: Driven, method: str, response: Any) -> None:
    """Every call of `method`; a callable makes its answer of the request."""

    async def fixed(call: Any) -> Any:
        if call.method != method:
            return NotImplemented
        return response(call.request) if callable(response) else response

    cluster.faults.append(fixed)


def altered(code: ErrorCode = ErrorCode.NONE, message: str = "") -> m.IncrementalAlterConfigsResponse:
    return m.IncrementalAlterConfigsResponse(
        topics=(m.ConfigsAltered(name="t", error_code=code, error_message=message),)
    )


def test_alter_sends_all_changes_at_once(tidelog: Tidelog, cluster: Driven) -> None:
    answer(cluster, "IncrementalAlterConfigs", altered())
    done = tidelog(
        "configs",
        "alter",
        "--topic",
        "t",
        "--add",
        "retention.ms=5,cleanup.policy=[compact,delete]",
        "--delete",
        "flush,rack",
    )
    assert (done.text, done.exit_code) == ("Completed updating config for topic t.\n", 0)
    (call,) = cluster.of("IncrementalAlterConfigs")
    (topic,) = call.request.topics
    assert [(c.key, c.value, c.remove) for c in topic.changes] == [
        ("retention.ms", "5", False),
        ("cleanup.policy", "compact,delete", False),
        ("flush", "", True),
        ("rack", "", True),
    ]
    dry = tidelog("configs", "alter", "--topic", "t", "--add", "flush=sync", "--dry-run", "--format", "json")
    assert json.loads(dry.text) == {"topic": "t", "added": {"flush": "sync"}, "deleted": [], "altered": False}
    assert cluster.of("IncrementalAlterConfigs")[-1].request.validate_only


def test_a_refusal_is_one_line(tidelog: Tidelog, cluster: Driven) -> None:
    answer(cluster, "IncrementalAlterConfigs", altered(ErrorCode.INVALID_CONFIG, "retention.ms='x' is not a number"))
    refused = tidelog("configs", "alter", "--topic", "t", "--add", "retention.ms=x")
    assert (refused.exit_code, refused.text) == (2, "") and "retention.ms='x' is not a number" in refused.error


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("alter", "--add", "a=b"), "--topic is missing"),
        (("alter", "--topic", "t"), "--add-config or --delete-config is missing"),
        (("alter", "--topic", "t", "--add", "flush"), "'flush' is not KEY=VALUE"),
        (("alter", "--topic", "t", "--add", "flush=none,flush=sync"), "names a key twice"),
        (("describe",), "name one of --topic and --broker"),
        (("describe", "--topic", "t", "--broker", "1"), "name one of --topic and --broker"),
    ],
)
def test_what_does_not_say_enough_is_not_sent(
    tidelog: Tidelog, cluster: Driven, args: tuple[str, ...], words: str
) -> None:
    refused = tidelog("configs", *args)
    assert refused.exit_code == 2 and words in refused.error and cluster.calls == []


def test_describe_names_a_min_isr_that_counts_for_less(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t", **{"min.insync.replicas": "1"})  # the number in force
    rule = m.DescribedConfig(
        key="min.insync.replicas",
        value="2",
        source="DYNAMIC_TOPIC_CONFIG",
        synonyms=(synonym("x", "2", "DEFAULT_CONFIG"),),
    )
    answer(cluster, "DescribeConfigs", m.DescribeConfigsResponse(topics=(m.TopicConfigs(name="t", configs=(rule,)),)))
    said = tidelog("configs", "describe", "--topic", "t").text.splitlines()[1]
    assert said == "  min.insync.replicas=2 effective=1 sensitive=false synonyms={DEFAULT_CONFIG:x=2}"
    (row,) = json.loads(tidelog("configs", "describe", "--topic", "t", "--format", "json").text)
    assert (row["value"], row["effectiveValue"]) == ("2", "1")


def test_describe_says_where_each_value_comes_from(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t")
    answer(
        cluster,
        "DescribeConfigs",
        m.DescribeConfigsResponse(topics=(m.TopicConfigs(name="t", configs=DESCRIBED),)),
    )
    answer(cluster, "DescribeBrokerConfigs", m.DescribeBrokerConfigsResponse(configs=(RACK,)))
    own = "retention.ms=5 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5, DEFAULT_CONFIG:log_retention_ms=-1}"
    assert tidelog("configs", "describe", "--topic", "t").text == f"Dynamic configs for topic t are:\n  {own}\n"
    assert tidelog("configs", "describe", "--topic", "t", "--all").text == (
        f"All configs for topic t are:\n  {own}\n  flush=none sensitive=false synonyms={{DEFAULT_CONFIG:flush=none}}\n"
    )
    assert tidelog("configs", "describe", "--broker", "2").text == (
        "Static configs for broker 2 are:\n"
        "  rack=r1 sensitive=false synonyms={STATIC_BROKER_CONFIG:rack=r1 (TIDELOG_RACK), DEFAULT_CONFIG:rack=}\n"
    )
    assert cluster.broker_of(cluster.of("DescribeBrokerConfigs")[0]) == 2
    (row,) = json.loads(tidelog("configs", "describe", "--broker", "2", "--format", "json").text)
    assert (row["key"], row["readOnly"], row["synonyms"][0]["origin"]) == ("rack", True, "TIDELOG_RACK")
    assert "broker 9 is not alive; alive are 1, 2, 3" in tidelog("configs", "describe", "--broker", "9").error


def test_topics_alter_changes_settings_too(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t")
    answer(cluster, "IncrementalAlterConfigs", altered())
    done = tidelog("topics", "alter", "t", "--config", "flush=sync", "--delete-config", "retention.ms")
    assert done.text == "Completed updating config for topic t.\n"
    both = tidelog("topics", "alter", "t", "--partitions", "2", "--config", "flush=sync")
    assert both.text == "Completed updating config for topic t.\nAdding partitions succeeded!\n"
    checks = [call.request.validate_only for call in cluster.of("IncrementalAlterConfigs")[1:]]
    assert checks == [True, False], "both are checked before the first is done"


# -- delete-records --------------------------------------------------------------------------------------------------


def rows(*each: tuple[Any, Any, Any], version: Any = 1) -> str:
    partitions = [{"topic": t, "partition": p, "offset": o} for t, p, o in each]
    return json.dumps({"partitions": partitions, "version": version})


def deleted(request: m.DeleteRecordsRequest) -> m.DeleteRecordsResponse:
    return m.DeleteRecordsResponse(
        partitions=tuple(
            m.DeleteRecordsResult(topic=p.topic, partition=p.partition, low_watermark=max(p.offset, 0))
            for p in request.partitions
        )
    )


def test_delete_records_asks_each_leader(tidelog: Tidelog, cluster: Driven, tmp_path: Path) -> None:
    cluster.create("t", partitions=2)
    answer(cluster, "DeleteRecords", deleted)
    (tmp_path / FILE).write_text(rows(("t", 0, 0), ("t", 1, -1)))
    done = tidelog("delete-records", "--offset-json-file", FILE)
    assert done.text == (
        "Executing records delete operation\nRecords delete operation completed:\n"
        "partition: t-0\tlow_watermark: 0\npartition: t-1\tlow_watermark: 0\n"
    )
    assert {cluster.broker_of(call) for call in cluster.of("DeleteRecords")} == {1, 2}
    assert json.loads(tidelog("delete-records", "--offset-json-file", FILE, "--format", "json").text) == [
        {"topic": "t", "partition": 0, "lowWatermark": 0},
        {"topic": "t", "partition": 1, "lowWatermark": 0},
    ]


def test_a_partition_that_fails_is_told_and_the_command_fails(
    tidelog: Tidelog, cluster: Driven, tmp_path: Path
) -> None:
    cluster.create("t")
    late = m.DeleteRecordsResult(
        topic="t", partition=0, low_watermark=-1, error_code=ErrorCode.REQUEST_TIMED_OUT, error_message="deleted here"
    )
    answer(cluster, "DeleteRecords", m.DeleteRecordsResponse(partitions=(late,)))
    (tmp_path / FILE).write_text(rows(("t", 0, 0)))
    failed = tidelog("delete-records", "--offset-json-file", FILE)
    assert failed.exit_code == 1 and "partition: t-0\terror: REQUEST_TIMED_OUT: deleted here\n" in failed.text


def test_nothing_is_sent_when_an_offset_is_beyond_the_high_watermark(
    tidelog: Tidelog, cluster: Driven, tmp_path: Path
) -> None:
    cluster.create("t", partitions=2)
    (tmp_path / FILE).write_text(rows(("t", 0, 0), ("t", 1, 1)))
    refused = tidelog("delete-records", "--offset-json-file", FILE)
    assert refused.exit_code == 1 and "t-1: offset 1;" in refused.error and "nothing was deleted" in refused.error
    (tmp_path / FILE).write_text(rows(("t", 0, 0), ("t", 7, 0)))
    patience = ("--command-property", "request.timeout.ms=400")
    unknown = tidelog("delete-records", "--offset-json-file", FILE, *patience)
    assert unknown.exit_code == 1 and "partition 7 does not exist" in unknown.error
    assert cluster.of("DeleteRecords") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 'is not {"partitions"'),
        ("[]", 'is not {"partitions"'),
        ('{"partitions": 3}', 'is not {"partitions"'),
        (rows(("t", "0", 1)), 'is not {"partitions"'),
        (rows(("t", 0, True)), 'is not {"partitions"'),
        (rows(("t", 0, 1.5)), 'is not {"partitions"'),
        (rows((7, 0, 1)), 'is not {"partitions"'),
        (rows(("t", 0, 1), version=2), "version 2 is not known here"),
        (rows(), "names no partition"),
        (rows(("t", 0, 1), ("t", 0, 2)), "names a partition twice"),
        (rows(("t", 0, -2)), "t-0: offset -2"),
        (rows(("t", -1, 2)), "t--1: offset 2"),
    ],
)
def test_a_file_that_is_not_understood_is_not_used(
    tidelog: Tidelog, cluster: Driven, tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / FILE).write_text(text)
    refused = tidelog("delete-records", "--offset-json-file", FILE)
    assert refused.exit_code == 2 and words in refused.error and cluster.calls == []
    assert "No such file" in tidelog("delete-records", "--offset-json-file", "none.json").error


def test_an_unknown_topic_is_told_as_describe_tells_it(tidelog: Tidelog, cluster: Driven) -> None:
    code, said = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 't' does not exist"
    answer(cluster, "IncrementalAlterConfigs", altered(code, said))
    unknown = m.TopicConfigs(name="t", error_code=code, error_message=said)
    answer(cluster, "DescribeConfigs", m.DescribeConfigsResponse(topics=(unknown,)))
    for args in (("describe",), ("alter", "--add", "retention.ms=1")):
        refused = tidelog("configs", *args, "--topic", "t")
        assert refused.error == f"tidelog: {said}; `tidelog topics list` shows those that do"
        assert refused.exit_code == 1


# -- log-dirs --------------------------------------------------------------------------------------------------------


def test_log_dirs_are_told_in_kafkas_json(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t")
    partition = m.LogDirPartition(topic="t", partition=0, size_bytes=88, offset_lag=2)
    broken = m.LogDirPartition(
        topic="t", partition=1, size_bytes=-1, offset_lag=-1, error_code=ErrorCode.KAFKA_STORAGE_ERROR
    )
    stray = m.LogDirPartition(topic="gone", partition=3, size_bytes=7, offset_lag=-1, folder="/data/gone-3.ab-stray")
    directory = m.LogDir(
        path="/data", usable_bytes=1, partitions=(partition, broken), strays=(stray,), another_past="behind"
    )
    answer(cluster, "DescribeLogDirs", m.DescribeLogDirsResponse(log_dirs=(directory,)))
    first, second, third = tidelog(
        "log-dirs", "describe", "--broker-list", "1,3", "--topic-list", "t"
    ).text.splitlines()
    assert first == "Querying brokers for log directories information"
    assert second == "Received log directory information from brokers 1,3"
    report = json.loads(third)
    assert report["version"] == 1 and [each["broker"] for each in report["brokers"]] == [1, 3]
    (log_dir,) = report["brokers"][0]["logDirs"]
    assert log_dir == {
        "partitions": [
            {"partition": "t-0", "size": 88, "offsetLag": 2, "isFuture": False},
            {"partition": "t-1", "size": -1, "offsetLag": -1, "isFuture": False, "error": "KAFKA_STORAGE_ERROR"},
        ],
        "error": None,
        "logDir": "/data",
        "strays": [{"partition": "gone-3", "size": 7, "folder": "/data/gone-3.ab-stray"}],
        "anotherPast": "behind",
    }
    assert cluster.of("DescribeLogDirs")[0].request.topics == ("t",)
    assert len(json.loads(tidelog("log-dirs", "describe", "--format", "json").text)["brokers"]) == 3
    assert "broker 7 is not alive" in tidelog("log-dirs", "describe", "--broker-list", "7").error
    assert "is not a list of numbers" in tidelog("log-dirs", "describe", "--broker-list", "one").error
