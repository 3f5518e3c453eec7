"""Bad input to the coordinator of real brokers: a code, words that name field and limit, and nobody else is disturbed.

Lists: issue 4 and reliability 7.2. `GroupBed.unharmed` is the oracle: nothing is stored, the processes live on, a bystander of
the same coordinator keeps its generation and gets its records, and the next valid registration is served.
"""

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from helpers.bad_names import BAD_NAMES, ODD_NAMES
from helpers.group_wire import PARTITIONS, GroupBed, Member, at, commit, goes_on, live_group
from helpers.requirements import requirement
from helpers.wire import INT32_MAX, INT64_MAX, TIMEOUT_S, said
from tidelog.errors import ErrorCode, TransportError
from tidelog.ids import TopicPartition
from tidelog.names import INTERNAL_TOPICS
from tidelog.wire import messages as m
from tidelog.wire import services as s
from tidelog.wire.codec import encode

pytestmark = pytest.mark.integration

E = ErrorCode


def subscribed(streams: object, pattern: object = "static") -> dict[str, str]:
    return {"topic_count": json.dumps({"pattern": pattern, "subscription": streams})}


# --- registration ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_bad_names_are_refused_wherever_they_come_in(groups: GroupBed, name: str) -> None:
    bad, words = BAD_NAMES[name]

    async with groups.unharmed() as channel:
        said(await groups.member(channel).register(group_id=bad), E.INVALID_GROUP_ID, "group_id", words)
        said(await groups.member(channel).register(consumer_id=bad), E.INVALID_REQUEST, "consumer_id", words)
        topic = await groups.member(channel).register(**subscribed({bad: 1}))
        if len(bad) < 60_000:
            said(topic, E.INVALID_TOPIC_EXCEPTION, "topic name", words)
        else:
            said(topic, E.INVALID_REQUEST, "topic_count", "at most 65536")
        nobody: dict[str, Any] = {"incarnation": 0, "coordinator_epoch": -1, "generation": -1, "number": 1}
        offset = at(groups.topic, 0, 0)
        request = m.CommitOffsetsRequest(group_id=bad, offsets=(offset,), **nobody)
        said(await commit(channel, request), E.INVALID_GROUP_ID, "group_id", words)
        request = m.CommitOffsetsRequest(group_id=groups.group, offsets=(at(bad, 0, 0),), **nobody)
        (result,) = (await commit(channel, request)).results
        said(result, E.INVALID_TOPIC_EXCEPTION, "topic name", words)
        if bad:
            request = m.CommitOffsetsRequest(group_id=groups.group, consumer_id=bad, offsets=(offset,), **nobody)
            said(await commit(channel, request), E.INVALID_REQUEST, "consumer_id", words)
        fetched = await channel.call(
            s.COORDINATOR_SERVICE_FETCH_OFFSETS, m.FetchOffsetsRequest(group_id=bad), TIMEOUT_S
        )
        said(fetched, E.INVALID_GROUP_ID, "group_id", words)
        describe = m.DescribeGroupsRequest(group_ids=(bad,))
        (described,) = (await channel.call(s.COORDINATOR_SERVICE_DESCRIBE_GROUPS, describe, TIMEOUT_S)).groups
        said(described, E.INVALID_GROUP_ID, "group_id", words)
        delete = m.DeleteGroupsRequest(group_ids=(bad,))
        (deleted,) = (await channel.call(s.COORDINATOR_SERVICE_DELETE_GROUPS, delete, TIMEOUT_S)).results
        said(deleted, E.INVALID_GROUP_ID, "group_id", words)


async def test_odd_but_valid_names_work(groups: GroupBed) -> None:
    odd = (*ODD_NAMES, *sorted(INTERNAL_TOPICS))

    async with groups.unharmed() as channel:
        for name in odd:
            member = groups.member(channel, name)
            assert (await member.register()).error_code is E.NONE, name
            await member.leave()
        await groups.forget(channel)

    tp = TopicPartition(groups.topic, 0)
    for name in odd:
        groups.admin.groups.alter_offsets(name, {tp: 1})
        found = groups.admin.groups.committed(name)
        assert [(each, offset.offset) for each, offset in found.items() if offset is not None] == [(tp, 1)], name
        groups.admin.groups.delete(name)


@requirement("A duplicate consumer id or too short a session gets an error code")
async def test_an_id_of_a_live_member_is_refused_and_a_static_one_does_not_take_over_who_is_not(
    groups: GroupBed,
) -> None:
    async with groups.unharmed() as channel:
        for changes in ({}, {"static_member": True}, {"rejoin": True}, {"session_timeout_ms": 60_000}):
            twin = Member(channel, groups.bystander_group, groups.topic, "bystander", **changes)
            said(await twin.register(), E.DUPLICATE_CONSUMER_ID, "consumer id 'bystander'", "live member")
        other = Member(channel, groups.bystander_group, groups.topic, "other", assignor="range")
        said(await other.register(), E.INCONSISTENT_GROUP_PROTOCOL, "'sticky'", "'range'")


# --- streams --------------------------------------------------------------------------------------------------------


async def test_two_bodies_in_one_message_are_the_last_one(groups: GroupBed) -> None:
    """As protobuf has it: it is no registration, then, though it holds one."""

    async with groups.unharmed() as channel:
        member = groups.member(channel)
        both = encode(m.ConsumerMessage(number=1, register=member.request)) + encode(
            m.ConsumerMessage(number=1, ping=m.PingResponse(consumer_id="wire", coordinator_epoch=1, generation=1))
        )
        await member.stream._call.write(both)  # type: ignore[attr-defined]
        said(await member.hear("registered"), E.INVALID_REQUEST, "the first message")


STRAYS: dict[str, Callable[[Member], Awaitable[None]]] = {
    "ping without a ping": lambda c: c.pong(),
    "ping of an old generation": lambda c: c.pong(generation=c.generation - 1, offset_info=(at(c.topic, 0, 1),)),
    "ping of a new generation": lambda c: c.pong(generation=INT32_MAX, offset_info=(at(c.topic, 0, 1),)),
    "ping of generation -1": lambda c: c.pong(generation=-1, offset_info=(at(c.topic, 0, 1),)),
    "ping of an old epoch": lambda c: c.pong(coordinator_epoch=c.epoch - 1, offset_info=(at(c.topic, 0, 1),)),
    "ping of a new epoch": lambda c: c.pong(coordinator_epoch=INT32_MAX, offset_info=(at(c.topic, 0, 1),)),
    "ping with what it does not own": lambda c: c.pong(
        offset_info=(at(c.topic, PARTITIONS, 1), at("nowhere", 0, 1), at("..", 0, 1), at(c.topic, -1, 1))
    ),
    "ping with what cannot be": lambda c: c.pong(
        offset_info=(at(c.topic, 0, -1), at(c.topic, 1, -(2**63)), at(c.topic, 2, 0, metadata="x" * 5000))
    ),
    "ping beyond the log": lambda c: c.pong(offset_info=(at(c.topic, 0, INT64_MAX), at(c.topic, 1, 1 << 40))),
    "ping in another's name": lambda c: c.pong(consumer_id="bystander"),
    "stopped that nobody asked for": lambda c: stopped(c),
    "stopped of an old generation": lambda c: stopped(c, generation=c.generation - 1),
    "stopped of a new generation": lambda c: stopped(c, generation=INT32_MAX),
    "stopped of an old epoch": lambda c: stopped(c, coordinator_epoch=0),
    "finishing that nobody asked for": lambda c: stopped(c, finishing=True),
    "started that nobody asked for": lambda c: started(c),
    "started of an old generation": lambda c: started(c, generation=0),
    "started of a new generation": lambda c: started(c, generation=INT32_MAX),
    "started of an old epoch": lambda c: started(c, coordinator_epoch=-1),
    "leave with an old number": lambda c: c.say(
        1, leave=m.LeaveGroupRequest(consumer_id="wire", coordinator_epoch=c.epoch, generation=c.generation)
    ),
    "registration with an old number": lambda c: c.say(1, register=c.request),
    "nothing with an old number": lambda c: c.say(-(2**63)),
}


async def stopped(member: Member, **changes: Any) -> None:
    values: dict[str, Any] = dict(
        consumer_id="wire",
        coordinator_epoch=member.epoch,
        generation=member.generation,
        started_generation=member.generation,
        finishing=False,
        offset_info=(at(member.topic, 0, 1),),
    )
    await member.say(stopped=m.StopFetcherResponse(**(values | changes)))


async def started(member: Member, **changes: Any) -> None:
    values = {"consumer_id": "wire", "coordinator_epoch": member.epoch, "generation": member.generation}
    await member.say(started=m.StartFetcherResponse(**(values | changes)))


async def test_coord_13_answers_that_nobody_asked_for_and_old_ones_change_nothing(groups: GroupBed) -> None:
    async with groups.unharmed() as channel:
        member = await live_group(groups, channel, session_timeout_ms=6_000)  # a third of it until the next ping
        for what, stray in STRAYS.items():
            await stray(member)
            await goes_on(groups, channel, member)
            assert groups.admin.groups.describe_one(groups.group).offsets[0].offset == 0, what
        ping = await member.hear("ping")
        assert ping.generation == member.generation
        await member.pong()
        await goes_on(groups, channel, member, offset=1)
        await member.leave(generation=0, offset_info=(at(groups.topic, 0, 0),))
        (found,) = groups.admin.groups.describe_one(groups.group).offsets
        assert found.offset == 1, "its last words were of another generation: it has left, and they do not count"
        await groups.forget(channel)


async def test_a_number_that_nothing_can_follow_silences_its_consumer_alone(groups: GroupBed) -> None:
    async with groups.unharmed() as channel:
        member = groups.member(channel, session_timeout_ms=1_500)
        assert (await member.register(INT64_MAX)).error_code is E.NONE
        await member.say(leave=m.LeaveGroupRequest(consumer_id="wire", coordinator_epoch=1, generation=1))
        with suppress(TransportError):  # of an answer that the end of the stream overtook
            while (message := await member.stream.read()) is not None:
                if message.ping is not None:
                    await member.pong()  # has a lower number, so the session ends
        assert (await groups.described(channel)).state == "Empty"
        await groups.forget(channel)


@requirement("A consumer that reconnects resumes its own registration")
async def test_an_incarnation_that_is_stolen_is_never_two(groups: GroupBed) -> None:
    """Who knows a consumer's secret is that consumer: its older stream ends, and one generation is one owner's."""

    async with groups.unharmed() as channel:
        member = await live_group(groups, channel)
        guess = groups.member(channel, incarnation=member.incarnation + 1)
        said(await guess.register(), E.DUPLICATE_CONSUMER_ID, "'wire'", "live member")
        late = groups.member(channel, incarnation=member.incarnation)
        with pytest.raises(AssertionError, match="stream ended"):
            await late.register(1)
        await goes_on(groups, channel, member)
        thief = groups.member(channel, incarnation=member.incarnation)
        assert (await thief.register(1_000)).error_code is E.NONE
        start = await thief.started()
        assert start.generation > member.generation
        while (message := await member.stream.read()) is not None:
            assert message.ping, message  # of the time before
        answer = await commit(channel, member.commit(at(groups.topic, 0, 1), number=2_000))
        assert answer.error_code in (E.ILLEGAL_GENERATION, E.REBALANCE_IN_PROGRESS)
        assert [each.offset for each in (await groups.described(channel)).offsets] == [0]
        thief.number = 3_000
        await thief.leave()
        await groups.forget(channel)
