"""What a broker says about itself: settings with their sources, and its data directory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from helpers.batches import batch
from helpers.broker import BrokerBench
from tidelog import config
from tidelog.broker import config_view
from tidelog.broker.admin_service import BrokerAdmin
from tidelog.config import BrokerSettings, keys
from tidelog.errors import ErrorCode, TransportError
from tidelog.topic_config import TopicConfig, to_entries
from tidelog.wire import messages as m

TOPIC = "DYNAMIC_TOPIC_CONFIG"
BROKER = "STATIC_BROKER_CONFIG"
DEFAULT = "DEFAULT_CONFIG"


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> BrokerSettings:
    file = tmp_path / "broker.toml"
    file.write_text("log_retention_ms = 1000\n")
    monkeypatch.setenv("TIDELOG_SEGMENT_BYTES", "4096")
    given = {"broker_id": 1, "zookeeper": "zk:2181", "listeners": "INTERNAL://broker:9092", "data_dir": "/data"}
    return config.load(BrokerSettings, config_file=file, overrides=given)


def said(found: tuple[m.DescribedConfig, ...], key: str) -> list[tuple[str, str, str]]:
    (row,) = [each for each in found if each.key == key]
    assert (row.value, row.source) == (row.synonyms[0].value, row.synonyms[0].source)
    return [(each.key, each.value, each.source) for each in row.synonyms]


def test_a_topics_setting_is_its_own_then_the_brokers_then_the_default(
    settings: BrokerSettings, tmp_path: Path
) -> None:
    found = config_view.describe_topic({"retention.ms": "5", "flush": "sync", "tide.table": "x"}, settings)
    assert [each.key for each in found] == [*to_entries(TopicConfig()), "tide.table"]
    assert not any(each.read_only for each in found)
    assert said(found, "retention.ms") == [
        ("retention.ms", "5", TOPIC),
        ("log_retention_ms", "1000", BROKER),
        ("log_retention_ms", "-1", DEFAULT),
    ]
    assert said(found, "segment.bytes") == [
        ("segment_bytes", "4096", BROKER),
        ("segment_bytes", str(128 << 20), DEFAULT),
    ]
    assert said(found, "flush") == [("flush", "sync", TOPIC), ("flush", "none", DEFAULT)]
    assert said(found, "validate") == [("validate", "header", DEFAULT)]
    assert said(found, "tide.table") == [("tide.table", "x", TOPIC)], "a newer release has stored it"
    origins = {s.value: s.origin for each in found for s in each.synonyms if s.source == BROKER}
    assert origins == {"1000": str(tmp_path / "broker.toml"), "4096": "TIDELOG_SEGMENT_BYTES"}


def test_what_is_described_is_what_is_in_force(settings: BrokerSettings) -> None:
    defaults = config_view.topic_defaults(settings)
    assert (defaults.retention_ms, defaults.segment_bytes) == (1000, 4096)
    described = {each.key: each.value for each in config_view.describe_topic({}, settings)}
    assert described == to_entries(defaults)


def test_a_brokers_settings_are_read_only(settings: BrokerSettings) -> None:
    found = config_view.describe_broker(settings)
    assert [each.key for each in found] == keys(BrokerSettings) and all(each.read_only for each in found)
    assert said(found, "broker_id") == [("broker_id", "1", BROKER)], "it has no default"
    assert said(found, "rack") == [("rack", "", DEFAULT)]


def admin(settings: BrokerSettings, bench: BrokerBench, topics: Mapping[str, Any] | None = None) -> BrokerAdmin:
    async def describe(asked: m.DescribeTopicsRequest) -> m.DescribeTopicsResponse:
        if topics is None:
            raise TransportError("UNAVAILABLE", "no controller")
        return m.DescribeTopicsResponse(
            topics=tuple(
                m.TopicDescription(
                    name=name,
                    error_code=ErrorCode.NONE if name in topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    configs=tuple(m.ConfigEntry(key=k, value=v) for k, v in topics.get(name, {}).items()),
                )
                for name in asked.names
            )
        )

    return BrokerAdmin(settings, bench.manager, bench.disk, describe)


async def described(
    settings: BrokerSettings, *names: str, known: Mapping[str, Any] | None
) -> m.DescribeConfigsResponse:
    return await admin(settings, BrokerBench(), known).describe_configs(m.DescribeConfigsRequest(topics=names))


async def test_topics_that_are_not_there_are_told_from_those_that_cannot_be(settings: BrokerSettings) -> None:
    found = await described(settings, "t", "u", "a/b", known={"t": {"flush": "sync"}})
    assert [each.error_code for each in found.topics] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert said(found.topics[0].configs, "flush")[0] == ("flush", "sync", TOPIC)
    assert (await described(settings, known={})).error_code is ErrorCode.INVALID_REQUEST
    assert (await described(settings, "t", known=None)).error_code is ErrorCode.NOT_CONTROLLER


async def test_an_error_repeats_no_long_name(settings: BrokerSettings) -> None:
    found = await described(settings, "\U0001f600" * 100_000, known={})
    assert len(found.topics[0].error_message or "") < 1_000


async def test_the_data_directory_partition_by_partition(settings: BrokerSettings) -> None:
    bench = BrokerBench()
    bench.told(config=TopicConfig(min_insync_replicas=1))
    bench.told(leader=2, topic="other")
    await bench.send(batch(b"record"))
    other = bench.manager.host("other", 0)
    other.leader_high_watermark = 7
    about = admin(settings, bench)
    found = about.describe_log_dirs(m.DescribeLogDirsRequest(broker_id=1))
    (directory,) = found.log_dirs
    assert (directory.path, directory.usable_bytes > 0) == ("/data", True)
    assert [(p.topic, p.size_bytes > 0, p.offset_lag, p.is_future) for p in directory.partitions] == [
        ("events", True, 0, False),
        ("other", False, 7, False),
    ]
    (directory,) = about.describe_log_dirs(m.DescribeLogDirsRequest(broker_id=1, topics=("other",))).log_dirs
    assert [p.topic for p in directory.partitions] == ["other"]
    other.log.fence("broken")
    with pytest.raises(Exception, match="broken"):
        other.read(0, 1, 1, True)
    (directory,) = about.describe_log_dirs(m.DescribeLogDirsRequest(broker_id=1, topics=("other",))).log_dirs
    assert [(p.size_bytes, p.error_code) for p in directory.partitions] == [(-1, ErrorCode.KAFKA_STORAGE_ERROR)]
    bench.manager.set_strays_aside(frozenset())
    (directory,) = about.describe_log_dirs(m.DescribeLogDirsRequest(broker_id=1)).log_dirs
    assert directory.partitions == () and [p.topic for p in directory.strays] == ["events", "other"]
    assert directory.strays[0].size_bytes > 0


def test_a_broker_does_not_answer_for_another(settings: BrokerSettings) -> None:
    about = admin(settings, BrokerBench())
    dirs = about.describe_log_dirs(m.DescribeLogDirsRequest(broker_id=2))
    configs = about.describe_broker_configs(m.DescribeBrokerConfigsRequest(broker_id=2), "INTERNAL")
    for refused in (dirs, configs):
        assert refused.error_code is ErrorCode.INVALID_REQUEST
        assert refused.error_message == "broker_id: 2, this is broker 1"
    mine = about.describe_broker_configs(m.DescribeBrokerConfigsRequest(broker_id=1), "INTERNAL")
    assert mine.error_code is ErrorCode.NONE and mine.configs
