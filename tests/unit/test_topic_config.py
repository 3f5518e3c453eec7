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
    config = TopicConfig(min_insync_replicas=1, flush="sync", max_message_bytes=5000)
    assert parse(to_entries(config), TopicConfig()) == config


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("min.insync.replicas", "0", "from 1 to 32767"),
        ("min.insync.replicas", "two", "from 1 to 32767"),
        ("min.insync.replicas", "\uff12", "from 1 to 32767"),
        ("max.message.bytes", "1_024", "from 128 to 2147483647"),
        ("max.message.bytes", "127", "from 128 to 2147483647"),
        # What nobody would enforce is refused: it would only look like a limit.
        ("retention.ms", "86400000", "none of: -1"),
        ("retention.bytes", "5", "none of: -1"),
        ("validate", "none", "none of: header, full"),
        ("cleanup.policy", "compact", "none of: delete"),
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
