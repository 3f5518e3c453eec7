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
RESPONSIVE_S = 2.0
"""The longest that a coordinator may be busy with one bad request: of its processor's time, not of a loaded machine's."""


def subscribed(streams: object, pattern: object = "static") -> dict[str, str]:
    return {"topic_count": json.dumps({"pattern": pattern, "subscription": streams})}


# --- registration ---------------------------------------------------------------------------------------------------


@requirement("A duplicate consumer id or too short a session gets an error code")
@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"group_id": "coordinator"}, E.INVALID_GROUP_ID, ("group_id", "'coordinator'")),
        ({"group_id": "shards"}, E.INVALID_GROUP_ID, ("group_id", "'shards'")),
        ({"session_timeout_ms": 1000}, E.INVALID_SESSION_TIMEOUT, ("session_timeout_ms 1000", "over 1000")),
        ({"session_timeout_ms": 0}, E.INVALID_SESSION_TIMEOUT, ("session_timeout_ms 0", "over 1000")),
        ({"session_timeout_ms": -1}, E.INVALID_SESSION_TIMEOUT, ("session_timeout_ms -1", "over 1000")),
        ({"session_timeout_ms": 1_800_001}, E.INVALID_SESSION_TIMEOUT, ("1800001", "at most 1800000")),
        ({"session_timeout_ms": INT32_MAX}, E.INVALID_SESSION_TIMEOUT, ("2147483647", "at most 1800000")),
        ({"max_processing_ms": -1}, E.INVALID_REQUEST, ("max_processing_ms -1", "86400000")),
        ({"max_processing_ms": INT32_MAX}, E.INVALID_REQUEST, ("max_processing_ms 2147483647", "86400000")),
        ({"auto_offset_reset": "earliest"}, E.INVALID_REQUEST, ("auto_offset_reset 'earliest'", "smallest, largest")),
        ({"auto_offset_reset": "x" * 1_000_000}, E.INVALID_REQUEST, ("auto_offset_reset", "smallest, largest")),
        ({"assignor": "best"}, E.INCONSISTENT_GROUP_PROTOCOL, ("assignor 'best'", "range, roundrobin, sticky")),
        ({"assignor": "\u202e" * 100_000}, E.INCONSISTENT_GROUP_PROTOCOL, ("assignor", "range, roundrobin, sticky")),
        ({"client_id": "x" * 1_000_000}, E.INVALID_REQUEST, ("client_id", "1000000 characters; at most 249")),
        ({"topic_count": ""}, E.INVALID_REQUEST, ("topic_count", "JSON")),
        ({"topic_count": "{"}, E.INVALID_REQUEST, ("topic_count", "JSON")),
        ({"topic_count": "[" * 60_000}, E.INVALID_REQUEST, ("topic_count", "JSON")),
        ({"topic_count": "null"}, E.INVALID_REQUEST, ("topic_count", "pattern and subscription")),
        ({"topic_count": '{"pattern": "static"}'}, E.INVALID_REQUEST, ("topic_count", "pattern and subscription")),
        (subscribed({}), E.INVALID_REQUEST, ("topic_count", "subscription")),
        (subscribed({"t": 0}), E.INVALID_REQUEST, ("topic_count", "from 1 to 100")),
        (subscribed({"t": -1}), E.INVALID_REQUEST, ("topic_count", "from 1 to 100")),
        (subscribed({"t": 101}), E.INVALID_REQUEST, ("topic_count", "from 1 to 100")),
        (subscribed({"t": True}), E.INVALID_REQUEST, ("topic_count", "from 1 to 100")),
        (subscribed({"t": 1.5}), E.INVALID_REQUEST, ("topic_count", "from 1 to 100")),
        (subscribed({"t": "1"}), E.INVALID_REQUEST, ("topic_count", "from 1 to 100")),
        ({"topic_count": '{"pattern":"static","subscription":{"t":' + "9" * 5000 + "}}"}, E.INVALID_REQUEST, ("JSON",)),
        ({"topic_count": '{"pattern":"static","subscription":{"t":1,"t":2}}'}, E.INVALID_REQUEST, ("twice",)),
        (
            subscribed({"t": 1}, pattern="regex"),
            E.INVALID_REQUEST,
            ("topic_count", "static, white_list and black_list"),
        ),
        (subscribed({"t": 1}, pattern=None), E.INVALID_REQUEST, ("topic_count", "static, white_list and black_list")),
        (subscribed({"a": 1, "b": 1}, pattern="white_list"), E.INVALID_REQUEST, ("2 patterns; exactly 1",)),
        (subscribed({f"t{n}": 1 for n in range(10_000)}), E.INVALID_REQUEST, ("topic_count", "at most 65536")),
        (subscribed({"x" * 70_000: 1}), E.INVALID_REQUEST, ("topic_count", "characters; at most 65536")),
        (subscribed({"x" * 4_000_000: 1}), E.INVALID_REQUEST, ("topic_count", "characters; at most 65536")),
    ],
    ids=lambda each: str(each)[:60],
)
async def test_a_bad_registration_is_refused_by_name_and_limit(
    groups: GroupBed, changes: dict[str, Any], code: E, words: tuple[str, ...]
) -> None:
    async with groups.unharmed() as channel:
        said(await groups.member(channel).register(**changes), code, *words)


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
        groups.admin.alter_group_offsets(name, {tp: 1})
        found = groups.admin.committed_offsets(name)
        assert [(each, offset.offset) for each, offset in found.items() if offset is not None] == [(tp, 1)], name
        groups.admin.delete_group(name)


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


async def test_a_topic_that_nobody_has_made_gives_nothing_and_disturbs_nobody(groups: GroupBed) -> None:
    """It may be made later (A3.08)."""

    async with groups.unharmed() as channel:
        member = groups.member(channel, **subscribed({f"nowhere-{n}": 1 for n in range(1_000)}))
        assert (await member.register()).error_code is E.NONE
        assert not (await member.started()).ownership_info
        await member.leave()
        await groups.forget(channel)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "RE2"),
        ("a{1000}{1000}", "RE2"),
        ("((a{0,100}){0,100}){0,100}", "RE2"),
        (r"(a)\1", "RE2"),
        ("(?=a)", "RE2"),
        ("\ud800", "RE2"),
        ("x" * 1_025, "1025 characters; at most 1024"),
    ],
)
async def test_a_bad_pattern_is_refused(groups: GroupBed, pattern: str, words: str) -> None:
    async with groups.unharmed() as channel:
        for kind in ("white_list", "black_list"):
            answer = await groups.member(channel).register(**subscribed({pattern: 1}, kind))
            said(answer, E.INVALID_REQUEST, "topic_count", words)


@pytest.mark.parametrize(
    "pattern", ["(a|a?)+b", "(a+)+b", "(a*)*(a*)*(a*)*b", "(.*a){25}b", "a?" * 200 + "a" * 200 + "b"]
)
async def test_a_pattern_that_explodes_elsewhere_takes_no_time_here(groups: GroupBed, pattern: str) -> None:
    """A topic of 200 letters that almost fit; who backtracks would never come back."""
    groups.admin.create_topic("a" * 200, 1, 1, configs={"min.insync.replicas": "1"})
    try:
        async with groups.unharmed() as channel:
            before_s = groups.coordinator_busy_s()
            member = groups.member(channel, **subscribed({pattern: 1}, "white_list"))
            assert (await member.register()).error_code is E.NONE
            assert not (await member.started()).ownership_info
            assert groups.coordinator_busy_s() - before_s < RESPONSIVE_S
            await member.leave()
            await groups.forget(channel)
    finally:
        groups.admin.delete_topic("a" * 200)


# --- streams --------------------------------------------------------------------------------------------------------

FIRST: dict[str, dict[str, Any]] = {
    "nothing": {},
    "ping": {"ping": m.PingResponse(consumer_id="wire", coordinator_epoch=1, generation=1)},
    "stopped": {
        "stopped": m.StopFetcherResponse(
            consumer_id="wire", coordinator_epoch=1, generation=1, started_generation=1, finishing=False
        )
    },
    "started": {"started": m.StartFetcherResponse(consumer_id="wire", coordinator_epoch=1, generation=1)},
    "leave": {"leave": m.LeaveGroupRequest(consumer_id="bystander", coordinator_epoch=1, generation=1)},
}


@pytest.mark.parametrize("first", FIRST)
async def test_who_has_not_registered_is_asked_to(groups: GroupBed, first: str) -> None:
    async with groups.unharmed() as channel:
        member = groups.member(channel)
        await member.say(**FIRST[first])
        said(await member.hear("registered"), E.INVALID_REQUEST, "the first message", "register")
        assert await member.stream.read() is None


@pytest.mark.parametrize("number", [0, -1, -(2**63)])
async def test_a_number_that_is_none_is_refused(groups: GroupBed, number: int) -> None:
    async with groups.unharmed() as channel:
        said(await groups.member(channel).register(number), E.INVALID_REQUEST, f"number {number}", "at least 1")


@pytest.mark.parametrize("registered", [False, True])
async def test_garbage_on_a_stream_ends_it_and_says_why(groups: GroupBed, registered: bool) -> None:
    async with groups.unharmed() as channel:
        member = groups.member(channel)
        if registered:
            assert (await member.register()).error_code is E.NONE
        await member.stream._call.write(b"\xff" * 20)  # type: ignore[attr-defined]
        with pytest.raises(TransportError, match=r"INVALID_ARGUMENT.*INVALID_REQUEST: not a ConsumerMessage"):
            while await member.stream.read() is not None:
                pass
        if registered:
            await member.reconnect()
            await member.leave()
            await groups.forget(channel)


async def test_two_bodies_in_one_message_are_the_last_one(groups: GroupBed) -> None:
    """As protobuf has it: it is no registration, then, though it holds one."""

    async with groups.unharmed() as channel:
        member = groups.member(channel)
        both = encode(m.ConsumerMessage(number=1, register=member.request)) + encode(
            m.ConsumerMessage(number=1, **FIRST["ping"])
        )
        await member.stream._call.write(both)  # type: ignore[attr-defined]
        said(await member.hear("registered"), E.INVALID_REQUEST, "the first message")


@pytest.mark.parametrize("again", ["nothing", "register"])
async def test_a_second_registration_and_a_message_without_a_body_cost_the_stream_only(
    groups: GroupBed, again: str
) -> None:
    async with groups.unharmed() as channel:
        member = await groups.member(channel).join()
        words = {"nothing": "without a body", "register": "registers once"}[again]
        await member.say(**({"register": member.request} if again == "register" else {}))
        said(await member.hear("registered", answering=False), E.INVALID_REQUEST, words)
        assert (await member.reconnect()).error_code is E.NONE
        assert (await member.started()).ownership_info, "it is still the owner"
        await member.leave()
        await groups.forget(channel)


async def test_more_than_a_message_may_hold_ends_the_stream_and_says_so(groups: GroupBed) -> None:
    async with groups.unharmed() as channel:
        member = await groups.member(channel).join()
        await member.pong(offset_info=(at("", 0, 0),) * 200_001)
        with pytest.raises(TransportError, match=r"INVALID_REQUEST: offset_info holds 200001 entries; at most 200000"):
            await member.hear_the_end()
        with pytest.raises(TransportError, match=r"RESOURCE_EXHAUSTED.*larger than max"):
            await groups.member(channel).register(topic_count="x" * 5_000_000)
        await member.reconnect()
        await member.leave()
        await groups.forget(channel)


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
            assert groups.admin.describe_group(groups.group).offsets[0].offset == 0, what
        ping = await member.hear("ping")
        assert ping.generation == member.generation
        await member.pong()
        await goes_on(groups, channel, member, offset=1)
        await member.leave(generation=0, offset_info=(at(groups.topic, 0, 0),))
        (found,) = groups.admin.describe_group(groups.group).offsets
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


# --- offsets --------------------------------------------------------------------------------------------------------


async def test_a_bad_commit_is_refused_and_stores_nothing(groups: GroupBed) -> None:
    """Who asks is judged first, for all of it; then each partition."""
    wide = "я" * 2_049
    whole: list[tuple[dict[str, Any], E, tuple[str, ...]]] = [
        ({"consumer_id": "bystander"}, E.UNKNOWN_MEMBER_ID, ("'bystander'", "no member")),
        ({"consumer_id": "", "generation": -1}, E.NON_EMPTY_GROUP, ("1 members",)),
        ({"incarnation": 0}, E.UNKNOWN_MEMBER_ID, ("no member",)),
        ({"incarnation": -(2**63)}, E.UNKNOWN_MEMBER_ID, ("no member",)),
        ({"generation": 0}, E.ILLEGAL_GENERATION, ("generation 0 is not",)),
        ({"generation": -1}, E.ILLEGAL_GENERATION, ("generation -1 is not",)),
        ({"generation": INT32_MAX}, E.ILLEGAL_GENERATION, ("generation 2147483647 is not",)),
        ({"coordinator_epoch": -1}, E.ILLEGAL_GENERATION, ("coordinator epoch -1 is not",)),
        ({"coordinator_epoch": INT32_MAX}, E.ILLEGAL_GENERATION, ("coordinator epoch 2147483647 is not",)),
        ({"number": 0}, E.INVALID_REQUEST, ("number 0", "at least 1")),
        ({"number": -1}, E.INVALID_REQUEST, ("number -1", "at least 1")),
        ({"offsets": (at(groups.topic, 0, 1),) * 2}, E.INVALID_REQUEST, ("offsets", "twice")),
        ({"offsets": (at("", 0, 0),) * 200_001}, E.INVALID_REQUEST, ("offsets", "200001 entries; at most 200000")),
    ]
    each: list[tuple[m.OffsetInfo, E, tuple[str, ...]]] = [
        (at("nowhere", 0, 1), E.UNKNOWN_TOPIC_OR_PARTITION, ("nowhere-0",)),
        (at(groups.topic, PARTITIONS, 1), E.UNKNOWN_TOPIC_OR_PARTITION, (f"{groups.topic}-{PARTITIONS}",)),
        (at(groups.topic, -1, 1), E.UNKNOWN_TOPIC_OR_PARTITION, (f"{groups.topic}--1",)),
        (at(groups.topic, INT32_MAX, 1), E.UNKNOWN_TOPIC_OR_PARTITION, (f"{groups.topic}-2147483647",)),
        (at(groups.topic, 0, -1), E.INVALID_REQUEST, ("offset -1", "negative")),
        (at(groups.topic, 0, -(2**63)), E.INVALID_REQUEST, ("negative",)),
        (at(groups.topic, 0, groups.end() + 1), E.OFFSET_OUT_OF_RANGE, ("beyond the log's end",)),
        (at(groups.topic, 0, INT64_MAX), E.OFFSET_OUT_OF_RANGE, ("offset 9223372036854775807", "log's end")),
        (at(groups.topic, 0, 1, leader_epoch=-2), E.INVALID_REQUEST, ("leader_epoch -2", "below -1")),
        (at(groups.topic, 0, 1, metadata="x" * 4_097), E.OFFSET_METADATA_TOO_LARGE, ("4097 bytes; at most 4096",)),
        (at(groups.topic, 0, 1, metadata=wide), E.OFFSET_METADATA_TOO_LARGE, ("4098 bytes; at most 4096",)),
        (at(groups.topic, 0, 1, metadata="x" * 2_000_000), E.OFFSET_METADATA_TOO_LARGE, ("at most 4096",)),
    ]

    async with groups.unharmed() as channel:
        member = await live_group(groups, channel)
        for changes, code, words in whole:
            said(await commit(channel, member.commit(at(groups.topic, 0, 1), **changes)), code, *words)
        good = at(groups.topic, 1, 0)
        for offset, code, words in each:
            answer = await commit(channel, member.commit(offset, good))
            assert answer.error_code is E.NONE
            bad, fine = answer.results
            said(bad, code, *words)
            assert fine.error_code is E.NONE
        assert [(o.partition, o.offset) for o in (await groups.described(channel)).offsets] == [(1, 0)]
        await goes_on(groups, channel, member)
        await member.leave()
        for offset, code, words in each:
            request = member.commit(offset, consumer_id="", generation=-1, coordinator_epoch=-1, number=0)
            (bad,) = (await commit(channel, request)).results
            said(bad, code, *words)
        await groups.forget(channel)


async def test_a_partition_of_another_member_cannot_be_committed(groups: GroupBed) -> None:
    async with groups.unharmed() as channel:
        a, b = groups.member(channel, "a"), groups.member(channel, "b")
        for each in (a, b):
            assert (await each.register()).error_code is E.NONE
        mine = await a.shares(PARTITIONS // 2)
        theirs = await b.started()
        part = theirs.ownership_info[0].assigned_parts[0].partition
        (result,) = (await commit(channel, a.commit(at(groups.topic, part, 1)))).results
        said(result, E.ILLEGAL_GENERATION, f"{groups.topic}-{part}", "not owned by 'a'")
        await a.pong(offset_info=(at(groups.topic, part, 1),))
        own = mine.ownership_info[0].assigned_parts[0].partition
        (result,) = (await commit(channel, a.commit(at(groups.topic, own, 0)))).results
        assert result.error_code is E.NONE
        assert [o.partition for o in (await groups.described(channel)).offsets] == [own]
        await a.leave()
        await b.leave()
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
