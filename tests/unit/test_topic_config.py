"""A topic's settings: Kafka's names, with limits that an error names."""

from typing import NamedTuple

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.topic_config import TopicConfig, parse, to_entries


class Entry(NamedTuple):
    key: str
    value: str


def test_entries_change_the_defaults() -> None:
    defaults = TopicConfig(max_message_bytes=4096)
    found = parse({"min.insync.replicas": "3", "flush": "sync"}, defaults)
    assert found == TopicConfig(max_message_bytes=4096, min_insync_replicas=3, flush="sync")
    assert parse([Entry("retention.ms", "-1")], defaults) == defaults
    assert parse({}, defaults) is not None and parse({}, defaults) == defaults


def test_what_is_in_force_reads_back() -> None:
    config = TopicConfig(min_insync_replicas=1, flush="sync", retention_ms=1, min_cleanable_dirty_ratio=0.25)
    assert parse(to_entries(config), TopicConfig()) == config


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("min.insync.replicas", "0", "from 1 to 32767"),
        ("min.insync.replicas", "two", "from 1 to 32767"),
        ("min.insync.replicas", "\uff12", "from 1 to 32767"),
        ("max.message.bytes", "1_024", "from 128 to 2147483647"),
        ("max.message.bytes", "127", "from 128 to 2147483647"),
        ("max.message.bytes", "1e6", "from 128 to 2147483647"),
        ("max.message.bytes", "2147483648", "from 128 to 2147483647"),
        ("", "", "unknown topic setting ''"),
        ("retention.ms", "-2", "from -1 to 9223372036854775807"),
        ("retention.ms", "7d", "from -1 to 9223372036854775807"),
        ("retention.bytes", "9223372036854775808", "from -1 to 9223372036854775807"),
        ("segment.bytes", "1023", "from 1024 to 2147483647"),
        ("segment.ms", "0", "from 1 to 9223372036854775807"),
        ("min.cleanable.dirty.ratio", "1.01", "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "-0.5", "a number from 0 to 1"),
        ("delete.retention.ms", "-1", "from 0 to 9223372036854775807"),
        ("max.compaction.lag.ms", "0", "from 1 to 9223372036854775807"),
        ("compression.type", "brotli", "none of: producer, uncompressed, gzip, snappy, lz4, zstd"),
        ("compression.type", "none", "none of: producer, uncompressed, gzip, snappy, lz4, zstd"),
        ("compression.type", "ZSTD", "none of: producer, uncompressed, gzip, snappy, lz4, zstd"),
        ("validate", "none", "none of: header, full"),
        ("cleanup.policy", "compacted", "none of: compact; delete; compact,delete"),
        ("cleanup.policy", "delete,delete", "none of: compact; delete; compact,delete"),
        ("cleanup.policy", "delete;compact", "none of: compact; delete; compact,delete"),
        ("cleanup.policy", "compact, delete", "none of: compact; delete; compact,delete"),
        ("cleanup.policy", "", "none of: compact; delete; compact,delete"),
        ("flush", "always", "none of: none, sync"),
        ("unclean.leader.election.enable", "yes", "none of: false, true"),
        ("retenton.ms", "1", "did you mean 'retention.ms'"),
        ("min_insync_replicas", "1", "did you mean 'min.insync.replicas'"),
    ],
)
def test_a_bad_entry_is_named_with_its_limit(key: str, value: str, words: str) -> None:
    with pytest.raises(TidelogError, match=words) as caught:
        parse({key: value}, TopicConfig())
    assert key in caught.value.message and caught.value.code is ErrorCode.INVALID_CONFIG


def test_a_key_given_twice_is_refused() -> None:
    with pytest.raises(TidelogError, match=r"max\.message\.bytes is given twice"):
        parse([Entry("max.message.bytes", "2048"), Entry("max.message.bytes", "4096")], TopicConfig())


def test_settings_that_contradict_each_other_are_refused_together() -> None:
    with pytest.raises(TidelogError, match=r"min\.compaction\.lag\.ms=9 is above max\.compaction\.lag\.ms=8") as caught:
        parse({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, TopicConfig())
    assert caught.value.code is ErrorCode.INVALID_CONFIG
