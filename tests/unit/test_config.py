"""Settings: where they come from, and what is said of wrong ones."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.config import (
    AgentSettings,
    BrokerSettings,
    ClientSettings,
    ConfigError,
    ControllerSettings,
    Settings,
    explain,
    keys,
    load,
)
from tidelog.ids import LOCALHOST, Address

BROKER = {
    "TIDELOG_BROKER_ID": "1",
    "TIDELOG_ZOOKEEPER": "zk-1:2181, zk-2:2181",
    "TIDELOG_LISTENERS": "INTERNAL://127.0.0.1:9092,EXTERNAL://127.0.0.1:19092",
    "TIDELOG_DATA_DIR": "/data",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    for name in [n for n in os.environ if n.startswith("TIDELOG_")]:
        monkeypatch.delenv(name)
    for name, value in BROKER.items():
        monkeypatch.setenv(name, value)
    yield monkeypatch


def problems(kind: type[Settings] = BrokerSettings, **arguments: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(kind, **arguments)  # type: ignore[arg-type]
    return caught.value.message.split("\n")


def test_the_environment_alone_is_enough() -> None:
    settings = load(BrokerSettings)
    assert settings.broker_id == 1 and settings.data_dir == Path("/data")
    assert settings.zookeeper == (Address("zk-1", 2181), Address("zk-2", 2181))
    assert settings.listeners == {"INTERNAL": Address("127.0.0.1", 9092), "EXTERNAL": Address("127.0.0.1", 19092)}
    assert settings.advertised_addresses == settings.listeners
    assert settings.metrics_address is None and settings.link_map == {}


def test_variables_win_over_the_file_and_the_command_line_over_both(
    tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('rack = "file"\nsegment_bytes = 2048\ncluster_id = "file"\n')
    environment.setenv("TIDELOG_CONFIG_FILE", str(file))
    environment.setenv("TIDELOG_RACK", "variable")
    settings = load(BrokerSettings, overrides={"cluster_id": "flag"})
    assert (settings.rack, settings.segment_bytes, settings.cluster_id) == ("variable", 2048, "flag")
    rows = {row.key: row for row in explain(settings)}
    assert [rows[key][1:] for key in ("rack", "segment_bytes", "cluster_id", "broker_id", "max_open_segments")] == [
        ("variable", "TIDELOG_RACK"),
        ("2048", str(file)),
        ("flag", "command line"),
        ("1", "TIDELOG_BROKER_ID"),
        ("2000", "default"),
    ]
    assert list(rows) == keys(BrokerSettings)


def test_what_explain_shows_can_be_set_again(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("TIDELOG_LINK_MAP", "a:1=b:2,c:3=d:4")
    environment.setenv("TIDELOG_METRICS_ADDRESS", "127.0.0.1:9101")
    settings = load(BrokerSettings)
    for key, value, _ in explain(settings):
        environment.setenv(f"TIDELOG_{key.upper()}", value)
    assert [row[:2] for row in explain(load(BrokerSettings))] == [row[:2] for row in explain(settings)]
    assert settings.link_map == {Address("a", 1): Address("b", 2), Address("c", 3): Address("d", 4)}


def test_every_problem_is_told_at_once_one_line_each(tmp_path: Path, environment: pytest.MonkeyPatch) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('segmentbytes = 1\nrack = "r"\nlog_level = "loud"\n')
    environment.delenv("TIDELOG_DATA_DIR")
    environment.setenv("TIDELOG_BROKER_ID", "-3")
    environment.setenv("TIDELOG_ZOOKEPER", "x:1")
    environment.setenv("TIDELOG_LISTENERS", "INTERNAL:127.0.0.1:1")
    environment.setenv("TIDELOG_REQUEST_TIMEOUT_MS", "soon")
    found = problems(config_file=file)
    assert sorted(found) == [
        "TIDELOG_ZOOKEPER: unknown setting; did you mean 'TIDELOG_ZOOKEEPER'?",
        "broker_id: must be a whole number from 0 to 2147483647, not '-3' (TIDELOG_BROKER_ID)",
        "data_dir: required; set TIDELOG_DATA_DIR, or data_dir in the file",
        "listeners: 'INTERNAL:127.0.0.1:1' is not INTERNAL://host:port or EXTERNAL://host:port (TIDELOG_LISTENERS)",
        f"log_level: must be debug, info, warning or error, not 'loud' ({file})",
        "request_timeout_ms: must be a whole number from 1 to 2147483647, not 'soon' (TIDELOG_REQUEST_TIMEOUT_MS)",
        f"segmentbytes: unknown setting in {file}; did you mean 'segment_bytes'?",
    ]


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("LISTENERS", "EXTERNAL://h:1", "listeners: there is no INTERNAL listener, which brokers and controllers use"),
        (
            "LISTENERS",
            "INTERNAL://0.0.0.0:9092",
            "advertised_listeners: nobody can reach INTERNAL at 0.0.0.0:9092; advertise a host name",
        ),
        ("MESSAGE_MAX_BYTES", "9000000", "message_max_bytes: 9000000 is over request_max_bytes=4194304"),
        ("FETCH_MAX_BYTES", "1048580", "message_max_bytes: 1048588 is over fetch_max_bytes=1048580"),
        (
            "VALIDATE_INFLATED_BYTES_MAX",
            "1048580",
            "message_max_bytes: 1048588 is over validate_inflated_bytes_max=1048580",
        ),
        (
            "REPLICA_FETCH_CHUNK_BYTES",
            "60000000",
            "replica_fetch_chunk_bytes: 60000000 is over fetch_max_bytes=52428800",
        ),
        ("LISTENERS", "INTERNAL://h:1,EXTERNAL://h:1", "listeners: two of them listen at h:1; each needs a port of its own"),
        ("DATA_DIR", "", "data_dir: must not be empty (TIDELOG_DATA_DIR)"),
        ("ZOOKEEPER", "", "zookeeper: must not be empty (TIDELOG_ZOOKEEPER)"),
        ("LISTENERS", "INTERNAL://h:1,INTERNAL://h:2", "listeners: INTERNAL is given twice (TIDELOG_LISTENERS)"),
        ("ZOOKEEPER", "zk:99999", "zookeeper: 'zk:99999' is not host:port with a port from 0 to 65535 (TIDELOG_ZOOKEEPER)"),
        ("LINK_MAP", "a:1", "link_map: '' is not host:port with a port from 0 to 65535 (TIDELOG_LINK_MAP)"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named(environment: pytest.MonkeyPatch, variable: str, value: str, line: str) -> None:
    environment.setenv(f"TIDELOG_{variable}", value)
    assert problems() == [line]


def test_a_broker_with_sizes_that_contradict_does_not_start(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("TIDELOG_FETCH_MAX_BYTES", "400000")
    assert problems() == [
        "message_max_bytes: 1048588 is over fetch_max_bytes=400000",
        "replica_fetch_chunk_bytes: 1048576 is over fetch_max_bytes=400000",
    ]
    environment.setenv("TIDELOG_MESSAGE_MAX_BYTES", "300000")
    environment.setenv("TIDELOG_REPLICA_FETCH_CHUNK_BYTES", "400000")
    load(BrokerSettings)
    environment.setenv("TIDELOG_REQUEST_MAX_BYTES", "1048575")
    assert problems() == [
        "request_max_bytes: 1048575 is below 1048576, the size of requests of the controller and of followers"
    ]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, "topics: name topics, or a pattern and no topics"),
        ({"TOPICS": "a", "PATTERN": "b"}, "topics: name topics, or a pattern and no topics"),
        ({"TOPICS": "a", "HANDLER": "forward"}, "forward_topic: required by the handler forward"),
        (
            {"TOPICS": "a,b", "HANDLER": "forward", "FORWARD_TOPIC": "b"},
            "forward_topic: b is one of the topics that are read; it would never end",
        ),
        ({"TOPICS": "a", "STATIC_MEMBER": "true"}, "agent_id: required of a static member, which is known by it after a restart"),
        ({"TOPICS": "a", "HANDLER": "file"}, "file_directory: required by the handler file"),
        ({"TOPICS": "a", "WATCH_ADDRESS": "a:22"}, "watch_address: port 22 is below 1024, and brokers do not connect to it"),
        ({"TOPICS": "a", "ON_ERROR": "ignore"}, "on_error: must be stop, skip or retry, not 'ignore' (TIDELOG_ON_ERROR)"),
    ],
)  # fmt: skip
def test_what_an_agent_cannot_do_is_named(environment: pytest.MonkeyPatch, given: dict[str, str], line: str) -> None:
    environment.setenv("TIDELOG_GROUP_ID", "g")
    for key, value in given.items():
        environment.setenv(f"TIDELOG_{key}", value)
    assert problems(AgentSettings) == [line]


def test_an_agents_topics_are_a_list(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("TIDELOG_GROUP_ID", "g")
    environment.setenv("TIDELOG_TOPICS", "a, b")
    settings = load(AgentSettings)
    assert settings.topics == ("a", "b")
    for key, value, _ in explain(settings):
        environment.setenv(f"TIDELOG_{key.upper()}", value)
    assert load(AgentSettings).topics == ("a", "b")


def test_a_wildcard_listener_needs_an_advertised_address(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("TIDELOG_LISTENERS", "INTERNAL://0.0.0.0:9092,EXTERNAL://h:1")
    environment.setenv("TIDELOG_ADVERTISED_LISTENERS", "INTERNAL://broker-1:9092")
    assert load(BrokerSettings).advertised_addresses == {
        "INTERNAL": Address("broker-1", 9092),
        "EXTERNAL": Address("h", 1),
    }


def test_settings_of_other_processes_and_of_scripts_are_no_mistake(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("TIDELOG_CONTROLLER_ID", "1")
    environment.setenv("TIDELOG_LISTEN", "0.0.0.0:9093")
    environment.setenv("TIDELOG_BASE", "debian")
    assert load(BrokerSettings).broker_id == 1
    assert problems(ControllerSettings) == ["advertised: nobody can reach 0.0.0.0:9093; advertise a host name"]
    assert load(ClientSettings).bootstrap_servers == LOCALHOST


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert problems(config_file=tmp_path / "none") == [f"{tmp_path / 'none'}: No such file or directory"]
    (tmp_path / "bad").write_text("a = [")
    assert problems(config_file=tmp_path / "bad")[0].startswith(f"{tmp_path / 'bad'}: not TOML")


def test_building_settings_directly_reads_no_environment() -> None:
    settings = ClientSettings(client_id="direct")
    assert settings.client_id == "direct"
    with pytest.raises(TypeError, match="broker_id"):
        BrokerSettings()  # type: ignore[call-arg]
