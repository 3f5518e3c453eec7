"""Members of a group that die, stand still, leave, come in vain or get more topics, on real processes: L01 to L04, L09, L11.

What holds in each of them: every acknowledged record is processed, no committed offset goes back, no partition has two owners
at one time, and whoever did nothing wrong is left alone.
"""

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.aio import eventually
from helpers.cluster import unique_topic
from helpers.groups import (
    COMMIT_INTERVAL_S,
    DRIFT_S,
    POLL_S,
    WITHIN_S,
    WorkingGroup,
    given_for_pauses_s,
    owned_by,
    working_group,
)
from helpers.raw_member import ALL, RawMember
from helpers.requirements import requirement
from tidelog.client.admin import AdminClient
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.client.records import ConsumerRecord
from tidelog.cluster.api import State, broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

SESSION_S = 5.0
LEASE_S = SESSION_S + DRIFT_S
MOVE_S = 1.0
"""From the end of a lease until the partition is worked on again."""
LONG_S = 12.0
"""A lease that a process may not answer for some seconds and keep, on a machine with much else to do."""
LIMIT_S = 150.0
KEPT_S = 2.0
"""How long a refused stream is watched; a broker that is in order ends it some seconds later."""
SLOW_S = 0.05
"""For one record: long enough to stop an agent in the middle of it."""
SLOW: Any = {"takes_s": SLOW_S, "records_per_s": 30}
"""Two such agents can do this."""


async def stop_at_work(group: WorkingGroup, name: str) -> float:
    """SIGSTOP in the middle of a record, which alone is in its hands then. Returns when."""
    process = group.agents[name]
    while True:
        seen = len(group.handled(name))
        await eventually(lambda seen=seen: len(group.handled(name)) > seen, "work")  # type: ignore[misc]
        process.signal(signal.SIGSTOP)
        process.wait_state(State.PAUSED)
        stopped_at = time.monotonic()
        if stopped_at - group.handled(name)[-1].at < SLOW_S:
            return stopped_at
        go_on(group, name)


def go_on(group: WorkingGroup, name: str) -> None:
    group.agents[name].signal(signal.SIGCONT)


def check_moved(
    group: WorkingGroup, lost: set[TopicPartition], name: str, since: float, committed: dict[TopicPartition, int]
) -> None:
    """Since `since` nothing was heard of `name`, which had committed so much by then."""
    begun = group.first_after(since, *(each for each in group.agents if each != name))
    # Its last answer came up to a third of the session before, and its lease counts from then. One rebalance moves all.
    moved_s, given_s = min(begun[tp].at for tp in lost) - since, given_for_pauses_s(group.cluster, since)
    assert SESSION_S / 2 < moved_s < LEASE_S + given_s + MOVE_S, f"moved in {moved_s:.2f} s; {given_s:.2f} s given"
    for tp in lost:
        before = [each for each in group.handled(name) if each.tp == tp and each.at <= since]
        assert committed[tp] <= begun[tp].offset <= before[-1].offset + 1
        repeated = [each for each in before if each.offset >= begun[tp].offset]
        assert all(each.at > since - COMMIT_INTERVAL_S - MOVE_S for each in repeated), "it was committed long ago"
    assert set(group.duplicates()) <= lost


def check_owners(group: WorkingGroup, since: float, lost: set[TopicPartition], name: str, other: str) -> None:
    """`name` lost these to `other`, and may have got partitions again later: each time one after the other."""
    for tp, owners in group.owners(since).items():
        had = owners[1:] if tp in lost and owners[0] == name else owners
        assert had in ([other], [other, name]), f"{tp}: {owners}"


@requirement("The partitions of a killed consumer move within a time budget")
@requirement("A crash loop of one consumer does not stop the other members")
@pytest.mark.smoke
async def test_what_a_killed_consumer_had_moves_within_its_lease_and_nobody_else_is_touched(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    async with working_group(shared_cluster, tmp_path, "a", "b", "c", session_s=SESSION_S) as group:
        await group.all_commit()
        before = await group.described()
        lost = owned_by(before, "c")
        committed, began_at = await group.offsets(), time.monotonic()
        group.agents["c"].kill()
        killed_at = time.monotonic()
        after = await group.settled("a", "b")
        assert after.generation == before.generation + 1, "one rebalance"
        assert all(owned_by(before, name) < owned_by(after, name) for name in "ab")
        await group.all_work(killed_at, "a", "b")
    check_moved(group, lost, "c", killed_at, committed)
    for tp, owners in group.owners(began_at).items():
        assert owners in (["a"], ["b"]) or (tp in lost and owners in (["c", "a"], ["c", "b"]))


@requirement("A paused consumer never works beside the next owner")
async def test_a_consumer_that_stands_still_for_less_than_its_session_keeps_what_it_has(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    async with working_group(shared_cluster, tmp_path, "a", "b", session_s=LONG_S, **SLOW) as group:
        before, began_at = await group.described(), time.monotonic()
        await stop_at_work(group, "a")
        await asyncio.sleep(LONG_S * 0.4)
        assert group.agents["a"].state() is State.PAUSED
        go_on(group, "a")
        await asyncio.sleep(LONG_S)  # by now it would have been given up, were it so
        await group.all_work(time.monotonic())
        after = await group.described()
    assert (after.generation, after.members) == (before.generation, before.members)
    assert all(len(owners) == 1 for owners in group.owners(began_at).values()), group.owners(began_at)
    assert not group.duplicates()


@requirement("A paused consumer never works beside the next owner")
@requirement("A crash loop of one consumer does not stop the other members")
async def test_coord_1_a_consumer_that_slept_beyond_its_session_never_works_beside_the_new_owner(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    async with working_group(shared_cluster, tmp_path, "a", "b", session_s=SESSION_S, **SLOW) as group:
        await group.all_commit()
        before, began_at = await group.described(), time.monotonic()
        lost, committed = owned_by(before, "a"), await group.offsets()
        stopped_at = await stop_at_work(group, "a")
        await group.settled("b")
        await group.all_work(stopped_at, "b")
        go_on(group, "a")
        after = await group.settled("a", "b")
        came_back_at = time.monotonic()
        await group.all_work(came_back_at)
        assert owned_by(after, "a"), "it registered again"
    check_moved(group, lost, "a", stopped_at, committed)
    check_owners(group, began_at, lost, "a", "b")


@requirement("Leaving a group is bounded by the session timeout")
@requirement("A consumer that leaves has stored its last offsets")
async def test_an_agent_that_ends_in_order_leaves_nothing_to_repeat_and_nobody_waits(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    async with working_group(shared_cluster, tmp_path, "a", "b", session_s=LONG_S) as group:
        before = await group.described()
        lost = owned_by(before, "a")
        ended_at = time.monotonic()
        group.agents["a"].terminate()
        await group.do(group.agents["a"].wait_gone, LONG_S)
        after = await group.settled("b")
        await group.all_work(ended_at, "b")
        assert after.generation == before.generation + 1
    last = max(each.at for each in group.handled("a"))
    begun = group.first_after(ended_at, "b")
    # Two thirds of its lease were left at least.
    assert all(last < begun[tp].at < last + LONG_S / 2 for tp in lost)
    assert not group.duplicates()


async def filled_topic(servers: str, records: int) -> TopicPartition:
    """One partition."""
    topic = unique_topic("filled")
    async with AdminClient(servers) as admin:
        await admin.create_topic(topic, 1, 3)
        await admin.wait_until_led(topic, in_sync=True)
    async with Producer(servers, acks=-1) as producer:
        await asyncio.gather(*[await producer.send(topic, b"%d" % each, partition=0) for each in range(records)])
    return TopicPartition(topic, 0)


def group_of(tp: TopicPartition) -> str:
    return f"group-of-{tp.topic}"


def member(servers: str, tp: TopicPartition, **options: Any) -> Consumer:
    return Consumer(servers, group=group_of(tp), topics=[tp.topic], **options)


async def eventually_coordinated(admin: AdminClient, group_id: str) -> None:
    async with asyncio.timeout(LIMIT_S / 2):
        while True:
            try:
                await admin.groups.describe([group_id])
            except TidelogError:
                await asyncio.sleep(POLL_S)
            else:
                return


async def read(consumer: Consumer, records: int) -> list[ConsumerRecord]:
    """So many, and only those."""
    found: list[ConsumerRecord] = []
    async with asyncio.timeout(LIMIT_S / 2):
        while len(found) < records:
            found += await consumer.poll(max_records=records - len(found))
    return found


@requirement("A consumer that leaves has stored its last offsets")
@pytest.mark.parametrize("auto_commit", [True, False])
async def test_who_leaves_has_stored_what_it_processed_if_it_commits_by_itself_and_nothing_otherwise(
    shared_servers: str, auto_commit: bool
) -> None:
    tp = await filled_topic(shared_servers, 20)
    async with member(shared_servers, tp, auto_commit=auto_commit) as first:
        await read(first, 8)
        await read(first, 4)  # still in its hands when it leaves
    kept = 8 if auto_commit else 0
    async with AdminClient(shared_servers) as admin:
        stored = await admin.groups.committed(group_of(tp))
        assert {each: info.offset for each, info in stored.items()} == ({tp: kept} if auto_commit else {})
    async with member(shared_servers, tp, auto_commit=auto_commit) as second:
        assert [each.offset for each in await read(second, 20 - kept)] == [*range(kept, 20)]


@requirement("A fetch out of range restarts at the reset policy")
async def test_a_member_that_stopped_by_itself_and_asks_for_it_gets_a_rebalance(
    shared_cluster: LocalCluster, shared_servers: str
) -> None:
    """The coordinator's half."""

    tp = await filled_topic(shared_servers, 20)
    async with AdminClient(shared_servers) as admin:
        await eventually_coordinated(admin, group_of(tp))
        address = await admin.groups.coordinator(group_of(tp))
        raw = RawMember(group_of(tp), tp.topic, "a", session_ms=10_000, answers=ALL)
        await raw.connect(address)
        await raw.until("a start", lambda: raw.starts)
        assert (await raw.commit(0, 5)).results[0].error_code is ErrorCode.NONE
        before = await admin.groups.describe_one(group_of(tp))
        await raw.close()
        await raw.connect(address, rejoin=True)
        await raw.until("another start", lambda: len(raw.starts) == 2)
        (again,) = raw.starts[1].ownership_info
        assert raw.starts[1].generation == before.generation + 1
        assert [(each.partition, each.offset) for each in again.assigned_parts] == [(0, 5)]
        await raw.close()


async def send_values(servers: str, tp: TopicPartition, values: range) -> None:
    async with Producer(servers, acks=-1) as producer:
        await asyncio.gather(*[await producer.send(tp.topic, b"%d" % each, partition=tp.partition) for each in values])


@requirement("An out of range offset makes a consumer force a rebalance")
@requirement("A fetch out of range restarts at the reset policy")
@pytest.mark.parametrize("reset, begins_at", [("earliest", 30), ("latest", 40)])
async def test_a_member_whose_log_has_moved_away_is_given_all_of_it_anew_and_begins_where_its_policy_says(
    shared_servers: str, reset: str, begins_at: int
) -> None:
    topic = unique_topic("moved")
    moved, other = (TopicPartition(topic, p) for p in range(2))
    seen: dict[TopicPartition, list[int]] = {moved: [], other: []}

    async def until(what: str, holds: Callable[[], bool]) -> None:
        """`what` is for the reader of a traceback."""
        async with asyncio.timeout(WITHIN_S):
            while not holds():
                for record in await a.poll(timeout_s=0.2):
                    seen[TopicPartition(record.topic, record.partition)].append(record.offset)

    async with AdminClient(shared_servers) as admin:
        await admin.create_topic(topic, 2, 3)
        await admin.wait_until_led(topic, in_sync=True)
        # One batch at a time, so that it has not fetched ahead what is to be deleted.
        async with member(shared_servers, moved, auto_offset_reset=reset, partition_bytes=1) as a:
            await until("both partitions", lambda: set(a.assignment) == {moved, other})
            for tp in (moved, other):
                await a.position(tp)
                await send_values(shared_servers, tp, range(10))
            await until("the first ten", lambda: [len(offsets) for offsets in seen.values()] == [10, 10])
            await a.commit()
            generation = a.stats.generation
            a.pause(moved)
            await send_values(shared_servers, moved, range(10, 11))  # answers the fetch that is on its way
            await send_values(shared_servers, moved, range(11, 40))
            await admin.logs.delete_records({moved: 30})
            await send_values(shared_servers, other, range(10, 20))
            await until("what another partition has", lambda: len(seen[other]) == 20)
            assert (a.stats.generation, a.stats.membership.losses) == (generation, 0), "nothing is lost so far"
            await a.commit()
            a.resume(moved)
            await until("a new generation", lambda: a.stats.generation > generation and len(a.assignment) == 2)
            assert (a.stats.generation, a.stats.membership.losses) == (generation + 1, 1), "one rebalance"
            await a.position(moved)
            for tp in (moved, other):
                await send_values(shared_servers, tp, range(40, 45))
            await until("the last", lambda: seen[moved][-1] == 44 and seen[other][-1] == 24)
    ahead = [10] if 10 in seen[moved] else []  # it was fetched before the log moved
    assert seen[moved] == [*range(10), *ahead, *range(begins_at, 45)]
    assert seen[other] == [*range(25)], "what was committed before does not come again"


@requirement("A matching new topic or new partitions cost one rebalance each")
async def test_a_topic_that_matches_and_new_partitions_cost_one_rebalance_each(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    prefix = unique_topic("wild")
    async with working_group(shared_cluster, tmp_path, session_s=SESSION_S) as group:
        pattern = f"{prefix}-.*|{group.load.topic}"
        group.start("a", "b", pattern=pattern)
        before = await group.settled("a", "b")
        topic = f"{prefix}-1"

        async def grown(partitions: int, generation: int) -> None:
            group.partitions[topic] = partitions
            found = await group.settled("a", "b")
            async with Producer(group.servers, acks=-1) as producer:
                for partition in range(partitions):
                    await (await producer.send(topic, b"x", partition=partition))
            await group.all_work(0.0)
            assert (await group.described()).generation == found.generation == generation

        await group.admin.create_topic(f"other-{prefix}", 2, 3)
        await group.admin.create_topic(topic, 2, 3)
        await grown(2, before.generation + 1)
        await group.admin.create_partitions(topic, 4)
        await grown(4, before.generation + 2)
    assert not group.duplicates()


@requirement("A duplicate consumer id or too short a session gets an error code")
async def test_who_registers_with_a_taken_id_or_too_short_a_session_is_told_and_the_group_does_not_notice(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    async with working_group(shared_cluster, tmp_path, "a", "b", session_s=SESSION_S) as group:
        before = await group.described()
        (taken, _) = (each.consumer_id for each in before.members)
        address = shared_cluster.endpoints()[broker_name(before.coordinator_id)]
        twin = RawMember(group.group_id, group.load.topic, taken, session_ms=3_000, answers=ALL)
        hasty = RawMember(group.group_id, group.load.topic, "c", session_ms=10, answers=ALL)
        refusals = [(twin, ErrorCode.DUPLICATE_CONSUMER_ID), (hasty, ErrorCode.INVALID_SESSION_TIMEOUT)]
        for raw, code in refusals:
            await raw.connect(address)
            await raw.until("an answer", lambda raw=raw: raw.registered)  # type: ignore[misc]
            assert [each.error_code for each in raw.registered] == [code]
        await asyncio.sleep(KEPT_S)
        for raw, _ in refusals:
            assert raw.ended_at is None and len(raw.heard) == 1, "the coordinator keeps the stream"
            await raw.close()
        group.start("impatient", session_timeout_ms="10")  # a consumer closes its stream, and an agent ends
        await group.do(group.agents["impatient"].wait_gone, WITHIN_S)
        assert "session_timeout_ms 10 " in group.agents["impatient"].log_file.read_text()
        after = await group.described()
        assert (after.generation, after.members) == (before.generation, before.members)
    assert not group.handled("impatient") and not group.duplicates()


@requirement("A duplicate consumer id or too short a session gets an error code")
async def test_a_consumer_raises_what_it_was_refused_for(shared_servers: str) -> None:
    tp = await filled_topic(shared_servers, 1)
    one, other = (member(shared_servers, tp, consumer_id="a") for _ in range(2))
    async with one as first:
        await read(first, 1)
        async with other as second:
            with pytest.raises(TidelogError) as refused:
                await read(second, 1)
        assert refused.value.code is ErrorCode.DUPLICATE_CONSUMER_ID
        assert first.assignment == [tp]
