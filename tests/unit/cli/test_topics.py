"""`tidelog topics` and `tidelog cluster`: Kafka's and rpk's words."""

import json
import re
from pathlib import Path

import pytest

from helpers import overviews
from helpers.driven_brokers import Driven
from helpers.requirements import requirement
from tidelog import names
from tidelog.cli.commands.cluster import health_of
from tidelog.client.records import Record, encode_batch
from tidelog.ids import TopicPartition
from tidelog.testing.clock import SimClock
from unit.cli.conftest import SHARED, Tidelog


@requirement("A topic is created with a number of partitions")
def test_create_list_describe_delete(tidelog: Tidelog, cluster: Driven) -> None:
    assert tidelog("topics", "create", "events", "--partitions", "2", "--config", "flush=sync").text == (
        "Created topic events.\n"
    )
    assert tidelog("topics", "create", "--topic", "other").exit_code == 0
    assert tidelog("topics", "list").text == "events\nother\n"
    assert tidelog("topics", "create", "placed", "--replica-assignment", "1:2,2:3,3:1").exit_code == 0
    request = cluster.of("CreateTopics")[-1].request.topics[0]
    assert [a.replicas for a in request.assignments] == [(1, 2), (2, 3), (3, 1)]
    tidelog("topics", "delete", "placed")
    assert tidelog("topics", "list", "--topic", "ev.*").text == "events\n"
    head, first, second = tidelog("topics", "describe", "events").text.splitlines()
    assert [cell.split(":")[0] for cell in head.split("\t")] == [
        "Topic",
        "TopicId",
        "PartitionCount",
        "ReplicationFactor",
        "Configs",
    ]
    assert "PartitionCount: 2\tReplicationFactor: 3\tConfigs: flush=sync" in head
    row = cluster.states[TopicPartition("events", 0)].replicas
    listed = ",".join(map(str, row))
    assert first == (
        f"\tTopic: events\tPartition: 0\tLeader: {row[0]}\tReplicas: {listed}\tIsr: {listed}"
        "\tAdding Replicas: \tRemoving Replicas: \tElr: N/A\tLastKnownElr: N/A"
    )
    assert f"Partition: 1\tLeader: {cluster.leader('events', 1)}" in second
    assert tidelog("topics", "delete", "events").exit_code == 0
    assert list(cluster.topics) == ["other"]


def test_json_everywhere(tidelog: Tidelog, cluster: Driven) -> None:
    created = json.loads(tidelog("topics", "create", "t", "--partitions", "3", "--format", "json").text)
    assert (created["topic"], created["partitions"], created["created"]) == ("t", 3, True)
    assert json.loads(tidelog("topics", "list", "--format", "json").text) == ["t"]
    (described,) = json.loads(tidelog("topics", "describe", "--format", "json").text)
    assert described["partitionCount"] == 3
    assert described["partitions"][1]["leader"] == cluster.leader("t", 1)
    described = json.loads(tidelog("cluster", "describe", "--format", "json").text)
    assert described["clusterId"] == cluster.cluster_id
    assert [b["id"] for b in described["brokers"]] == [1, 2, 3]
    assert json.loads(tidelog("cluster", "health", "--format", "json").text)["healthy"] is True
    assert json.loads(tidelog("topics", "delete", "t", "--format", "json").text) == {"topic": "t", "deleted": True}


def test_filters_show_partitions_in_trouble(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t", partitions=3)
    cluster.create("u", partitions=2, replicas=1)
    assert tidelog("topics", "describe", "--under-replicated-partitions").text == ""
    cluster.kill(2)
    cluster.settle()
    cluster.notice(2)
    assert tidelog("topics", "describe", "--under-replicated-partitions").text.count("\n") == 3
    assert "Leader: none" in tidelog("topics", "describe", "--unavailable-partitions").text
    assert tidelog("topics", "describe", "--unavailable-partitions").text.count("\n") == 1
    assert tidelog("topics", "describe", "t", "--at-min-isr-partitions").text.count("\n") == 3
    assert tidelog("topics", "describe", "--under-min-isr-partitions").text.count("\n") == 1
    assert tidelog("topics", "describe", "--topics-with-overrides").text == ""


def test_alter_adds_partitions(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t", partitions=2, replicas=2)
    dry = tidelog("topics", "alter", "--topic", "t", "--partitions", "4", "--dry-run")
    assert (dry.text, cluster.topics["t"]) == ("Adding partitions would succeed.\n", 2)
    grown = tidelog("topics", "alter", "t", "--partitions", "4", "--replica-assignment", "9:9,9:9,1:2,2:3")
    assert grown.text == "Adding partitions succeeded!\n"
    assert "the partition logic or ordering of the messages will be affected" in grown.err
    (wanted,) = cluster.of("CreatePartitions")[-1].request.topics
    assert [(a.partition, a.replicas) for a in wanted.assignments] == [(2, (1, 2)), (3, (2, 3))]
    assert cluster.topics["t"] == 4
    refused = tidelog("topics", "alter", "t", "--partitions", "4")
    assert refused.exit_code == 1 and "topic 't' has 4 partitions already" in refused.error
    assert tidelog("topics", "alter", "nope", "--partitions", "4", "--if-exists").exit_code == 0
    rows = json.loads(tidelog("topics", "alter", "t", "--partitions", "5", "--format", "json").text)
    assert rows == {"topic": "t", "partitions": 5, "altered": True}


def written(cluster: Driven, partition: int, *times_ms: int) -> None:
    batch = encode_batch(Record(None, b"%d" % at, (), at) for at in times_ms)
    cluster.append("t", partition, batch)


def test_offsets_by_time_as_kafka_get_offsets(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t", partitions=2)
    cluster.create("u")
    written(cluster, 0, 100, 300, 200)
    written(cluster, 1, 50)
    assert tidelog("topics", "offsets").text == "t:0:3\nt:1:1\nu:0:0\n"
    assert tidelog("topics", "offsets", "--topic", "t", "--time", "-2").text == "t:0:0\nt:1:0\n"
    assert tidelog("topics", "offsets", "--topic", "t", "--time", "101").text == "t:0:1\nt:1:\n"
    assert tidelog("topics", "offsets", "--topic", "t|u", "--time", "max-timestamp").text == "t:0:1\nt:1:0\nu:0:\n"
    rows = json.loads(tidelog("topics", "offsets", "--time", "101", "--partitions", "1", "--format", "json").text)
    assert rows == [{"topic": "t", "partition": 1, "offset": None, "timestamp": None, "leaderEpoch": None}]
    rows = json.loads(tidelog("topics", "offsets", "--time", "101", "--topic", "t", "--format", "json").text)
    assert rows[0] == {"topic": "t", "partition": 0, "offset": 1, "timestamp": 300, "leaderEpoch": 0}


def test_times_are_dates_and_durations_too(tidelog: Tidelog, cluster: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create("t")
    now = 1_800_000_000_000
    monkeypatch.setattr(SimClock, "wall_ms", lambda _: now)
    written(cluster, 0, 1_000, now - 7_200_000, now - 60_000)
    second = "1970-01-01T00:00:02", "1970-01-01T01:00:02+01:00", "1970-01-02"
    assert [tidelog("get-offsets", "--time", each).text for each in second] == ["t:0:1\n"] * 3
    assert [tidelog("get-offsets", "--time", each).text for each in ("1d", "1h", "1s")] == [
        "t:0:1\n",
        "t:0:2\n",
        "t:0:\n",
    ]
    reading = ("consume", "t", "--exit-at-end", "--offset")
    assert tidelog(*reading, "@1970-01-01T00:00:02").text == f"{now - 7_200_000}\n{now - 60_000}\n"
    assert tidelog(*reading, "@1h").text == f"{now - 60_000}\n"
    assert "is not a time like 500ms" in tidelog("topics", "list", "--timeout", "9" * 400 + "s").error


def test_get_offsets_takes_kafkas_patterns(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t", partitions=4)
    cluster.create("u", partitions=2)
    with pytest.MonkeyPatch.context() as patch:  # a topic of the name is neither created nor deleted by request
        patch.setattr(names, "INTERNAL_TOPICS", frozenset())
        cluster.create("__consumer_offsets")
    assert tidelog("get-offsets").text == tidelog("topics", "offsets").text
    assert tidelog("get-offsets").text.startswith("__consumer_offsets:0:0\nt:0:0\n")

    def named(*args: str) -> str:
        return " ".join(line.rpartition(":")[0] for line in tidelog("get-offsets", *args).text.splitlines())

    assert named("--exclude-internal-topics") == "t:0 t:1 t:2 t:3 u:0 u:1"
    for patterns, expected in (
        ("t:1", "t:1"),
        ("t:1-3", "t:1 t:2"),
        ("t:2-,u", "t:2 t:3 u:0 u:1"),
        (":-1", "__consumer_offsets:0 t:0 u:0"),
        ("t|u:1", "t:1 u:1"),
    ):
        assert named("--topic-partitions", patterns) == expected, patterns


def test_get_offsets_leaves_out_what_nobody_leads_and_says_so(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t", partitions=2, replicas=1)
    cluster.kill(1)
    cluster.notice(1)
    found = tidelog("get-offsets")
    assert (found.text, found.exit_code) == ("t:1:0\n", 1)
    assert found.error == "tidelog: no leader, so no offset: t-0"


def test_consume_from_a_time(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t", partitions=2)
    written(cluster, 0, 100, 300, 200)
    written(cluster, 1, 50)
    assert tidelog("consume", "t", "--offset", "@150", "--max-messages", "2").text == "300\n200\n"
    assert tidelog("consume", "t", "--offset", "@0", "--partition", "1", "--max-messages", "1").text == "50\n"


def test_health_names_what_an_operator_must_release() -> None:
    topics = [overviews.topic("t", overviews.partition(0), overviews.partition(1, -1, [0], vetoed=True))]
    found = health_of(overviews.described(topics), topics)
    assert found.vetoed == ["t/1"] and found.reasons[-1].startswith("vetoed partitions")
    assert found.line.endswith("vetoed partitions 1")


def test_health_has_rpks_fields_and_an_exit_code(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t", partitions=2, replicas=1)
    cluster.create("u")
    healthy = tidelog("cluster", "health")
    assert healthy.exit_code == 0
    assert [line.split(":")[0].split(" (")[0] for line in healthy.text.splitlines()[2:10]] == [
        "Healthy",
        "Unhealthy reasons",
        "Controller ID",
        "All nodes",
        "Nodes down",
        "Leaderless partitions",
        "Under-replicated partitions",
        "Vetoed partitions",
    ]
    cluster.kill(2)
    cluster.settle()
    cluster.notice(2)
    sick = tidelog("cluster", "health")
    assert sick.exit_code == 1
    assert "[nodes down, leaderless partitions, under-replicated partitions]" in sick.text
    assert "[2]" in sick.text
    assert "[t/1]" in sick.text
    waited = tidelog("cluster", "health", "--watch", "--exit-when-healthy", "--timeout-ms", "300")
    assert waited.exit_code == 1
    assert waited.text.count("CLUSTER HEALTH OVERVIEW") == 1
    cluster.restart(2)
    assert tidelog("cluster", "health", "--watch", "--exit-when-healthy").exit_code == 0


def test_health_watch_prints_one_line_for_each_change(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t", partitions=2, replicas=1)
    cluster.create("u", partitions=3)
    cluster.kill(2)
    cluster.wait(0.5)  # it counts as down; its session lasts, and its only replica has no other leader
    cluster.later(10.0, cluster.brokers.launch, 2)
    watching = ("cluster", "health", "--watch", "--exit-when-healthy")
    lines = tidelog(*watching, "--timeout-ms", "60000").text.split("\n\n")[1].splitlines()
    said = [re.sub(r"^\d\d:\d\d:\d\d  ", "", line) for line in lines]
    assert said[0] == "unhealthy: controller 1, nodes down [2], leaderless partitions 1, under-replicated partitions 3"
    # A watch may miss the moment at which the broker is back and its replicas are not yet in sync.
    assert said[1:-1] in ([], ["unhealthy: controller 1, under-replicated partitions 3"])
    assert said[-1] == "healthy: controller 1"


@SHARED
@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("get-offsets", "--topic", "t", "--topic-partitions", "t:0"), 2, "excludes --topic"),
        (("get-offsets", "--topic-partitions", "t:0:1"), 2, "'t:0:1' is not TOPIC"),
        (("get-offsets", "--topic-partitions", "t,"), 2, "'' is not TOPIC"),
        (("get-offsets", "--topic-partitions", "(:0"), 2, "no regular expression"),
        (("get-offsets", "--topic-partitions", "nobody"), 1, "no partition matches"),
        (("get-offsets", "--time", "-4"), 2, "--time '-4'"),
        (("topics", "create"), 2, "name one topic"),
        (("topics", "create", "a", "--topic", "b"), 2, "name one topic"),
        (("topics", "create", "t", "--partitions", "0"), 2, "--partitions is 0"),
        (("topics", "create", "t", "--partitions", "many"), 2, "'many' is not a whole number"),
        (("topics", "create", "t", "--config", "flush"), 2, "'flush' is not KEY=VALUE"),
        (("topics", "create", "t", "--replica-assignment", "1:x"), 2, "not broker ids"),
        (("topics", "create", "t", "--replica-assignment", "1:2", "--partitions", "3"), 2, "excludes"),
        (("topics", "create", "events"), 1, "topic 'events' already exists"),
        (("topics", "alter", "events"), 2, "--partitions, --config or --delete-config is missing"),
        (("topics", "alter", "events", "--partitions", "-1"), 2, "--partitions is -1"),
        (("topics", "alter", "events", "--partitions", "4", "--replica-assignment", "1:2"), 2, "names 1 partitions"),
        (
            ("topics", "alter", "events", "--partitions", "3"),
            1,
            "topic 'events' has 3 partitions already",
        ),
        (("topics", "alter", "nope", "--partitions", "3"), 1, "topic 'nope' does not exist"),
        (("topics", "describe", "nope"), 1, "topic 'nope' does not exist"),
        (("topics", "describe", "--topic", "[x"), 2, "no regular expression"),
        (("topics", "delete", "nope"), 1, "topic 'nope' does not exist"),
        (("topics", "create", "a/b"), 2, "topic name 'a/b'"),
        (("topics", "create", "a\nb"), 2, "topic name"),
        (("topics", "create", "x" * 250), 2, "topic name"),
        (("topics", "delete", "a/b"), 2, "topic name 'a/b'"),
        (("topics", "offsets", "--time", "noon"), 2, "--time 'noon' is not Unix milliseconds"),
        (("topics", "offsets", "--time", "-4"), 2, "--time '-4' is not Unix milliseconds"),
        (("topics", "offsets", "--time", str(2**63)), 2, "nor latest .-1., earliest .-2., max-timestamp .-3."),
        (("topics", "offsets", "--time", "٣"), 2, "is not Unix milliseconds"),
        (("topics", "offsets", "--partitions", "0,x"), 2, "--partitions '0,x' is not a list of numbers"),
        (("topics", "offsets", "--topic", "[x"), 2, "no regular expression"),
        (("topics", "offsets", "--topic", "events", "--partitions", "9"), 1, "no partition matches"),
        (("topics", "offsets", "--partitions", "9"), 1, "no partition matches"),
        (("topics", "list", "--command-property", "bootstrap.servers"), 2, "is not KEY=VALUE"),
        (("topics", "list", "--command-property", "bootstrap.server=x:1"), 2, "bootstrap_server: unknown setting"),
        (("topics", "list", "--command-config", "nope.toml"), 2, "nope.toml: No such file"),
        (("topics", "list", "--bootstrap-server", "nohost"), 2, "not host:port"),
        (("topics", "list", "--format", "xml"), 2, "xml"),
        (("topics", "frobnicate"), 2, "No such command 'frobnicate'.*tidelog topics --help"),
        (("frobnicate",), 2, "No such command"),
        (("cluster", "describe", "extra"), 2, "extra"),
    ],
)
def test_bad_input_is_one_line_and_not_zero(
    tidelog: Tidelog, cluster: Driven, args: tuple[str, ...], code: int, said: str
) -> None:
    result = tidelog(*args)
    assert result.exit_code == code
    assert re.search(said, result.error), result.error
    assert list(cluster.topics) == ["events", "t"]


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("BOOTSTRAP_SERVERS", "here", "bootstrap_servers: 'here' is not host:port"),
        ("BOOTSTRAP_SERVERS", "", "bootstrap_servers: must not be empty"),
        ("REQUEST_TIMEOUT_MS", "soon", "request_timeout_ms: must be a whole number from 1 to 2147483647"),
        ("REQUEST_TIMEOUT_MS", "0", "request_timeout_ms: must be a whole number from 1 to 2147483647"),
        ("BOOTSTRAP_SERVER", "h:1", "TIDELOG_BOOTSTRAP_SERVER: unknown setting; did you mean"),
    ],
)
def test_a_wrong_variable_is_one_line(
    tidelog: Tidelog, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.setenv(f"TIDELOG_{variable}", value)
    result = tidelog("topics", "list")
    assert result.exit_code == 2 and said in result.error


def test_idempotent_flags(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t")
    assert tidelog("topics", "create", "t", "--if-not-exists").exit_code == 0
    assert tidelog("topics", "delete", "nope", "--if-exists").exit_code == 0


def test_nobody_answers_says_what_to_do(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.kill(*cluster.ids)
    result = tidelog("topics", "list", "--command-property", "request.timeout.ms=200")
    assert result.exit_code == 1
    assert "nothing answers at" in result.error
    assert "`tidelog local up`" in result.error


def test_flag_wins_over_property_and_property_over_file(
    tidelog: Tidelog, cluster: Driven, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDELOG_BOOTSTRAP_SERVERS")
    (tmp_path / "client.toml").write_text('bootstrap_servers = "nobody:1"\nrequest_timeout_ms = 200\n')
    by_file = ("--command-config", "client.toml")
    assert "nobody:1" in tidelog("topics", "list", *by_file).error
    by_property = (*by_file, "--command-property", "bootstrap.servers=noone:2")
    assert "noone:2" in tidelog("topics", "list", *by_property).error
    assert tidelog("topics", "list", *by_property, "--bootstrap-server", cluster.bootstrap).exit_code == 0


def test_config_show_says_where_a_value_comes_from(tidelog: Tidelog, cluster: Driven) -> None:
    rows = {line.split()[0]: line for line in tidelog("config", "show").text.splitlines()}
    assert rows["bootstrap_servers"].endswith("TIDELOG_BOOTSTRAP_SERVERS")
    assert rows["request_timeout_ms"].split() == ["request_timeout_ms", "15000", "default"]
    result = tidelog("config", "show", "broker")
    assert result.exit_code == 2
    assert "tidelog: broker_id: required" in result.err


def test_every_command_has_an_example() -> None:
    from tidelog.cli.table import TABLE

    def commands(command: object, path: str) -> list[tuple[str, str]]:
        below = getattr(command, "commands", None)
        if below is None:
            return [(path, getattr(command, "help", "") or "")]
        return [found for name, c in below.items() for found in commands(c, f"{path} {name}")]

    found = [each for row in TABLE for each in commands(row.load(), f"tidelog {row.name}")]
    assert len(found) > 15
    for path, text in found:
        assert "Example: " in text, path
        # e.g. `tidelog topics create events ...`, after variables that may be set before it
        assert path in text.partition("Example: ")[2], path


def test_brokers_are_listed(tidelog: Tidelog, cluster: Driven) -> None:
    head, *rows = tidelog("brokers", "list").text.splitlines()
    assert head.split() == ["ID", "HOST", "PORT", "RACK", "STATE", "LEADERS", "REPLICAS", "RELEASE", "FEATURE-LEVEL"]
    assert [row.split()[0] for row in rows] == [str(broker_id) for broker_id in sorted(cluster.addresses)]
    found = json.loads(tidelog("brokers", "list", "--format", "json").text)
    assert found == json.loads(tidelog("cluster", "describe", "--format", "json").text)["brokers"]


@pytest.mark.parametrize(
    "args",
    [
        ("topics", "describe", "nope"),
        ("topics", "delete", "nope"),
        ("topics", "alter", "nope", "--partitions", "3"),
        ("get-offsets", "--topic", "nope"),
        ("log-dirs", "describe", "--topic-list", "old,nope"),
    ],
    ids=" ".join,
)
def test_one_text_says_that_a_topic_does_not_exist(tidelog: Tidelog, cluster: Driven, args: tuple[str, ...]) -> None:
    cluster.create("old")
    refused = tidelog(*args)
    said = "tidelog: topic 'nope' does not exist; `tidelog topics list` shows those that do"
    assert (refused.exit_code, refused.out, refused.error) == (1, b"", said)
