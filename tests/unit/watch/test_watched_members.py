"""Watching members of groups: brokers hand on what an agent shows on a port of its own."""

import pytest

from helpers.brokers import Brokers, brokers
from helpers.watched import request, watched
from tidelog.errors import TransportError
from tidelog.ports.recorder import Cause
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
    async with watched(cluster, last=3, families=("member",)) as seen:
        begun = cluster.clock.now()
        assert not seen.follower.complete
        await cluster.until(lambda: seen.follower.complete, "every process has told its newest events")
        assert cluster.clock.now() - begun < 1.0
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
    monkeypatch.setattr(service, "MEMBERS", 2)
    cluster = await with_members("a")
    broker = cluster.coordinator(GROUP)
    channel = cluster.ports_of("watch").net.channel(cluster.node(broker).address, purpose="watch")
    streams = [channel.open(s.WATCH_SERVICE_WATCH_PROTOCOL) for _ in range(2)]
    for stream in streams:
        await stream.write(request(member=member("a")))
        assert await stream.read() is not None
    told = await refusal(cluster, broker, member=member("a"))
    assert told.startswith(
        f"THROTTLING_QUOTA_EXCEEDED: broker-{broker} hands on 2 streams of members, which is the limit"
    )
    streams[0].cancel()
    await cluster.wait(0.1)
    again = channel.open(s.WATCH_SERVICE_WATCH_PROTOCOL)
    await again.write(request(member=member("a")))
    assert await again.read() is not None


@pytest.mark.parametrize("name", ["broker-7", "controller-2", "", "a\nb"])
async def test_a_member_with_a_name_of_another_sort_is_not_watched(name: str) -> None:
    cluster = await with_members("a")
    await cluster.join(GROUP, "b", "events", records=True, agent_id=name)
    async with watched(cluster) as seen:
        await seen.run(5.0)
        assert seen.follower.complete
        assert name not in {told.process for told in seen.told} | seen.follower.caught_up


async def test_a_member_that_cannot_be_reached_is_named_once() -> None:
    cluster = await with_members("a")
    broker = f"broker-{cluster.coordinator(GROUP)}"
    cluster.world.network.refuse(broker, "a")
    async with watched(cluster, last=10) as seen:
        await seen.run(10.0)
        assert seen.notes == [f"a: {broker} does not reach it"]
        assert seen.follower.complete
        assert len([stream for stream in cluster.streams if stream.sent and stream.sent[0].member]) <= 3


async def test_a_member_tells_of_members_alone() -> None:
    cluster = await with_members("a")
    ring = cluster.world.rings[-1]
    async with watched(cluster, last=10) as seen:
        await seen.run(3.0)
        seen.told.clear()
        ring.record(None, m.BrokerLost(broker_id=7))
        ring.record(GROUP, m.MemberLeft(consumer_id="a", stored=True))
        await seen.run(1.0)
        assert seen.kinds("a") == ["MemberLeft"]


async def test_a_watch_of_one_group_follows_its_members() -> None:
    cluster = await with_members("a")
    await cluster.join("other", "b", "events", records=True)
    async with watched(cluster, groups=("other",), last=100) as seen:
        await seen.run(5.0)
        assert "FetchingStarted" in seen.kinds("b")
        assert seen.follower.caught_up == {"broker-1", "broker-2", "broker-3", "controller-1", "b"}


async def test_causes_of_a_forger_do_not_stop_the_watch() -> None:
    cluster = await with_members("a")
    ring = cluster.world.rings[-1]
    async with watched(cluster) as seen:
        await seen.run(3.0)
        looks = len(cluster.of("ListGroups"))
        for number in range(2_000):
            ring.record(GROUP, m.MemberLeft(consumer_id="a", stored=True), Cause(f"x{number}", 1, 1))
        await seen.run(10.0)
        assert len(cluster.of("ListGroups")) - looks < 3 * 10 / 0.4


async def test_causes_that_are_always_to_come_do_not_stop_the_watch() -> None:
    cluster = await with_members("a")
    ring, other = cluster.world.rings[-1], cluster.world.rings[0]
    async with watched(cluster) as seen:
        await seen.run(3.0)
        for number in range(80):
            each = ring.record(GROUP, m.CoordinatorLost(consumer_id="a"), Cause("a", ring.life, ring.newest + 2))
            if number == 0:
                other.record(None, m.BrokerLost(broker_id=7), each)
            await seen.run(0.1)
        assert "BrokerLost" in seen.kinds(other.process)


async def test_a_cause_that_a_filter_leaves_out_is_not_missing() -> None:
    cluster = await with_members("a")
    async with watched(cluster, families=("member",)) as seen:
        await seen.run(3.0)
        await cluster.join(GROUP, "b", "events", records=True)
        await seen.run(5.0)
        assert "StopFetcherReceived" in seen.kinds("a")
        assert not seen.missing
