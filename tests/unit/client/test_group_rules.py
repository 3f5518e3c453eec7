"""How a consumer begins (A12), what it tells of itself, and how much a rebalance or a crash repeats (COORD-2)."""

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from helpers.brokers import no_tasks_left
from helpers.requirements import requirement
from tidelog.client.consumer import Consumer
from tidelog.client.member_events import Lose, Revoke
from tidelog.client.records import ConsumerRecord
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import Address, TopicPartition
from tidelog.testing.intercept import Call
from tidelog.wire import messages as m
from unit.client.group_bed import SESSION_S, every, offsets_of
from unit.client.group_bed import bed as new_bed

T = [TopicPartition("t", p) for p in range(4)]

LOOK = """
import importlib, pkgutil, sys
import tidelog.agent, tidelog.client
ZOOKEEPER = ("kazoo", "tidelog.runtime.zk", "tidelog.runtime.meta_session")
for package in (tidelog.client, tidelog.agent):
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
tidelog.client.connections.real_ports()
print(sorted(name for name in sys.modules if name.startswith(ZOOKEEPER)))
"""


@requirement("A coordinator on the brokers rebalances consumer groups")
@requirement("Consumers hold no ZooKeeper client")
def test_consumers_hold_no_zookeeper_client() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", LOOK], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


# -- the beginning -------------------------------------------------------------------------------------------------------------


@requirement("A registration is answered without partitions")
@requirement("Any broker names the coordinator of a group")
@requirement("A consumer learns brokers and coordinator from metadata")
@requirement("A consumer registers with its coordinator and awaits the answer")
@requirement("Coordinator requests arrive on the stream of the consumer")
async def test_it_asks_who_coordinates_registers_there_and_reads_what_that_one_says() -> None:
    bed = await new_bed()
    await bed.cluster.coordinate(2)
    async with bed.consumer("a") as a:
        await bed.until(lambda: len(a.assignment) == 4, a)
        asked = [call for call in bed.cluster.of("ClusterMetadata") if call.request.group_id]
        assert [call.request.group_id for call in asked] == ["g"]
        (session,) = bed.cluster.streams
        assert session.address == bed.cluster.addresses[2]
        said = [next(filter(None, (e.registered, e.start))) for e in session.received if not e.ping]
        assert [type(each) for each in said] == [m.RegisterConsumerResponse, m.StartFetcherRequest]
        session.cancel()
        await bed.until(lambda: len(bed.cluster.streams) == 2, a)
        assert len([c for c in bed.cluster.of("ClusterMetadata") if c.request.group_id]) == 2, "from the first step"


@requirement("Coordinator requests arrive on the stream of the consumer")
@requirement("Every coordinator error has a code and a consumer reaction")
async def test_a_refused_registration_makes_it_search_again() -> None:
    bed = await new_bed()
    await bed.cluster.coordinate(2)
    asked: list[int] = []

    async def outdated(call: Call) -> Any:
        if call.method != "ClusterMetadata" or not call.request.group_id:
            return NotImplemented
        answer = await call.serve()
        asked.append(answer.coordinator_id)
        return replace(answer, coordinator_id=3) if len(asked) == 1 else answer

    bed.cluster.faults.append(outdated)
    async with bed.consumer("a") as a:
        await bed.until(lambda: len(bed.cluster.streams) == 2, a)
        first, second = bed.cluster.streams
        assert [each.registered.error_code for each in first.received] == [ErrorCode.NOT_COORDINATOR]
        assert [each.address for each in (first, second)] == [bed.cluster.addresses[3], bed.cluster.addresses[2]]
        assert asked == [2, 2]


@requirement("Version, correlation and client ids need no request header")
@requirement("The session timeout is a setting of each consumer")
@requirement("A registration carries all settings of its consumer")
@requirement("RegisterConsumerRequest says everything about a consumer")
async def test_everything_that_it_was_given_is_in_its_registration() -> None:
    options: dict[str, Any] = {
        "topics": ["t", "u"],
        "session_timeout_ms": 4321,
        "auto_commit": False,
        "auto_offset_reset": "latest",
        "max_processing_ms": 9876,
        "assignor": "roundrobin",
        "static": True,
        "client_id": "me",
    }

    bed = await new_bed(group_assignor="roundrobin")
    ports = replace(bed.cluster.ports_of("a"), watch_port=9094)
    async with bed.consumer("a", ports=ports, **options) as a:
        await bed.until(lambda: len(a.assignment) == 4, a)
        register = bed.cluster.streams[0].sent[0].register
        assert register is not None and register.incarnation > 0
        assert register == m.RegisterConsumerRequest(
            group_id="g",
            consumer_id="a",
            topic_count='{"pattern": "static", "subscription": {"t": 1, "u": 1}}',
            auto_commit=False,
            auto_offset_reset="largest",
            session_timeout_ms=4321,
            incarnation=register.incarnation,
            static_member=True,
            max_processing_ms=9876,
            assignor="roundrobin",
            rejoin=False,
            client_id="me",
            admission=0,
            watch_port=9094,
        )
        async with bed.consumer("b", assignor="roundrobin") as b:
            await bed.until(lambda: len(b.assignment) == 2, a, b)
            register = bed.cluster.streams[1].sent[0].register
            assert (register.auto_commit, register.auto_offset_reset) == (True, "smallest")


@requirement("The session timeout is a setting of each consumer")
async def test_each_consumer_has_its_own_session_timeout() -> None:
    bed = await new_bed()
    unset = Consumer(bed.cluster.bootstrap, ports=bed.cluster.ports, group="g", topics=["t"])
    async with unset as a, bed.consumer("b", session_timeout_ms=4321) as b:
        await bed.until(lambda: len(a.assignment) == len(b.assignment) == 2, a, b)
        registered = [each.sent[0].register for each in bed.cluster.streams]
        assert sorted(each.session_timeout_ms for each in registered) == [4321, 10_000]


@requirement("A consumer tries its brokers in turn until one answers")
@requirement("A consumer is given a list of bootstrap brokers")
async def test_a_list_of_bootstrap_brokers_is_asked_until_one_answers() -> None:
    bed = await new_bed()
    servers = [Address("nobody", 1), bed.cluster.addresses[2], bed.cluster.addresses[3]]
    async with Consumer(servers, ports=bed.cluster.ports, group="g", topics=["t"], session_timeout_ms=3000) as a:
        await bed.until(lambda: len(a.assignment) == 4, a)


# -- what is read twice --------------------------------------------------------------------------------------------------------


@requirement("Committed offsets never move back and leave no gap")
async def test_coord_02_clean_stops_repeat_nothing_however_often_the_group_changes() -> None:
    bed = await new_bed()
    await bed.fill(count=50)
    records: list[ConsumerRecord] = []
    others = 0
    async with bed.consumer("a") as a:
        for round_ in range(4):
            await bed.fill(count=10)
            async with bed.consumer(f"b{round_}") as b:
                records += await bed.until(lambda b=b: len(b.assignment) == 2, a, b)  # type: ignore[misc]
                await bed.fill(count=10)
                more = await b.poll(timeout_s=1)
                while more:  # the last poll says that all of it is processed; the leave tells that, before any ping
                    records += more
                    more = await b.poll(timeout_s=0.01)
                others += b.stats.handed_out
            records += await bed.until(lambda: len(a.assignment) == 4, a)
        records += await bed.until(lambda: a.stats.handed_out + others >= 520, a)
        records += await a.poll(timeout_s=1)
    assert others > 0
    assert offsets_of(records) == every(130)


@requirement("A coordinator failover rebalances no group and skips no record")
async def test_coord_02_a_crash_repeats_what_was_processed_since_the_last_commit_and_no_more() -> None:
    bed = await new_bed()
    await bed.fill(count=20)
    crashed = bed.consumer("a", auto_commit=False)
    await crashed.start()
    first = await bed.until(lambda: crashed.stats.handed_out == 80, crashed)
    await crashed.commit({T[0]: 20, T[1]: 13})
    bed.cluster.cut("a")  # nothing that it says arrives any more: a kill
    async with bed.consumer("b") as b:
        again = await bed.until(lambda: b.stats.handed_out >= 47, b)
        again += await b.poll(timeout_s=1)
    await crashed.stop()
    assert offsets_of(first) == every(20)
    repeated = [(1, o) for o in range(13, 20)] + [(p, o) for p in (2, 3) for o in range(20)]
    assert offsets_of(again) == repeated


@requirement("A topic id separates topics that share a name")
async def test_a_topic_that_is_made_anew_while_it_is_read_is_read_from_its_start_and_old_offsets_are_gone() -> None:
    bed = await new_bed()
    await bed.fill(count=20)
    async with bed.consumer("a") as a:
        await bed.until(lambda: a.stats.handed_out == 80, a)
        await a.commit()
        await bed.cluster.delete("t")
        await bed.create()
        await bed.cluster.until(lambda: bed.cluster.offsets() == dict.fromkeys(T, 0), "offsets begin anew")
        await bed.fill(count=5)
        records = await bed.until(lambda: a.stats.handed_out >= 100, a)
        assert offsets_of(records) == every(5)
        await a.commit()
        assert bed.cluster.offsets() == dict.fromkeys(T, 5)
        assert a.stats.membership.losses == 0, "no position of a topic that is gone has left the log of the next one"


@requirement("A topic id separates topics that share a name")
async def test_a_paused_position_in_an_earlier_topic_is_not_stored() -> None:
    bed = await new_bed()
    await bed.fill(count=20)
    async with bed.consumer("a", auto_commit=False) as a:
        await bed.until(lambda: a.stats.handed_out == 80, a)
        a.pause(T[3])
        await bed.cluster.delete("t")
        await bed.create()
        await bed.fill(count=30)
        with pytest.raises(TidelogError):
            await a.commit({T[3]: 20})
        records = await bed.until(lambda: a.stats.handed_out >= 80 + 120, a)
        assert offsets_of(records) == every(30)
        assert bed.cluster.offsets() == {}


@requirement("Committed offsets never move back and leave no gap")
async def test_what_was_lost_is_committed_no_more_although_on_lost_is_still_to_be_called() -> None:
    """It may be this member's again already, from one that got further: the application cannot know before the callback."""

    bed = await new_bed()
    await bed.fill()
    may_end = asyncio.Event()

    async def lost(_: object) -> None:
        await may_end.wait()

    async with bed.consumer("a", auto_commit=False, on_lost=lost) as a:
        await bed.until(lambda: a.stats.handed_out == 40, a)
        await a.commit({T[3]: 9})
        assert a._group is not None
        a._group._effect(Lose((T[3],), "as when its lease ends"))
        with pytest.raises(TidelogError, match="on_lost"):
            await a.commit({T[3]: 4})
        await a.commit({T[2]: 4})
        may_end.set()
        assert bed.cluster.offsets()[T[3]] == 9


@requirement("Committed offsets never move back and leave no gap")
async def test_a_commit_in_on_revoked_counts_no_more_where_the_partition_has_been_assigned_anew_meanwhile() -> None:
    """The coordinator waited no longer and gave it back at the stored offset: what is handed out from there follows that."""

    bed = await new_bed()
    await bed.fill()
    may_end = asyncio.Event()

    async def revoked(_: object) -> None:
        await may_end.wait()

    async with bed.consumer("a", auto_commit=False, on_revoked=revoked) as a:
        await bed.until(lambda: a.stats.handed_out == 40, a)
        await a.commit({T[3]: 4})
        assert a._group is not None
        a._group._effect(Revoke(7, (T[3],)))
        try:
            with pytest.raises(TidelogError, match="assigned anew") as refused:
                await a.commit({T[3]: 9, T[2]: 4})
            assert refused.value.code is ErrorCode.ILLEGAL_GENERATION
            await a.commit({T[2]: 4})
        finally:
            may_end.set()
        assert bed.cluster.offsets() == {T[2]: 4, T[3]: 4}


async def test_a_commit_in_on_revoked_counts_while_the_partition_is_nobody_elses_yet() -> None:
    bed = await new_bed()
    await bed.fill()
    committed: list[TopicPartition] = []

    async def revoked(given_back: tuple[TopicPartition, ...]) -> None:
        await a.commit(dict.fromkeys(given_back, 3))
        committed.extend(given_back)

    async with bed.consumer("a", auto_commit=False, on_revoked=revoked) as a:
        await bed.until(lambda: a.stats.handed_out == 40, a)
        async with bed.consumer("b", auto_commit=False) as b:
            await bed.until(lambda: len(a.assignment) == len(b.assignment) == 2, a, b)
            assert len(committed) == 2
            assert all(bed.cluster.offsets()[tp] == 3 for tp in committed)


async def test_a_commit_of_what_another_member_owns_is_refused_and_costs_the_membership_nothing() -> None:
    bed = await new_bed()
    await bed.fill()
    async with bed.consumer("a", on_lost=bed.listener("lost")) as a, bed.consumer("b") as b:
        await bed.until(lambda: len(a.assignment) == len(b.assignment) == 2, a, b)
        kept, before = a.assignment, a.group_metadata
        with pytest.raises(TidelogError, match="is not owned by 'a'") as refused:
            await a.commit({b.assignment[0]: 1})
        assert refused.value.code is ErrorCode.ILLEGAL_GENERATION
        await bed.clock.sleep(1.0)
        assert (a.assignment, a.group_metadata, bed.calls) == (kept, before, [])


# -- leaving -------------------------------------------------------------------------------------------------------------------


async def test_an_application_that_polls_again_while_it_is_leaving_joins_within_that_poll() -> None:
    """It may be one that waits for an hour, as iteration does."""

    bed = await new_bed()
    await bed.fill()
    async with bed.consumer("a", max_processing_ms=8000) as a:
        await bed.until(lambda: a.stats.handed_out == 40, a)
        await bed.clock.sleep(7.9)
        bed.cluster.cut("a", down=False)
        await bed.clock.sleep(0.2)
        assert a.stats.state == "leaving"
        bed.cluster.heal()
        began = bed.clock.now()
        assert await a.poll(timeout_s=3600)
        assert bed.clock.now() - began < 3 * SESSION_S
    assert bed.cluster.members() == []


async def test_an_application_that_does_not_poll_after_an_error_leaves_too() -> None:
    """What a poll raised is what it works on."""

    bed = await new_bed()

    def assigned(_: object) -> None:
        raise ZeroDivisionError("of the application")

    async with bed.consumer("a", on_assigned=assigned, max_processing_ms=5000) as a:
        with pytest.raises(ZeroDivisionError):
            await bed.until(lambda: False, a)
        await bed.clock.sleep(5.5)
        assert bed.cluster.members() == []


async def test_who_stops_leaves_its_group_and_ends_although_its_callback_raises() -> None:
    """A commit in `on_revoked` that finds no coordinator does. Pings would go on being answered, and nobody would read."""

    bed = await new_bed()

    async def revoked(_: object) -> None:
        raise TransportError("UNAVAILABLE", "as a commit does")

    async with no_tasks_left():
        a = bed.consumer("a", on_revoked=revoked)
        await a.start()
        await bed.until(lambda: len(a.assignment) == 4, a)
        with pytest.raises(TransportError, match="as a commit does"):
            await a.stop()
        assert bed.cluster.members() == []


async def test_who_stops_ends_although_its_own_tasks_are_gone() -> None:
    """`asyncio.run` cancels everything that is left: what waits for an answer to its leave would wait for ever."""

    bed = await new_bed()
    a = bed.consumer("a")
    await a.start()
    await bed.until(lambda: len(a.assignment) == 4, a)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.wait(others)
    async with asyncio.timeout(10 * SESSION_S):
        await a.stop()
