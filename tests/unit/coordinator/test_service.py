"""CoordinatorService: what is refused at the door, and what administrators are told."""

from typing import Any

import pytest

from helpers.requirements import requirement
from tidelog.coordinator import service
from tidelog.coordinator.turns import Turns
from tidelog.errors import ErrorCode, TransportError
from tidelog.wire import messages as m
from tidelog.wire import services as s
from unit.coordinator.shell import GROUP, Consumer, Host, World

E = ErrorCode


async def refusal(world: World, host: Host, **changes: Any) -> m.RegisterConsumerResponse:
    """Of a registration, after which the stream must end in order."""
    consumer = Consumer(world, host)
    await consumer.register(**changes)
    await world.until(lambda: consumer.ended, "the stream ends")
    assert consumer.ended == "OK"
    found = consumer.heard[0].registered
    assert found is not None and len(consumer.heard) == 1
    return found


@requirement("A registration is answered with success or an error code")
@requirement("A registration needs a unique id and a session above the minimum")
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": ""}, E.INVALID_GROUP_ID),
        ({"group_id": "shards"}, E.INVALID_GROUP_ID),
        ({"group_id": "../etc"}, E.INVALID_GROUP_ID),
        ({"group_id": "x" * 250}, E.INVALID_GROUP_ID),
        ({"consumer_id": "a/b"}, E.INVALID_REQUEST),
        ({"topic_count": "[" * 70_000}, E.INVALID_REQUEST),
        ({"topic_count": "{"}, E.INVALID_REQUEST),
        ({"session_timeout_ms": 100}, E.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": -5}, E.INVALID_SESSION_TIMEOUT),
        ({"assignor": "random"}, None),
        ({"auto_offset_reset": "middle"}, E.INVALID_REQUEST),
    ],
)
async def test_a_registration_that_cannot_be_is_refused_and_its_stream_ends_in_order(
    world: World, changes: dict[str, Any], code: ErrorCode | None
) -> None:
    await world.topic()
    host = await world.serving()
    found = await refusal(world, host, **changes)
    assert found.error_code is code if code else found.error_code is not E.NONE
    assert (await world.member(host)).starts, "the process lives"


@pytest.mark.parametrize("size", [65_537, 4_000_000])
async def test_a_long_topic_count_is_refused_with_its_limit(world: World, size: int) -> None:
    await world.topic()
    host = await world.serving()
    found = await refusal(world, host, topic_count="x" * size)
    assert found.error_code is E.INVALID_REQUEST
    assert found.error_message == f"topic_count has {size} characters; at most 65536"


async def test_a_broker_that_does_not_coordinate_the_group_says_so_everywhere(world: World) -> None:
    await world.topic()
    await world.serving(1)
    other = await world.host(2)
    await world.until(lambda: other.coordinators.coordinator_of(GROUP) == 1, "it knows who does")
    assert (await refusal(world, other)).error_code is E.NOT_COORDINATOR
    commit = m.CommitOffsetsRequest(
        group_id=GROUP, consumer_id="", incarnation=0, coordinator_epoch=0, generation=-1, number=1
    )
    assert (await world.call(other, s.COORDINATOR_SERVICE_COMMIT_OFFSETS, commit)).error_code is E.NOT_COORDINATOR
    fetch = m.FetchOffsetsRequest(group_id=GROUP)
    assert (await world.call(other, s.COORDINATOR_SERVICE_FETCH_OFFSETS, fetch)).error_code is E.NOT_COORDINATOR
    describe = m.DescribeGroupsRequest(group_ids=(GROUP,))
    (described,) = (await world.call(other, s.COORDINATOR_SERVICE_DESCRIBE_GROUPS, describe)).groups
    assert (described.error_code, described.coordinator_id) == (E.NOT_COORDINATOR, 1)
    delete = m.DeleteGroupsRequest(group_ids=(GROUP, "shards"))
    results = (await world.call(other, s.COORDINATOR_SERVICE_DELETE_GROUPS, delete)).results
    assert [each.error_code for each in results] == [E.NOT_COORDINATOR, E.INVALID_GROUP_ID]
    listed = await world.call(other, s.COORDINATOR_SERVICE_LIST_GROUPS, m.ListGroupsRequest())
    assert (listed.groups, listed.shards, listed.shard_count) == ((), (), 1)


async def test_groups_are_listed_described_and_deleted_over_all_shards(world: World) -> None:
    await world.topic()
    host = await world.host(1, shards=4)
    await world.until(lambda: all(host.serves(shard) for shard in range(4)), "it has every shard")
    names = [f"g{n}" for n in range(6)]
    members = [await world.member(host, "c1", name) for name in names]
    listed = await world.call(host, s.COORDINATOR_SERVICE_LIST_GROUPS, m.ListGroupsRequest())
    assert [each.group_id for each in listed.groups] == names
    assert (listed.shards, listed.shard_count) == ((0, 1, 2, 3), 4)
    empty = await world.call(host, s.COORDINATOR_SERVICE_LIST_GROUPS, m.ListGroupsRequest(states=("Empty",)))
    assert empty.groups == ()
    request = m.DescribeGroupsRequest(group_ids=("g3", "g3", "none"))
    found, missing = (await world.call(host, s.COORDINATOR_SERVICE_DESCRIBE_GROUPS, request)).groups
    assert (found.state, found.coordinator_id, len(found.members[0].partitions)) == ("Stable", 1, 4)
    assert missing.error_code is E.GROUP_ID_NOT_FOUND
    for each in members[:3]:
        await each.leave()
        await world.until(lambda each=each: each.ended, "it has left")  # type: ignore[misc]
    delete = m.DeleteGroupsRequest(group_ids=("g5", "g0", "g1", "none"))
    results = (await world.call(host, s.COORDINATOR_SERVICE_DELETE_GROUPS, delete)).results
    assert [(each.group_id, each.error_code) for each in results] == [
        ("g5", E.NON_EMPTY_GROUP),
        ("g0", E.NONE),
        ("g1", E.NONE),
        ("none", E.GROUP_ID_NOT_FOUND),
    ]
    assert world.zookeeper.find("/consumers/g0") is None


async def test_more_than_a_message_may_hold_is_refused(world: World) -> None:
    await world.topic()
    host = await world.serving()
    names = tuple(m.PartitionName(topic="t", partition=n) for n in range(1001))
    fetch = m.FetchOffsetsRequest(group_id=GROUP, partitions=names)
    assert (await world.call(host, s.COORDINATOR_SERVICE_FETCH_OFFSETS, fetch)).error_code is E.INVALID_REQUEST
    consumer = await world.member(host)
    offsets = tuple(m.OffsetInfo(topic="events", partition=n, offset=1, leader_epoch=0) for n in range(1001))
    by_hand: dict[str, Any] = {"incarnation": 0, "coordinator_epoch": -1, "generation": -1, "number": 1}
    commit = m.CommitOffsetsRequest(group_id=GROUP, offsets=offsets, **by_hand)
    refused = await world.call(host, s.COORDINATOR_SERVICE_COMMIT_OFFSETS, commit)
    assert (refused.error_code, refused.results) == (E.INVALID_REQUEST, ())
    assert "offsets holds 1001 entries, at most 1000" in refused.error_message
    await consumer.say(ping=m.PingResponse(consumer_id="c1", coordinator_epoch=1, generation=1, offset_info=offsets))
    await world.until(lambda: consumer.ended, "its stream is ended")
    assert "INVALID_REQUEST: offset_info holds 1001 entries, at most 1000" in (consumer.ended or "")
    assert host.sample("tidelog_coordinator_refused_total", what="message", code="INVALID_REQUEST") == 1


async def test_a_stream_that_says_nothing_is_ended_and_only_so_many_wait(world: World) -> None:
    await world.topic()
    host = await world.serving()
    ended_at: list[float] = []
    why: list[str] = []

    async def idle() -> None:
        with pytest.raises(TransportError) as caught:
            await world.open(host).read()
        ended_at.append(world.clock.now() - opened_at)
        why.append(str(caught.value))

    opened_at = world.clock.now()
    for n in range(service.UNREGISTERED_MAX):
        world.background.start(f"idle {n}", idle())
    await world.clock.sleep(1.0)
    assert not ended_at and (await world.member(host)).starts, "whoever registers is served"
    assert len(ended_at) == 1 and ended_at[0] < 2.0, "one that has waited makes room"
    await world.until(lambda: len(ended_at) == service.UNREGISTERED_MAX, "the end of all others")
    assert "COORDINATOR_NOT_AVAILABLE: over 1000 streams have not registered yet" in why[0]
    assert all("INVALID_REQUEST: nothing was said within 10 s" in each for each in why[1:])
    assert ended_at[1] >= service.REGISTER_S and ended_at[-1] < service.REGISTER_S + 1.0


async def test_a_stream_whose_consumer_does_not_read_is_ended_alone(world: World) -> None:
    await world.topic()
    host = await world.serving()
    deaf = Consumer(world, host, "deaf", "deaf")
    deaf.number = 1
    other = await world.member(host)
    stream = service.ConsumerStream(deaf.stream, "EXTERNAL", Turns(1, 1.0))  # type: ignore[arg-type]
    for _ in range(service.OUTBOX_MAX + 1):
        stream.send(m.CoordinatorMessage(last_number=0))
    with pytest.raises(TransportError):
        await deaf.stream.read()
    assert other.ended is None


async def test_an_answer_to_last_words_comes_before_the_end_of_the_stream(world: World) -> None:
    await world.topic()
    host = await world.serving()
    for n in range(5):
        consumer = await world.member(host, f"c{n}")
        await consumer.leave()
        await world.until(lambda consumer=consumer: consumer.ended, "its stream ends")  # type: ignore[misc]
        assert consumer.ended == "OK" and consumer.heard[-1].left is not None


async def test_last_words_that_are_a_repeat_of_old_ones_do_not_make_the_coordinator_deaf(world: World) -> None:
    await world.topic()
    host = await world.serving()
    consumer = await world.member(host)
    newest, consumer.number = consumer.number, 0
    await consumer.leave()
    consumer.number = newest
    await world.clock.sleep(1.0)
    assert consumer.ended is None and consumer.heard[-1].left is None
    await consumer.leave()
    await world.until(lambda: consumer.ended, "its stream ends", timeout_s=1.0)
    assert consumer.heard[-1].left is not None


async def test_lag_and_state_are_shown_for_each_group(world: World) -> None:
    await world.topic()
    host = await world.serving(lag_s=1.0)
    consumer = await world.member(host)
    await consumer.commit(p0=400)
    await world.clock.sleep(1.5)
    assert host.sample("tidelog_group_lag_records", group=GROUP, topic="events", partition="0") == 600
    assert host.sample("tidelog_coordinator_shards") == 1
    assert host.sample("tidelog_coordinator_epoch", shard="0") == host.coordinators.terms[0].epoch
    assert host.sample("tidelog_coordinator_rebalance_duration_seconds_count", group=GROUP) == 1


async def test_ends_are_asked_once_from_each_leader_and_unknown_where_nobody_answers(world: World) -> None:
    await world.topic()
    one, two = await world.serving(1), await world.host(2)
    consumer = await world.member(one)
    one.asked.clear()
    two.asked.clear()
    answer = await consumer.commit(p0=1, p1=2, p2=3, p3=4)
    assert {each.error_code for each in answer.results} == {E.NONE}
    assert [len(each.partitions) for each in one.asked] == [2]
    assert [len(each.partitions) for each in two.asked] == [2]
    world.network.kill("broker-2")
    answer = await consumer.commit(p0=1001, p1=2000)
    codes = [each.error_code for each in answer.results]
    assert codes == [E.OFFSET_OUT_OF_RANGE, E.NONE], "who cannot be asked hinders nobody"


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:127.0.0.1:33698", "/127.0.0.1"),
        ("ipv6:%5B::1%5D:33698", "/::1"),
        ("ipv6:[2001:db8::7]:33698", "/2001:db8::7"),
        ("ipv6:%5Bfe80::1%25eth0%5D:33698", "/fe80::1%eth0"),
        ("unix:/run/tidelog.sock", "unix:/run/tidelog.sock"),
        ("unix:", "unix:"),
        ("", ""),
    ],
)
def test_the_host_of_a_member_is_its_address_without_what_grpc_adds(peer: str, host: str) -> None:
    assert service.host_of(peer) == host
