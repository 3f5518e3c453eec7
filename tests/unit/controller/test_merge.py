"""What waits for a broker is merged: the newest state counts, and what stops goes before what starts."""

import pytest

from helpers.requirements import requirement
from tidelog.controller.merge import Request, merge
from tidelog.wire import messages as m

LIVE_1 = (m.LiveBroker(broker_id=1, broker_epoch=11, fetch_max_bytes=0),)
LIVE_2 = (*LIVE_1, m.LiveBroker(broker_id=2, broker_epoch=12, fetch_max_bytes=0))


def partition(
    topic: str, index: int, epoch: int = 0, topic_id: bytes = b"a", *, is_new: bool = False
) -> m.PartitionState:
    return m.PartitionState(
        topic=topic,
        topic_id=topic_id,
        partition=index,
        controller_epoch=1,
        leader=1,
        leader_epoch=epoch,
        partition_epoch=epoch,
        is_new=is_new,
    )


def roles(
    *states: m.PartitionState, full: bool = False, live: tuple[m.LiveBroker, ...] = LIVE_1, throttle: int = 0
) -> m.LeaderAndIsrRequest:
    names = dict.fromkeys(each.topic for each in states)
    return m.LeaderAndIsrRequest(
        leader_throttle=throttle,
        follower_throttle=2 * throttle,
        controller_id=1,
        controller_epoch=1,
        broker_epoch=11,
        sequence=0,
        full=full,
        partition_states=states,
        live_brokers=live,
        topic_states=tuple(m.TopicState(topic=name) for name in names),
    )


def stop(*partitions: tuple[str, int, bytes]) -> m.StopReplicaRequest:
    return m.StopReplicaRequest(
        controller_id=1,
        controller_epoch=1,
        broker_epoch=11,
        sequence=0,
        partitions=tuple(
            m.StopReplicaPartition(topic=t, partition=p, topic_id=i, leader_epoch=-2, delete_partition=True)
            for t, p, i in partitions
        ),
    )


def metadata(
    *states: m.PartitionState,
    full: bool = False,
    deleted: tuple[str, ...] = (),
    live: tuple[m.LiveBroker, ...] = LIVE_1,
    throttle: int = 0,
) -> m.UpdateMetadataRequest:
    return m.UpdateMetadataRequest(
        leader_throttle=throttle,
        follower_throttle=2 * throttle,
        controller_id=1,
        controller_epoch=1,
        broker_epoch=11,
        sequence=0,
        full=full,
        partition_states=states,
        live_brokers=live,
        deleted_topics=deleted,
    )


def test_one_of_each_in_the_order_to_send() -> None:
    requests: list[Request] = [metadata(), roles(partition("t", 0)), stop(("u", 0, b"a"))]
    assert merge(requests) == [requests[2], requests[1], requests[0]]


@requirement("The controller publishes only stored and current states")
@requirement("The controller decides when a broker is told")
def test_the_newest_state_of_a_partition_counts() -> None:
    merged = merge([roles(partition("t", 0, 1), partition("t", 1, 1)), roles(partition("t", 0, 2), live=LIVE_2)])
    assert merged == [roles(partition("t", 0, 2), partition("t", 1, 1), live=LIVE_2)]
    assert merge([metadata(partition("t", 0, 1), partition("t", 1, 1)), metadata(partition("t", 0, 2))]) == [
        metadata(partition("t", 0, 2), partition("t", 1, 1))
    ]


def test_the_newest_list_of_live_brokers_counts_for_all() -> None:
    merged = merge([roles(partition("t", 0), live=LIVE_2), metadata(live=LIVE_1)])
    assert [each.live_brokers for each in merged if not isinstance(each, m.StopReplicaRequest)] == [LIVE_1, LIVE_1]


@pytest.mark.parametrize("newest", [0, 5])
def test_the_newest_throttle_counts_for_all(newest: int) -> None:
    merged = merge([metadata(throttle=3), roles(partition("t", 0), throttle=3), metadata(throttle=newest)])
    assert merged == [roles(partition("t", 0), throttle=newest), metadata(throttle=newest)]
    merged = merge([metadata(throttle=3), roles(partition("t", 0), throttle=newest)])
    assert merged == [roles(partition("t", 0), throttle=newest), metadata(throttle=newest)]


def test_a_full_one_replaces_what_waits_and_stays_full_with_what_follows() -> None:
    merged = merge([roles(partition("gone", 0)), roles(partition("t", 0), full=True), roles(partition("t", 1))])
    assert merged == [roles(partition("t", 0), partition("t", 1), full=True)]
    assert merge([metadata(partition("gone", 0)), metadata(full=True)]) == [metadata(full=True)]


def test_an_empty_full_one_is_sent() -> None:
    # To a broker without partitions it says: delete what you have.
    assert merge([roles(full=True)]) == [roles(full=True)]


def test_what_is_stopped_need_not_be_started() -> None:
    merged = merge([roles(partition("t", 0), partition("u", 0)), stop(("t", 0, b"a"))])
    assert merged == [stop(("t", 0, b"a")), roles(partition("u", 0))]
    assert merge([roles(partition("t", 0)), stop(("t", 0, b"a"))]) == [stop(("t", 0, b"a"))]


@requirement("A topic id separates topics that share a name")
def test_a_topic_created_again_is_stopped_and_started() -> None:
    new = partition("t", 0, topic_id=b"b")
    assert merge([stop(("t", 0, b"a")), roles(new)]) == [stop(("t", 0, b"a")), roles(new)]
    assert merge([roles(new), stop(("t", 0, b"a"))]) == [stop(("t", 0, b"a")), roles(new)]


def test_that_it_is_new_is_not_forgotten() -> None:
    merged = merge([roles(partition("t", 0, 0, is_new=True)), roles(partition("t", 0, 1))])
    assert merged == [roles(partition("t", 0, 1, is_new=True))]


def test_a_deleted_topic_is_gone_until_it_comes_again() -> None:
    assert merge([metadata(partition("t", 0), partition("u", 0)), metadata(deleted=("t",))]) == [
        metadata(partition("u", 0), deleted=("t",))
    ]
    assert merge([metadata(deleted=("t",)), metadata(partition("t", 0))]) == [
        metadata(partition("t", 0), deleted=("t",))
    ]


def test_nothing_merges_to_nothing() -> None:
    assert merge([]) == []
