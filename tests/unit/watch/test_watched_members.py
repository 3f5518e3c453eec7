"""Watching members of groups: brokers hand on what an agent shows on a port of its own."""

import pytest

from helpers.brokers import Brokers, brokers
from helpers.watched import request, watched
from tidelog.errors import TransportError
from tidelog.watch import service
from tidelog.wire import messages as m
from tidelog.wire import services as s

GROUP = "g"


async def with_members(*names: str) -> Brokers:
    cluster = await brokers(3, coordinator_shards=3)
    await cluster.create("events", 4)
    for name in names:
        await cluster.join(GROUP, name, "events", records=True)
    return cluster


def member(consumer_id: str, group_id: str = GROUP) -> m.WatchedMember:
    return m.WatchedMember(group_id=group_id, consumer_id=consumer_id)


async def refusal(cluster: Brokers, broker: int, **fields: object) -> str:
    channel = cluster.ports_of("watch").net.channel(cluster.node(broker).address, purpose="watch")
    stream = channel.open(s.WATCH_SERVICE_WATCH_PROTOCOL)
    await stream.write(request(**fields))
    with pytest.raises(TransportError) as refused:
        await stream.read()
    return refused.value.detail


async def test_members_tell_their_side_of_a_rebalance() -> None:
    cluster = await with_members("a")
    async with watched(cluster) as seen:
        await seen.run(3.0)
        await cluster.join(GROUP, "b", "events", records=True)
        await seen.run(5.0)
        assert {"StopFetcherReceived", "StopFetcherObeyed", "StartFetcherObeyed"} <= set(seen.kinds("a"))
        assert seen.kinds("b")[0] == "MemberJoined", "it is found later, and tells all since the watch began"
        assert not seen.missing


async def test_the_newest_events_of_members_come_first() -> None:
    cluster = await with_members("a", "b")
    async with watched(cluster, last=3) as seen:
        assert not seen.follower.complete
        await cluster.until(lambda: seen.follower.complete, "every process has told its newest events")
        await seen.run(1.0)
        assert len(seen.kinds("a")) == len(seen.kinds("b")) == 3


async def test_a_member_is_followed_to_its_next_coordinator() -> None:
    cluster = await with_members("a")
    async with watched(cluster) as seen:
        await seen.run(3.0)
        old = cluster.coordinator(GROUP)
        cluster.kill(old)
        await cluster.until(lambda: cluster.coordinator(GROUP) not in (-1, old), "another broker coordinates")
        await seen.run(10.0)
        joined = [kind for kind in seen.kinds("a") if kind == "MemberJoined"]
        assert "CoordinatorLost" in seen.kinds("a") and len(joined) == 1
        numbers = [told.event.number for told in seen.told if told.process == "a"]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "nothing is lost, nothing comes twice"
        assert not seen.missing


async def test_a_member_that_has_left_is_followed_no_longer() -> None:
    cluster = await with_members("a", "b")
    async with watched(cluster) as seen:
        await seen.run(3.0)
        begun = cluster.clock.now()
        await cluster.leave("b")
        assert cluster.clock.now() - begun < 0.5, "its watcher does not hold it up"
        await seen.run(5.0)
        dialled = len(cluster.streams)
        await seen.run(5.0)
        assert len(cluster.streams) == dialled
        assert seen.kinds("b")[-1] == "MemberLeft"


async def test_members_are_not_looked_for_if_a_filter_excludes_them() -> None:
    cluster = await with_members("a")
    async with watched(cluster, families=("controller",), last=10) as seen:
        await seen.run(3.0)
        assert seen.follower.complete
    assert not cluster.of("ListGroups")


async def test_only_the_coordinator_hands_on_its_members() -> None:
    cluster = await with_members("a")
    await cluster.join(GROUP, "silent", "events")
    at = cluster.coordinator(GROUP)
    other = next(broker for broker in cluster.ids if broker != at)
    assert (await refusal(cluster, other, member=member("a"))).startswith("NOT_COORDINATOR: ")
    for name in ("silent", "x" * 200):
        told = await refusal(cluster, at, member=member(name))
        assert told == (
            f"UNKNOWN_MEMBER_ID: group g has no member '{name[:100]}' that is connected and shows protocol events"
        )
    assert (await refusal(cluster, at, member=member("a", "g/../h"))).startswith("INVALID_GROUP_ID: ")


async def test_a_broker_hands_on_so_many_streams_and_refuses_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "HANDED_ON", 2)
    cluster = await with_members("a")
    broker = cluster.coordinator(GROUP)
    channel = cluster.ports_of("watch").net.channel(cluster.node(broker).address, purpose="watch")
    streams = [channel.open(s.WATCH_SERVICE_WATCH_PROTOCOL) for _ in range(2)]
    for stream in streams:
        await stream.write(request(member=member("a")))
        assert await stream.read() is not None
    told = await refusal(cluster, broker, member=member("a"))
    assert told.startswith(f"THROTTLING_QUOTA_EXCEEDED: broker-{broker} hands on 2 streams, which is the limit")
