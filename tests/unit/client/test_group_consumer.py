"""Members of a group against brokers in memory whose coordinator is the real state machine."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from helpers.brokers import no_tasks_left
from helpers.requirements import requirement
from tidelog.client.consumer import Consumer
from tidelog.client.errors import ClusterUnreachable
from tidelog.client.records import Record, encode_batch
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.testing.intercept import Call
from tidelog.wire import messages as m
from unit.client.group_bed import SESSION_S, T, every, offsets_of
from unit.client.group_bed import bed as new_bed

# -- start, stop, leave --------------------------------------------------------------------------------------------------------


@requirement("A member fetches what it owns and may commit its offsets")
@requirement("A member that is stopped states how far it has processed")
async def test_two_members_share_the_partitions_and_nothing_is_read_twice() -> None:
    bed = await new_bed()
    await bed.fill()
    async with no_tasks_left(), bed.consumer("a") as a, bed.consumer("b") as b:
        records = await bed.until(lambda: len(a.assignment) == len(b.assignment) == 2, a, b)
        await bed.fill()
        records += await bed.until(lambda: a.stats.handed_out + b.stats.handed_out >= 80, a, b)
        assert offsets_of(records) == every(20)
        assert sorted([*a.assignment, *b.assignment]) == T


@requirement("A member that is stopped states how far it has processed")
async def test_a_stop_takes_only_what_moves_and_states_what_was_processed() -> None:
    bed = await new_bed()
    await bed.fill()
    async with bed.consumer("a", on_revoked=bed.listener("revoked")) as a:
        assert len(await bed.until(lambda: a.stats.handed_out == 40, a)) == 40
        async with bed.consumer("b", on_assigned=bed.listener("assigned")) as b:
            assert await bed.until(lambda: len(b.assignment) == 2, a, b) == []
            assert bed.calls == [("revoked", [2, 3]), ("assigned", [2, 3])]
            assert {tp: bed.cluster.offsets()[tp] for tp in b.assignment} == dict.fromkeys(b.assignment, 10)
            assert [await b.position(tp) for tp in b.assignment] == [10, 10]
            assert sorted([*a.assignment, *b.assignment]) == T


@requirement("Records that wait for a lost partition are dropped")
async def test_what_waits_for_the_application_is_dropped_with_its_partition() -> None:
    bed = await new_bed()
    await bed.fill()
    async with bed.consumer("a") as a:
        first = await a.poll(max_records=1, timeout_s=5)
        await bed.clock.sleep(0.5)  # all 40 are in its buffer
        async with bed.consumer("b") as b:
            await bed.clock.sleep(0.5)  # the Stop has come
            mine = await a.poll(timeout_s=1)
            assert {r.partition for r in mine} == {0, 1}
            others = await bed.until(lambda: b.stats.handed_out == 20, b)
            assert offsets_of([*first, *mine, *others]) == every(10)


async def test_callbacks_run_when_the_hands_are_empty_and_nothing_is_handed_out_meanwhile() -> None:
    """So that one may commit: what it stores is what the application has processed."""

    bed = await new_bed(offset_commit_interval_ms=1_000_000)
    await bed.fill()
    committed: list[dict[TopicPartition, int]] = []

    async def revoked(tps: list[TopicPartition]) -> None:
        await a.commit()
        committed.append(bed.cluster.offsets())
        await bed.fill()
        await bed.clock.sleep(1.0)

    async with bed.consumer("a", auto_commit=False, on_revoked=revoked) as a:
        assert len(await bed.until(lambda: a.stats.handed_out == 40, a)) == 40
        async with bed.consumer("b", auto_commit=False) as b:
            await bed.clock.sleep(2.0)
            assert committed == [], "40 records are in the application's hands"
            assert await a.poll(timeout_s=0.9) == []
            assert committed == [dict.fromkeys(T, 10)]
            records = await bed.until(lambda: a.stats.handed_out + b.stats.handed_out == 80, a, b)
            assert offsets_of(records) == [(p, o) for p in range(4) for o in range(10, 20)]


async def test_what_a_callback_raises_is_raised_by_the_next_poll_and_the_group_goes_on() -> None:
    bed = await new_bed()

    def assigned(tps: list[TopicPartition]) -> None:
        raise ZeroDivisionError("of the application")

    async with bed.consumer("a", on_assigned=assigned) as a:
        with pytest.raises(ZeroDivisionError):
            await bed.until(lambda: False, a)
        await bed.fill()
        await bed.until(lambda: a.stats.handed_out == 40, a)


@requirement("A consumer that leaves has stored its last offsets")
@requirement("Leaving a group is bounded by the session timeout")
async def test_who_leaves_has_its_last_offsets_stored_and_the_next_begins_there() -> None:
    bed = await new_bed(offset_commit_interval_ms=1_000_000)
    await bed.fill()
    async with bed.consumer("a") as a:
        await bed.until(lambda: a.stats.handed_out == 40, a)
        await a.poll(timeout_s=0.01)  # processed
    assert bed.cluster.offsets() == dict.fromkeys(T, 10)
    assert bed.cluster.members() == []
    await bed.fill()
    began = bed.clock.now()
    async with bed.consumer("b") as b:
        assert offsets_of(await bed.until(lambda: b.stats.handed_out == 40, b)) == [
            (p, o) for p in range(4) for o in range(10, 20)
        ]
        assert bed.clock.now() - began < 1.0, "nobody's session timeout was waited for"


@requirement("A consumer that leaves has stored its last offsets")
async def test_coord_03_what_the_application_still_has_in_its_hands_is_not_reported_when_it_leaves() -> None:
    bed = await new_bed()
    await bed.fill(0)
    async with bed.consumer("a") as a:
        assert len(await a.poll(timeout_s=5)) == 10
    assert bed.cluster.offsets().get(T[0], 0) == 0


@requirement("A consumer that leaves has stored its last offsets")
async def test_without_auto_commit_a_leaving_consumer_stores_nothing() -> None:
    bed = await new_bed()
    await bed.fill()
    for _ in range(2):
        async with bed.consumer("a", auto_commit=False) as a:
            assert offsets_of(await bed.until(lambda: a.stats.handed_out == 40, a)) == every(10)
            await a.poll(timeout_s=0.01)  # processed
        assert bed.cluster.offsets() == {}


@requirement("Leaving a group is bounded by the session timeout")
async def test_leaving_ends_within_the_session_when_the_coordinator_is_gone() -> None:
    bed = await new_bed()
    await bed.fill()
    a = bed.consumer("a")
    await a.start()
    await bed.until(lambda: a.stats.handed_out == 40, a)
    await bed.cluster.depose()
    began = bed.clock.now()
    await a.stop()
    assert bed.clock.now() - began <= SESSION_S + 0.01


# -- offsets -------------------------------------------------------------------------------------------------------------------


@requirement("A member fetches what it owns and may commit its offsets")
async def test_coord_03_pings_report_what_the_poll_before_gave_and_never_the_current_one() -> None:
    bed = await new_bed()
    await bed.fill(0)
    async with bed.consumer("a") as a:
        assert len(await a.poll(timeout_s=5)) == 10
        await bed.clock.sleep(2 * SESSION_S)
        assert bed.cluster.offsets().get(T[0], 0) == 0, "ten records are still being processed"
        await bed.fill(0)
        assert len(await a.poll(timeout_s=5)) == 10
        await bed.clock.sleep(SESSION_S)
        assert bed.cluster.offsets()[T[0]] == 10
        assert len(await a.poll(timeout_s=0.1)) == 0
        await bed.clock.sleep(SESSION_S)
        assert bed.cluster.offsets()[T[0]] == 20


async def test_the_end_that_a_member_began_at_is_its_position_for_whoever_takes_over() -> None:
    """Else the next one would begin at the end as it is then, and nobody would read what came in between."""

    bed = await new_bed()
    await bed.fill()
    async with bed.consumer("a", auto_offset_reset="latest") as a:
        await bed.until(lambda: len(a.assignment) == 4, a)
        assert await a.poll(timeout_s=1) == []
    await bed.fill()
    async with bed.consumer("b", auto_offset_reset="latest") as b:
        records = await bed.until(lambda: b.stats.handed_out == 40, b)
        assert offsets_of(records) == [(p, o) for p in range(4) for o in range(10, 20)]


async def test_coord_18_an_offset_of_a_log_that_was_cut_since_goes_back_to_where_the_logs_part() -> None:
    bed = await new_bed(replicas=1, log_flush_interval_ms=1_000)
    await bed.fill(0)
    async with bed.consumer("a", auto_offset_reset="latest") as a:
        await bed.until(lambda: len(a.assignment) == 4, a)
        a.seek(T[0], 0)
        await bed.until(lambda: a.stats.handed_out == 10, a)
        await bed.clock.sleep(3.0)  # they are on the disk
        await bed.fill(0)
        await bed.until(lambda: a.stats.handed_out == 20, a)
        await a.commit()
    await bed.cluster.lose_power(1)
    assert bed.cluster.end("t") == 10
    await bed.fill(0, count=30)  # other records, at the offsets that were committed
    async with bed.consumer("b", auto_offset_reset="latest") as b:
        records = await bed.until(lambda: b.stats.handed_out == 30, b)
        assert offsets_of(records) == [(0, o) for o in range(10, 40)]


@requirement("Committed offsets of a group are stored in ZooKeeper")
@requirement("A reported offset names topic, partition and offset")
@requirement("A member fetches what it owns and may commit its offsets")
async def test_open_01_commit_stores_what_was_handed_out_or_what_it_is_told() -> None:
    bed = await new_bed(offset_commit_interval_ms=1_000_000)
    await bed.fill(0)
    async with bed.consumer("a", auto_commit=False) as a:
        assert len(await a.poll(timeout_s=5)) == 10
        await a.commit({T[0]: (4, "half way")})
        assert (await a.committed([T[0], T[1]]))[T[0]] == (4, -1, "half way")
        await a.commit()
        stored = await a.committed([T[0]])
        assert stored == {T[0]: (10, 0, "")}
    assert bed.cluster.offsets()[T[0]] == 10


async def test_coord_12_a_commit_is_not_repeated_once_its_partition_has_been_another_members() -> None:
    """It is a member's again, which has not processed what the other one has: the offset would go back."""

    bed = await new_bed()
    await bed.fill()

    async def unheard(call: Call) -> Any:
        if call.method == "CommitOffsets" and call.request.consumer_id == "a":
            return m.CommitOffsetsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return NotImplemented

    async with bed.consumer("a", auto_commit=False) as a:
        await bed.until(lambda: a.stats.handed_out == 40, a)
        bed.cluster.faults.append(unheard)
        late = asyncio.create_task(a.commit({T[3]: 4}))
        async with bed.consumer("b", auto_commit=False) as b:
            await bed.until(lambda: T[3] in b.assignment and b.stats.handed_out == 20, a, b)
            await b.commit()
        await bed.until(lambda: T[3] in a.assignment, a)
        assert not late.done()
        bed.cluster.faults.remove(unheard)
        with pytest.raises(TidelogError):
            await late
        assert bed.cluster.offsets()[T[3]] == 10


async def test_coord_12_a_commit_is_repeated_for_as_long_as_its_caller_says_and_no_longer() -> None:
    """Its coordinator stands still: after a second nobody knows; one with patience is there when another one acts."""

    bed = await new_bed()
    await bed.fill()

    async def silent(call: Call) -> Any:
        if call.method != "CommitOffsets":
            return NotImplemented
        await bed.clock.sleep(1000.0)

    async with bed.consumer("a", auto_commit=False) as a:
        await bed.until(lambda: a.stats.handed_out == 40, a)
        bed.cluster.faults.append(silent)
        began = bed.clock.now()
        with pytest.raises(TransportError):
            await a.commit({T[3]: 4}, timeout_s=1.0)
        assert bed.clock.now() - began == pytest.approx(1.0)
        patient = asyncio.create_task(a.commit({T[3]: 7}, timeout_s=30.0))
        await bed.clock.sleep(12.0)
        assert not patient.done()
        bed.cluster.faults.remove(silent)
        await patient
        assert bed.cluster.offsets()[T[3]] == 7


async def test_iteration_hands_out_one_record_at_a_time() -> None:
    """What is left of a batch can be taken away while one record is processed, and only that one is waited for."""

    bed = await new_bed()
    await bed.fill(2)
    async with bed.consumer("a") as a:
        seen = []
        async for record in a:
            seen.append(record.offset)
            if len(seen) == 4:
                break
        await a.commit({T[2]: 3})
        assert seen == [0, 1, 2, 3]
    assert bed.cluster.offsets()[T[2]] == 3


async def test_subscribed_topics_that_are_missing_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    bed = await new_bed()
    with pytest.raises(TypeError, match="name topics in a list"):
        bed.consumer("a", topics="t")
    async with bed.consumer("a", topics=["t", "misspelt"], metadata_max_age_ms=1000) as a:
        await bed.until(lambda: len(a.assignment) == 4, a)
        await bed.clock.sleep(10)
        assert caplog.text.count("subscribed topics do not exist: misspelt") == 1
        await bed.cluster.create("misspelt")
        await bed.clock.sleep(10)
        await bed.cluster.delete("misspelt")
        await bed.clock.sleep(10)
        assert caplog.text.count("subscribed topics do not exist: misspelt") == 2


async def test_a_record_of_a_loop_left_comes_again_to_the_next() -> None:
    bed = await new_bed()
    await bed.fill(2)
    async with bed.consumer("a") as a:
        seen = []
        for _ in range(2):
            async for record in a:
                seen.append(record.offset)
                if len(seen) % 3 == 0:
                    break
        assert seen == [0, 1, 2, 3, 4, 5]
        assert await a.position(T[2]) == 6
    assert bed.cluster.offsets()[T[2]] == 5
    async with bed.consumer("b") as b:
        assert (await anext(aiter(b))).offset == 5


# -- coordinators come and go --------------------------------------------------------------------------------------------------


@requirement("After a failover no partition moves before its owner is back or dead")
@requirement("A consumer registers with its coordinator and awaits the answer")
@requirement("A consumer closes its stream when it gets an error code")
@requirement("Any broker names the coordinator of a group")
@requirement("Coordinator requests arrive on the stream of the consumer")
@requirement("A consumer that lost its coordinator looks for the next one")
@requirement("A killed coordinator broker costs no committed offset")
async def test_open_07_a_new_coordinator_costs_neither_a_rebalance_nor_a_gap() -> None:
    bed = await new_bed()
    async with bed.consumer("a") as a, bed.consumer("b") as b:
        await bed.until(lambda: len(a.assignment) == len(b.assignment) == 2, a, b)
        generation = a.stats.generation
        await bed.cluster.depose()
        await bed.clock.sleep(0.1)
        await bed.fill()
        records = await bed.until(lambda: a.stats.handed_out + b.stats.handed_out >= 40, a, b, limit_s=0.5)
        assert a.stats.state == "reconnecting", "it reads on while its lease lasts"
        await bed.cluster.coordinate(2)
        await bed.until(lambda: (a.stats.coordinator_epoch, b.stats.coordinator_epoch) == (2, 2), a, b, limit_s=2.0)
        await bed.fill()
        records += await bed.until(lambda: a.stats.handed_out + b.stats.handed_out >= 80, a, b)
        assert offsets_of(records) == every(20)
        term = bed.cluster.term()
        assert term is not None and not term.rebalances
        assert (a.stats.generation, a.stats.state) == (generation, "stable")


@requirement("The coordinator has a ZooKeeper session of its own")
async def test_a_coordinator_outlives_the_other_session_of_its_broker() -> None:
    bed = await new_bed()
    async with bed.consumer("a") as a:
        await bed.until(lambda: len(a.assignment) == 4, a)
        term, session = bed.cluster.term(), bed.cluster.node(3).meta
        assert term is not None and session is not None
        bed.cluster.world.zookeeper.expire(session.session_id)
        await bed.clock.sleep(5.0)
        assert bed.cluster.term() is term and term.acting
        assert (a.stats.coordinator_epoch, a.stats.state) == (term.epoch, "stable")


@requirement("A consumer tries its brokers in turn until one answers")
async def test_open_06_without_any_broker_it_says_so_and_goes_on_when_one_returns() -> None:
    bed = await new_bed(min_isr=1)
    async with bed.consumer("a") as a:
        await bed.until(lambda: len(a.assignment) == 4, a)
        bed.cluster.kill(1, 2)
        await bed.cluster.settle()
        bed.cluster.kill(3)
        await bed.until(lambda: a.stats.state == "unreachable", a, limit_s=3 * SESSION_S)
        await bed.until(lambda: a.assignment == [], a)
        await bed.cluster.restart(3)
        await bed.fill(0)
        assert len(await bed.until(lambda: a.stats.handed_out == 10, a)) == 10
        assert a.stats.state == "stable"


async def test_open_06_a_position_that_no_leader_can_tell_is_waited_for() -> None:
    bed = await new_bed(replicas=1)
    await bed.fill(0)
    bed.cluster.kill(2, 3)
    async with bed.consumer("a") as a:
        assert [r.partition for r in await bed.until(lambda: bed.clock.now() > 60, a, limit_s=70)] == [0] * 10
        await bed.cluster.restart(2, 3)
        await bed.fill(1, 2)
        assert len(await bed.until(lambda: a.stats.handed_out == 30, a)) == 20


@requirement("Any broker names the coordinator of a group")
@requirement("A start request refreshes the broker list of a consumer")
async def test_the_brokers_that_a_start_names_are_asked_when_those_of_the_bootstrap_are_gone() -> None:
    async def only_itself(call: Any) -> Any:
        if (call.method, bed.cluster.broker_of(call)) != ("ClusterMetadata", 1):
            return NotImplemented
        answer = await call.serve()
        return replace(answer, brokers_info=tuple(b for b in answer.brokers_info if b.id == 1))

    bed = await new_bed()
    await bed.lead(3)
    await bed.fill(0)
    bed.cluster.faults.append(only_itself)
    await bed.cluster.coordinate(1)
    async with Consumer(
        "broker-1:9092", ports=bed.cluster.ports, group="g", topics=["t"], session_timeout_ms=3000
    ) as a:
        await bed.until(lambda: len(a.assignment) == 4, a)
        epoch = a.stats.coordinator_epoch
        bed.cluster.kill(1, 2)
        await bed.cluster.notice(1, 2)
        await bed.until(lambda: a.stats.coordinator_epoch == epoch + 1 and a.stats.handed_out == 10, a)


@requirement("Any broker names the coordinator of a group")
@requirement("A consumer tries its brokers in turn until one answers")
@requirement("A client with a dead bootstrap broker asks the next one")
async def test_the_next_bootstrap_broker_is_asked_when_one_is_down() -> None:
    bed = await new_bed(min_isr=1)
    bed.cluster.kill(1, 2)  # the first ones of the list
    await bed.cluster.settle()
    await bed.fill(0)
    async with bed.consumer("a") as a:
        assert len(await bed.until(lambda: a.stats.handed_out == 10, a)) == 10


@requirement("A consumer tries its brokers in turn until one answers")
async def test_a_consumer_that_reaches_no_broker_does_not_start() -> None:
    bed = await new_bed()
    bed.cluster.kill(1, 2, 3)
    with pytest.raises(ClusterUnreachable):
        async with bed.consumer("a", request_timeout_ms=3000):
            pass
    asked = [bed.cluster.broker_of(call) for call in bed.cluster.of("ClusterMetadata")]
    assert sorted(asked[:3]) == [1, 2, 3] and asked[3:6] == asked[:3]


# -- the lease -----------------------------------------------------------------------------------------------------------------


@requirement("At most one consumer of a group delivers a partition")
@requirement("A broken stream alone moves no partition")
@pytest.mark.parametrize("way", ["up", "down"])
async def test_coord_15_a_one_way_cut_ends_the_lease_before_another_owns(way: str) -> None:
    bed = await new_bed()
    async with bed.consumer("a", on_lost=bed.listener("lost")) as a, bed.consumer("b") as b:
        await bed.until(lambda: len(a.assignment) == len(b.assignment) == 2, a, b)
        bed.cluster.cut("a", up=way == "up", down=way == "down")
        while a.assignment:
            assert set(bed.cluster.owners().values()) == {"a", "b"}
            await bed.clock.sleep(0.01)
            await b.poll(timeout_s=0.01)
        stopped_at = bed.clock.now()
        await bed.fill()
        assert await a.poll(timeout_s=0.1) == []
        assert bed.calls == [("lost", [0, 1])]
        assert a.stats.last_loss == "its lease has run out"
        await bed.until(lambda: len(b.assignment) == 4, b)
        assert bed.clock.now() - stopped_at < SESSION_S
        bed.cluster.heal()
        await bed.until(lambda: len(a.assignment) == 2, a, b)


@requirement("A consumer leaves a coordinator that is silent for a session")
async def test_a_consumer_that_hears_nothing_for_a_session_begins_anew() -> None:
    bed = await new_bed()
    async with bed.consumer("a") as a:
        await bed.until(lambda: len(a.assignment) == 4, a)
        bed.cluster.cut("a", up=False)
        asked = len([call for call in bed.cluster.of("ClusterMetadata") if call.request.group_id])
        await bed.clock.sleep(SESSION_S + 2.0)
        assert a.assignment == []
        assert len([call for call in bed.cluster.of("ClusterMetadata") if call.request.group_id]) > asked
        bed.cluster.heal()
        await bed.until(lambda: len(a.assignment) == 4, a)
        assert a.stats.membership.registrations == 2


@requirement("A paused consumer never works beside the next owner")
async def test_coord_01_x5_a_consumer_that_stood_still_hands_out_nothing_afterwards() -> None:
    bed = await new_bed()
    async with bed.consumer("a") as a:
        await bed.until(lambda: len(a.assignment) == 4, a)
        await bed.fill()
        await bed.clock.sleep(0.1)  # they are in its buffer
        loop: Any = asyncio.get_running_loop()
        loop._now += 2 * SESSION_S  # no task of this process ran meanwhile
        assert await a.poll(timeout_s=0) == []
        assert a.assignment == []
        await bed.until(lambda: len(a.assignment) == 4, a)
        assert a.stats.membership.losses == 1


@requirement("A paused consumer never works beside the next owner")
async def test_a_pause_shorter_than_the_session_moves_nothing() -> None:
    """To the coordinator a consumer that stands still is one of which nothing is heard."""

    bed = await new_bed(group_failed_pings_max=0)
    async with bed.consumer("a") as a, bed.consumer("b") as b:
        await bed.until(lambda: len(a.assignment) == len(b.assignment) == 2, a, b)
        before, owners, generation = (a.assignment, b.assignment), bed.cluster.owners(), b.stats.generation
        bed.cluster.cut("a")
        await bed.clock.sleep(0.8 * SESSION_S)
        bed.cluster.heal()
        await bed.fill()
        records = await bed.until(lambda: a.stats.handed_out + b.stats.handed_out >= 40, a, b)
        await bed.clock.sleep(2 * SESSION_S)
        assert offsets_of(records) == every(10) and (a.assignment, b.assignment) == before
        assert bed.cluster.owners() == owners and b.stats.generation == generation


async def test_coord_15_processing_for_longer_than_the_session_keeps_the_membership() -> None:
    bed = await new_bed()
    await bed.fill()
    async with bed.consumer("a") as a, bed.consumer("b") as b:
        await bed.until(lambda: len(a.assignment) == len(b.assignment) == 2, a, b)
        generation = a.stats.generation
        for _ in range(50):
            await bed.clock.sleep(SESSION_S / 10)
            await b.poll(timeout_s=0.01)
        assert (a.stats.generation, len(a.assignment)) == (generation, 2)


async def test_open_02_a_stop_waits_for_what_is_being_processed_longer_than_the_session() -> None:
    bed = await new_bed()
    await bed.fill()
    async with bed.consumer("a") as a:
        assert await a.poll(timeout_s=5)
        async with bed.consumer("b") as b:
            await bed.clock.sleep(3 * SESSION_S)  # a works on
            assert b.assignment == []
            assert bed.cluster.members() == ["a", "b"]
            records = await bed.until(lambda: len(b.assignment) == 2, a, b)
            assert a.stats.membership.losses == 0
            assert not [r for r in records if r.partition in (2, 3) and r.offset < 10]


async def test_an_application_that_does_not_poll_leaves_and_joins_again_when_it_does() -> None:
    bed = await new_bed()
    await bed.fill()
    async with bed.consumer("a", max_processing_ms=8000, on_lost=bed.listener("lost")) as a:
        assert len(await bed.until(lambda: a.stats.handed_out == 40, a)) == 40
        await bed.clock.sleep(7.9)
        assert bed.cluster.members() == ["a"]
        await bed.clock.sleep(0.2)
        assert bed.cluster.members() == []
        assert (a.stats.state, bed.calls) == ("left", [("lost", [0, 1, 2, 3])])
        with pytest.raises(TidelogError) as refused:
            await a.commit({T[0]: 10})
        assert refused.value.code is ErrorCode.ILLEGAL_GENERATION
        again = await bed.until(lambda: a.stats.handed_out == 80, a)
        assert offsets_of(again) == every(10), "what was in its hands did not count"


# -- refusals ------------------------------------------------------------------------------------------------------------------


@requirement("A duplicate consumer id or too short a session gets an error code")
async def test_a_second_consumer_with_the_same_id_waits(caplog: pytest.LogCaptureFixture) -> None:
    bed = await new_bed()
    async with bed.consumer("a") as first:
        await bed.until(lambda: len(first.assignment) == 4, first)
        async with bed.consumer("a") as second:
            seconds = bed.clock.now() + 2 * SESSION_S
            await bed.until(lambda: bed.clock.now() > seconds, first, second)
            assert (len(first.assignment), first.stats.membership.losses) == (4, 0)
            assert (len(second.assignment), second.stats.state) == (0, "joining")
            assert caplog.text.count("consumer id 'a' belongs to a live member of group 'g'") == 1
            await first.stop()
            await bed.until(lambda: len(second.assignment) == 4, second)


async def test_a_consumer_that_crashed_joins_under_its_name() -> None:
    bed = await new_bed()
    crashed = bed.consumer("worker-1")
    await crashed.start()
    await bed.until(lambda: len(crashed.assignment) == 4, crashed)
    bed.cluster.cut("worker-1")
    ports = bed.cluster.ports_of("the next run")
    async with bed.consumer("worker-1", ports=ports) as again:
        await bed.until(lambda: len(again.assignment) == 4, again, limit_s=SESSION_S + 3)
    await crashed.stop()


@requirement("A crash loop of one consumer does not stop the other members")
async def test_what_a_crashed_consumer_had_in_hand_comes_to_the_next() -> None:
    bed = await new_bed()
    await bed.fill()
    crashed = bed.consumer("a")
    await crashed.start()
    done = await crashed.poll(max_records=10, timeout_s=5)
    in_hand = await crashed.poll(max_records=10, timeout_s=5)
    await bed.clock.sleep(SESSION_S)
    bed.cluster.cut("a")
    async with bed.consumer("b") as b:
        seconds = bed.clock.now() + 3 * SESSION_S
        records = await bed.until(lambda: bed.clock.now() > seconds, b)
        assert in_hand and offsets_of(done + records) == every(10)
    await crashed.stop()


async def test_coord_14_a_newer_incarnation_of_a_static_member_takes_over_its_partitions() -> None:
    bed = await new_bed()
    async with bed.consumer("s", static=True) as old, bed.consumer("b") as b:
        await bed.until(lambda: len(old.assignment) == len(b.assignment) == 2, old, b)
        before = old.assignment
        async with bed.consumer("s", static=True) as new:
            with pytest.raises(TidelogError) as fenced:
                await bed.until(lambda: False, old, b)
            assert fenced.value.code is ErrorCode.DUPLICATE_CONSUMER_ID
            await bed.until(lambda: len(new.assignment) == 2, new, b)
            assert sorted(new.assignment) == sorted(before)


@pytest.mark.parametrize("grows", [True, False], ids=["partition", "topic"])
async def test_latest_leaves_out_nothing_of_what_appears_later(grows: bool) -> None:
    bed = await new_bed()
    await bed.fill()
    async with bed.consumer("a", pattern="t.*", auto_offset_reset="latest") as a:
        await bed.until(lambda: len(a.assignment) == 4, a)
        await bed.clock.sleep(1.0)  # it has asked where to begin
        if grows:
            await bed.cluster.grow("t", 5)
        else:
            await bed.cluster.create("t2", partitions=1)
        new = TopicPartition("t", 4) if grows else TopicPartition("t2", 0)
        await bed.cluster.append(*new, encode_batch([Record(None, b"first", (), 1000)]))
        records = await bed.until(lambda: new in a.assignment, a)
        await bed.fill(0, count=1)
        records += await bed.until(lambda: a.stats.handed_out == 2, a)
        assert {(r.topic, r.partition, r.offset) for r in records} == {("t", 0, 10), (*new, 0)}


async def test_a_stalled_static_member_leaves_its_replacement_alone() -> None:
    bed = await new_bed()
    async with bed.consumer("s", static=True, max_processing_ms=500) as old:
        await bed.until(lambda: len(old.assignment) == 4, old)
        await bed.until(lambda: old.stats.state == "left")
        async with bed.consumer("s", static=True) as new:
            await bed.until(lambda: len(new.assignment) == 4, new)
            with pytest.raises(TidelogError) as refused:
                await bed.until(lambda: False, old, new)
            assert refused.value.code is ErrorCode.DUPLICATE_CONSUMER_ID
            for _ in range(100):
                await new.poll(timeout_s=0.05)
            assert len(new.assignment) == 4


@requirement("An out of range offset makes a consumer force a rebalance")
@requirement("A fetch out of range restarts at the reset policy")
@pytest.mark.parametrize("reset, begins_at", [("earliest", 25), ("latest", 30)])
async def test_an_offset_out_of_range_forces_a_rebalance_and_the_reset_policy(reset: str, begins_at: int) -> None:
    bed = await new_bed()

    async def unheard(call: Call) -> Any:
        if call.method != "Fetch":
            return NotImplemented
        raise TransportError("UNAVAILABLE", "lost")

    async with bed.consumer("a", partition_bytes=1, auto_offset_reset=reset) as a:
        await bed.until(lambda: len(a.assignment) == 4, a)
        await bed.clock.sleep(1.0)  # it has asked where to begin
        await bed.fill(0, 1)
        await bed.until(lambda: a.stats.handed_out == 20, a)
        await a.poll(timeout_s=0.01)  # processed
        await bed.clock.sleep(SESSION_S)
        assert bed.cluster.offsets()[T[1]] == 10
        generation = a.stats.generation
        bed.cluster.faults.append(unheard)
        await bed.clock.sleep(1.0)  # its long poll has ended
        await bed.fill(0, count=15)
        await bed.cluster.admin.logs.delete_records({T[0]: 25})
        await bed.fill(0, count=5)
        bed.cluster.faults.remove(unheard)
        records = await bed.until(lambda: a.stats.generation > generation and len(a.assignment) == 4, a)
        await bed.clock.sleep(1.0)
        await bed.fill(0, count=5)
        records += await bed.until(lambda: a.stats.handed_out >= 20 + 35 - begins_at, a)
        assert offsets_of(records) == [(0, offset) for offset in range(begins_at, 35)]
        assert bed.cluster.streams[-1].sent[0].register.rejoin
        assert a.stats.generation == generation + 1, "one rebalance"
        assert bed.cluster.offsets()[T[1]] == 10
