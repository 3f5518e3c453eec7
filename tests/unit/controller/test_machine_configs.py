"""Changes of topics' settings: stored before anybody is told, all of a topic's or none, whatever becomes of a write."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from helpers.requirements import requirement
from tidelog.controller.effects import ConfigsWrite, Effect, Resign, Send, TopicRemoval
from tidelog.controller.events import Elected, Snapshot, StoredTopic
from tidelog.errors import ErrorCode
from tidelog.ids import BrokerId
from tidelog.release import Release
from tidelog.sizes import Carried
from tidelog.wire import messages as m
from tidelog.wire import znodes
from unit.controller.harness import Harness, broker, isr, metadata, state, stored_topic, writes

B1, B2, B3 = broker(1, 11), broker(2, 12), broker(3, 13)
ID = b"id-of-t"
PATH = znodes.topic_config_path("t")
REPLICAS = ((1, 2), (2, 1))
STATES = (state(1, 0, isr(b1=11, b2=12), 0), state(2, 0, isr(b1=11, b2=12), 0))


def put(key: str, value: str) -> m.ConfigChange:
    return m.ConfigChange(key=key, value=value)


def drop(key: str) -> m.ConfigChange:
    return m.ConfigChange(key=key, remove=True)


@pytest.fixture
def c() -> Harness:
    """Topic `t` with two partitions on brokers 1 and 2; broker 3 holds nothing."""
    harness = Harness()
    harness.elected(stored_topic("t", REPLICAS, STATES), brokers=(B1, B2, B3))
    harness.store.znodes[PATH] = znodes.encode_topic_config({}), 0
    return harness


def told(effects: list[Effect]) -> dict[int, Mapping[str, str]]:
    """The topic's settings as LeaderAndIsr requests tell them, by broker."""
    return {
        each.broker_id: {entry.key: entry.value for topic in each.request.topic_states for entry in topic.configs}
        for each in effects
        if isinstance(each, Send) and isinstance(each.request, m.LeaderAndIsrRequest)
    }


def answer(c: Harness, token: int) -> tuple[ErrorCode, str]:
    (result,) = c.replies[token].topics
    return result.error_code, result.error_message


def stored(c: Harness) -> dict[str, str]:
    return znodes.decode_topic_config("t", c.store.znodes[PATH][0])


def test_a_change_is_stored_and_then_told_to_those_who_hold_the_topic(c: Harness) -> None:
    token, effects = c.alter(put("retention.ms", "1000"), put("min.insync.replicas", "1"))
    after = {"retention.ms": "1000", "min.insync.replicas": "1"}
    assert writes(effects) == [ConfigsWrite("t", ID, after, 1)]
    assert told(effects) == {} and token not in c.replies, "nobody is told of what is not stored"
    effects = c.write()
    assert told(effects) == {1: after, 2: after} and metadata(effects) == {}
    assert answer(c, token) == (ErrorCode.NONE, "") and stored(c) == after
    topic = c.machine.state.topics["t"]
    assert topic.min_insync_replicas == 1 and topic.config_version == 1
    states = [s for each in effects if isinstance(each, Send) for s in each.request.partition_states]
    assert {(s.partition, s.leader_epoch, s.partition_epoch) for s in states} == {(0, 0, 0), (1, 0, 0)}, "no new epoch"


def test_a_removed_setting_is_the_brokers_again(c: Harness) -> None:
    c.alter(put("flush", "sync"), put("retention.bytes", "5"))
    c.run()
    token, effects = c.alter(drop("flush"), drop("segment.ms"))
    assert writes(effects) == [ConfigsWrite("t", ID, {"retention.bytes": "5"}, 2)]
    assert told(c.write()) == {1: {"retention.bytes": "5"}, 2: {"retention.bytes": "5"}}
    assert answer(c, token) == (ErrorCode.NONE, "")


def test_a_setting_of_this_release_waits_for_the_last_broker() -> None:
    c = Harness()
    old = replace(B3, release=Release("0.2.0", level=2, oldest=2))
    c.elected(stored_topic("t", REPLICAS, STATES), brokers=(B1, B2, old))
    c.store.znodes[PATH] = znodes.encode_topic_config({}), 0
    append_time = ("message.timestamp.type", "LogAppendTime")
    new = m.NewTopic(
        name="new",
        num_partitions=1,
        replication_factor=1,
        configs=(m.ConfigEntry(key=append_time[0], value=append_time[1]),),
    )
    words = "message.timestamp.type cannot be LogAppendTime while brokers [3] are of a release that does not know it"
    token, effects = c.alter(put(*append_time))
    assert (
        writes(effects) == [] and answer(c, token)[0] is ErrorCode.UNSUPPORTED_VERSION and words in answer(c, token)[1]
    )
    token, effects = c.create(new)
    (created,) = c.replies[token].topics
    assert (
        writes(effects) == [] and created.error_code is ErrorCode.UNSUPPORTED_VERSION and words in created.error_message
    )
    token, effects = c.alter(put("message.timestamp.type", "CreateTime"), put("message.timestamp.after.max.ms", "1"))
    assert len(writes(effects)) == 1
    c.run()
    c.brokers_are(B1, B2, replace(B3, epoch=14))
    token, effects = c.alter(put(*append_time))
    assert len(writes(effects)) == 1


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ((put("retention.ms", "-2"),), ErrorCode.INVALID_CONFIG, "retention.ms='-2' is not a whole number from -1 to"),
        ((put("retention.bytes", "many"),), ErrorCode.INVALID_CONFIG, "retention.bytes='many'"),
        ((put("flush", "none"), put("segment.ms", "0")), ErrorCode.INVALID_CONFIG, "segment.ms='0'"),
        ((put("retention.milliseconds", "1"),), ErrorCode.INVALID_CONFIG, "did you mean 'retention.ms'?"),
        ((drop("retenton.ms"),), ErrorCode.INVALID_CONFIG, "did you mean 'retention.ms'?"),
        ((put("flush", "none"), drop("flush")), ErrorCode.INVALID_CONFIG, "flush is named more than once"),
        ((put("flush", "none"), put("flush", "sync")), ErrorCode.INVALID_CONFIG, "flush is named more than once"),
        (
            (m.ConfigChange(key="flush", remove=True, value="sync"),),
            ErrorCode.INVALID_CONFIG,
            "flush is to be removed, and has the value 'sync'",
        ),
        (
            (put("min.compaction.lag.ms", "9"), put("max.compaction.lag.ms", "8")),
            ErrorCode.INVALID_CONFIG,
            "min.compaction.lag.ms=9 is above",
        ),
        ((put("compression.type", "none"),), ErrorCode.INVALID_CONFIG, "none of: producer, uncompressed, gzip"),
        ((), ErrorCode.INVALID_REQUEST, "changes: empty"),
    ],
)
def test_bad_changes_change_nothing(
    c: Harness, changes: tuple[m.ConfigChange, ...], code: ErrorCode, words: str
) -> None:
    token, effects = c.alter(*changes)
    assert writes(effects) == [] and answer(c, token)[0] is code and words in answer(c, token)[1]
    assert c.machine.state.topics["t"].configs == {}


def test_settings_of_a_topic_that_is_not_there_are_none(c: Harness) -> None:
    for name, code in (("u", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION)):
        token, effects = c.alter(put("flush", "sync"), name=name)
        assert writes(effects) == [] and answer(c, token)[0] is code
    c.delete("t")
    token, _ = c.alter(put("flush", "sync"))
    assert answer(c, token) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 't' is being deleted")


def test_a_check_alone_writes_nothing(c: Harness) -> None:
    token, effects = c.alter(put("flush", "sync"), validate_only=True)
    assert writes(effects) == [] and answer(c, token) == (ErrorCode.NONE, "")
    token, effects = c.alter(put("flush", "always"), validate_only=True)
    assert answer(c, token)[0] is ErrorCode.INVALID_CONFIG


def test_what_is_so_already_is_not_written_again(c: Harness) -> None:
    c.alter(put("flush", "sync"))
    c.run()
    token, effects = c.alter(put("flush", "sync"))
    assert writes(effects) == [] and answer(c, token) == (ErrorCode.NONE, "")


def test_one_change_of_a_topic_at_a_time(c: Harness) -> None:
    first, _ = c.alter(put("flush", "sync"))
    second, effects = c.alter(put("flush", "none"))
    assert writes(effects) == [] and answer(c, second)[0] is ErrorCode.INVALID_REQUEST
    c.run()
    assert answer(c, first)[0] is ErrorCode.NONE and stored(c) == {"flush": "sync"}


@requirement("A write of unknown outcome is read back before it is judged")
def test_a_lost_answer_is_looked_up(c: Harness) -> None:
    token, _ = c.alter(put("flush", "sync"))
    c.write(unknown=True)
    effects = c.examine()
    assert told(effects) == {1: {"flush": "sync"}, 2: {"flush": "sync"}} and answer(c, token)[0] is ErrorCode.NONE
    token, _ = c.alter(put("flush", "none"))
    c.write(lost=True)
    assert told(c.examine()) == {}
    assert answer(c, token)[0] is ErrorCode.REQUEST_TIMED_OUT and "nothing was changed" in answer(c, token)[1]
    assert stored(c) == {"flush": "sync"} and c.machine.state.topics["t"].configs == {"flush": "sync"}


@requirement("Every controller write checks the controller epoch")
def test_what_somebody_else_has_stored_ends_the_term(c: Harness) -> None:
    c.alter(put("flush", "sync"))
    c.store.znodes[PATH] = znodes.encode_topic_config({"flush": "none", "segment.ms": "5"}), 4
    c.write()
    assert any(isinstance(each, Resign) for each in c.examine())


def test_the_deletion_of_a_topic_waits_for_its_settings(c: Harness) -> None:
    """Or a znode of settings that is created late would stay when the topic is gone."""
    del c.store.znodes[PATH]
    c.machine.state.topics["t"].has_config_node = False
    token, effects = c.alter(put("flush", "sync"))
    assert writes(effects) == [ConfigsWrite("t", ID, {"flush": "sync"}, 0)]
    held, c.in_flight = c.in_flight, []
    c.delete("t")
    removed: list[Effect] = []
    while c.in_flight:
        removed += c.write()
    assert not any(isinstance(group, TopicRemoval) for group in writes(removed))
    c.in_flight = held
    assert writes(c.write()) == [TopicRemoval("t", has_config_node=True)]
    c.run()
    assert [path for path in c.store.znodes if path.endswith("/t")] == [] and answer(c, token)[0] is ErrorCode.NONE


@requirement("A controller killed in mid-change leaves it complete or absent")
@pytest.mark.parametrize("applied", [False, True])
def test_the_next_controller_tells_what_is_stored(c: Harness, applied: bool) -> None:
    c.alter(put("retention.ms", "1000"))
    if applied:
        c.store.apply(c.in_flight[0])
    data, version = c.store.znodes[PATH]
    after = znodes.decode_topic_config("t", data)
    assert after == ({"retention.ms": "1000"} if applied else {})
    replicas = tuple(tuple(map(BrokerId, row)) for row in ((1, 2), (2, 1)))
    found = StoredTopic("t", ID, replicas, STATES, after, config_version=version)
    following = Harness()
    following.store = c.store
    effects = following.step(Elected(3, Snapshot((B1, B2, B3), (found,), ())))
    assert {broker_id: told(effects)[broker_id] for broker_id in (1, 2)} == {1: after, 2: after}
    _, effects = following.alter(put("flush", "sync"))
    assert writes(effects) == [ConfigsWrite("t", ID, {**after, "flush": "sync"}, version + 1)]
    following.write()
    assert stored(following) == {**after, "flush": "sync"}


def test_what_a_newer_release_has_stored_is_kept_and_does_not_stop_the_rest(c: Harness) -> None:
    c.machine.state.topics["t"].configs = {"tide.table": "x", "min.insync.replicas": "1"}
    _, effects = c.alter(put("flush", "sync"))
    assert writes(effects) == [
        ConfigsWrite("t", ID, {"tide.table": "x", "min.insync.replicas": "1", "flush": "sync"}, 1)
    ]
    c.write()
    assert c.machine.state.topics["t"].min_insync_replicas == 1
    _, effects = c.alter(drop("tide.table"))
    assert writes(effects) == [ConfigsWrite("t", ID, {"min.insync.replicas": "1", "flush": "sync"}, 2)]


@requirement("An unclean election needs the consent of the topic")
def test_an_unclean_election_that_is_allowed_now_takes_place(c: Harness) -> None:
    c.died(1)
    c.run()
    c.brokers_are(B3)
    c.run()
    c.brokers_are(B3, broker(1, 21, 21))
    c.run()
    assert c.partition()[0] == -1, "broker 1 is not in the ISR any more"
    c.alter(put("unclean.leader.election.enable", "true"))
    c.run()
    assert c.partition()[0] == 1


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("8388609", "max.message.bytes=8388609 is above request_max_bytes=8388608 of broker 1"),
        ("4194305", "max.message.bytes=4194305 is above fetch_max_bytes=4194304 of broker 2"),
    ],
)
def test_a_topic_takes_no_batch_that_a_broker_cannot_carry(value: str, named: str) -> None:
    c = Harness()
    live = (replace(B1, carried=Carried(8 << 20, 50 << 20)), replace(B2, carried=Carried(16 << 20, 4 << 20)))
    c.elected(stored_topic("t", REPLICAS, STATES), brokers=live)
    c.store.znodes[PATH] = znodes.encode_topic_config({}), 0
    token, effects = c.alter(put("max.message.bytes", value))
    assert writes(effects) == []
    assert answer(c, token) == (ErrorCode.INVALID_CONFIG, named)
    entry = m.ConfigEntry(key="max.message.bytes", value=value)
    token, effects = c.create(m.NewTopic(name="new", num_partitions=1, replication_factor=1, configs=(entry,)))
    assert writes(effects) == []
    assert answer(c, token) == (ErrorCode.INVALID_CONFIG, named)
    _, effects = c.alter(put("max.message.bytes", "4194304"))
    assert writes(effects) == [ConfigsWrite("t", ID, {"max.message.bytes": "4194304"}, 1)]


def test_an_old_broker_carries_what_its_defaults_allow(c: Harness) -> None:
    token, _ = c.alter(put("max.message.bytes", "4194305"))
    assert answer(c, token)[1] == "max.message.bytes=4194305 is above request_max_bytes=4194304 of broker 1"


def test_a_large_topic_of_before_takes_other_changes(c: Harness) -> None:
    large = {"max.message.bytes": "60000000"}
    c.machine.state.topics["t"].configs = large
    c.store.znodes[PATH] = znodes.encode_topic_config(large), 0
    _, effects = c.alter(put("retention.ms", "1000"))
    assert writes(effects) == [ConfigsWrite("t", ID, {**large, "retention.ms": "1000"}, 1)]
