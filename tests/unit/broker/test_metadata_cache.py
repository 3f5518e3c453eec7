"""What a broker answers about the cluster, from what the controller last told it."""

from dataclasses import replace
from typing import Any

from helpers.requirements import requirement
from tidelog.broker.metadata_cache import MetadataCache
from tidelog.errors import ErrorCode
from tidelog.ids import Address, TopicPartition
from tidelog.wire import messages as m


def broker(broker_id: int, *doors: str, rack: str = "") -> m.LiveBroker:
    listeners = tuple(
        m.Listener(name=door, host=f"{door.lower()}-{broker_id}", port=9000 + broker_id) for door in doors
    )
    return m.LiveBroker(
        broker_id=broker_id, broker_epoch=broker_id * 100 + 1, fetch_max_bytes=0, rack=rack, listeners=listeners
    )


def partition(topic: str, number: int, leader: int = 1, leader_epoch: int = 3) -> m.PartitionState:
    return m.PartitionState(
        topic=topic,
        topic_id=topic.encode() * 4,
        partition=number,
        controller_epoch=5,
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=7,
        isr=(m.IsrMember(broker_id=2, broker_epoch=201), m.IsrMember(broker_id=1, broker_epoch=101)),
        replicas=(2, 1, 3),
    )


def told(cache: MetadataCache, *states: m.PartitionState, **fields: Any) -> None:
    defaults: dict[str, Any] = {
        "controller_id": 9,
        "controller_epoch": 5,
        "broker_epoch": 101,
        "sequence": 1,
        "live_brokers": (broker(2, "INTERNAL", "EXTERNAL"), broker(1, "INTERNAL", "EXTERNAL", rack="r1")),
    }
    cache.update(
        m.UpdateMetadataRequest(
            partition_states=states, leader_throttle=0, follower_throttle=0, **{**defaults, **fields}
        )
    )


def ask(cache: MetadataCache, *topics: str, listener: str = "EXTERNAL") -> m.ClusterMetadataResponse:
    return cache.answer(m.ClusterMetadataRequest(topics=topics, all_topics=not topics), listener)


@requirement("A broker is described by id, host and port")
def test_addresses_are_those_of_the_door_that_was_asked() -> None:
    cache = MetadataCache()
    told(
        cache,
        live_brokers=(broker(2, "INTERNAL", "EXTERNAL"), broker(1, "INTERNAL", "EXTERNAL"), broker(3, "INTERNAL")),
    )
    outside = [(b.id, b.host, b.port) for b in ask(cache).brokers_info]
    assert outside == [(1, "external-1", 9001), (2, "external-2", 9002)]  # 3 has no such door
    inside = [(b.id, b.host) for b in ask(cache, listener="INTERNAL").brokers_info]
    assert inside == [(1, "internal-1"), (2, "internal-2"), (3, "internal-3")]
    assert cache.address_of(2) == Address("internal-2", 9002)
    assert cache.address_of(2, "EXTERNAL") == Address("external-2", 9002)
    assert cache.address_of(3, "EXTERNAL") is None and cache.address_of(4) is None


@requirement("A broker is described by id, host and port")
@requirement("ClusterMetadataResponse names coordinator and live brokers")
def test_an_answer_names_cluster_controller_racks_and_partitions_in_order() -> None:
    cache = MetadataCache()
    cache.cluster_id, cache.cluster_name = "c-1", "main"
    told(cache, partition("b", 0), partition("a", 2), partition("a", 0), partition("a", 1))
    answer = ask(cache)
    assert (answer.cluster_id, answer.cluster_name) == ("c-1", "main")
    assert (answer.controller_id, answer.coordinator_id) == (9, -1)
    assert [b.rack for b in answer.brokers_info] == ["r1", ""]
    assert [(t.topic, [p.partition for p in t.partitions]) for t in answer.topics] == [("a", [0, 1, 2]), ("b", [0])]
    found = answer.topics[1].partitions[0]
    assert (found.leader, found.leader_epoch, found.replicas, found.isr) == (1, 3, (2, 1, 3), (1, 2))
    assert (answer.topics[1].topic_id, answer.topics[1].error_code) == (b"bbbb", ErrorCode.NONE)


def test_an_unknown_topic_is_answered_and_does_not_spoil_the_others() -> None:
    cache = MetadataCache()
    told(cache, partition("a", 0))
    unknown, known = ask(cache, "../x", "a").topics
    assert (unknown.topic, unknown.error_code) == ("../x", ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert unknown.partitions == ()
    assert known.error_code is ErrorCode.NONE
    assert ask(MetadataCache()).topics == ()


@requirement("A partition without a live replica publishes no leader")
def test_a_partition_without_a_leader_says_so() -> None:
    cache = MetadataCache()
    told(cache, partition("a", 0, leader=-1), partition("a", 1))
    without, led = ask(cache, "a").topics[0].partitions
    assert (without.leader, without.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    assert led.error_code is ErrorCode.NONE


@requirement("A topic is deleted in a fixed order of steps")
def test_later_news_replace_what_they_name_and_keep_the_rest() -> None:
    cache = MetadataCache()
    told(cache, partition("a", 0), partition("a", 1), partition("b", 0))
    told(cache, partition("a", 1, leader=2, leader_epoch=4), deleted_topics=("b",), controller_id=8)
    (topic,) = ask(cache).topics
    assert [(p.leader, p.leader_epoch) for p in topic.partitions] == [(1, 3), (2, 4)]
    assert ask(cache).controller_id == 8
    found = cache.leader_of(TopicPartition("a", 1))
    assert found is not None and found.leader_epoch == 4
    assert cache.leader_of(TopicPartition("b", 0)) is None


@requirement("A topic id separates topics that share a name")
def test_a_topic_deleted_and_made_again_in_one_request_is_the_new_one() -> None:
    cache = MetadataCache()
    told(cache, partition("a", 0), partition("a", 1))
    told(cache, partition("a", 0, leader_epoch=0), deleted_topics=("a",))
    (topic,) = ask(cache).topics
    assert [(p.partition, p.leader_epoch) for p in topic.partitions] == [(0, 0)]


@requirement("A topic id separates topics that share a name")
def test_partitions_of_two_topics_of_one_name_are_not_mixed() -> None:
    cache = MetadataCache()
    told(cache, partition("a", 0), partition("a", 1))
    told(cache, replace(partition("a", 0, leader_epoch=0), topic_id=b"new!" * 4))
    (topic,) = ask(cache).topics
    assert (topic.topic_id, [(p.partition, p.leader_epoch) for p in topic.partitions]) == (b"new!" * 4, [(0, 0)])


@requirement("ClusterMetadataResponse names coordinator and live brokers")
def test_a_full_picture_forgets_what_it_does_not_name() -> None:
    cache = MetadataCache()
    told(cache, partition("a", 0), partition("b", 0))
    told(cache, partition("b", 0), full=True, live_brokers=(broker(1, "INTERNAL"),))
    answer = ask(cache, listener="INTERNAL")
    assert [t.topic for t in answer.topics] == ["b"]
    assert cache.live == {1: 101} and [b.id for b in answer.brokers_info] == [1]


def test_who_is_live_is_known_with_its_epoch_also_from_leader_and_isr() -> None:
    cache = MetadataCache()
    told(cache)
    assert cache.live == {1: 101, 2: 201}
    cache.set_live([broker(3, "INTERNAL")])
    assert cache.live == {3: 301}
    assert cache.address_of(3) == Address("internal-3", 9003)


def test_an_isr_is_complete_when_it_names_every_replica_also_those_to_come() -> None:
    cache = MetadataCache()
    both = (m.IsrMember(broker_id=1, broker_epoch=101), m.IsrMember(broker_id=2, broker_epoch=201))
    told(cache, replace(partition("a", 0), replicas=(2, 1), isr=both))
    told(cache, replace(partition("a", 1), replicas=(1, 2, 3), isr=both, adding_replicas=(3,)))
    assert [cache.all_in_sync(TopicPartition("a", each)) for each in (0, 1, 2)] == [True, False, False]


def test_a_topic_that_is_gone_is_told_once() -> None:
    cache, gone = MetadataCache(), []
    cache.on_deleted = gone.append
    told(cache, partition("a", 0), partition("b", 0), partition("c", 0), full=True)
    assert gone == []
    told(cache, deleted_topics=("a",))
    assert gone == ["a"]
    told(cache, partition("c", 0, leader_epoch=4), full=True)
    assert gone == ["a", "b"], "it was deleted while this broker was away"


def test_a_broker_knows_how_large_a_batch_the_others_take() -> None:
    cache = MetadataCache()
    cache.carriage.own_bytes = 2_000_000
    told(cache, live_brokers=(broker(1), replace(broker(2), fetch_max_bytes=1_500_000), broker(3)))
    assert [cache.carriage.to(each) for each in (1, 2, 3)] == [2_000_000, 1_500_000, 2_000_000]
    assert cache.carriage.smallest_bytes == 1_500_000
    told(cache, live_brokers=(broker(1), broker(3)))
    assert cache.carriage.smallest_bytes == 2_000_000
