"""Members of a group that die, stand still, leave or are refused, on real processes.

In each test every acknowledged record is processed, no committed offset goes back, no partition has two owners at one time, and
a member that nothing has happened to keeps what it has.
"""

import asyncio
import signal
import time
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
from tidelog.client.admin import Admin
from tidelog.client.producer import Producer
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


@requirement("The death of a member starts a rebalance of its group")
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
    async with Admin(servers) as admin:
        await admin.create_topic(topic, 1, 3)
        await admin.wait_until_led(topic, in_sync=True)
    async with Producer(servers, acks=-1) as producer:
        await asyncio.gather(*[await producer.send(topic, b"%d" % each, partition=0) for each in range(records)])
    return TopicPartition(topic, 0)


def group_of(tp: TopicPartition) -> str:
    return f"group-of-{tp.topic}"


async def eventually_coordinated(admin: Admin, group_id: str) -> None:
    async with asyncio.timeout(LIMIT_S / 2):
        while True:
            try:
                await admin.groups.describe([group_id])
            except TidelogError:
                await asyncio.sleep(POLL_S)
            else:
                return


@requirement("A fetch out of range restarts at the reset policy")
async def test_a_member_that_stopped_by_itself_and_asks_for_it_gets_a_rebalance(
    shared_cluster: LocalCluster, shared_servers: str
) -> None:
    """The coordinator's half."""

    tp = await filled_topic(shared_servers, 20)
    async with Admin(shared_servers) as admin:
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
