"""What an agent promises: nothing is committed before it is safe, and nothing is handled that may be another's."""

import asyncio
from collections.abc import Mapping

import pytest

from tidelog.agent.handler import Records
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.runtime.tasks import Supervisor
from tidelog.testing import loop as sim
from unit.agent.scene import T0, T1, Scene, record, records


def test_records_are_handled_made_safe_and_committed_in_this_order() -> None:
    scene = Scene(records(T0, 5, 6) + records(T1, 0))
    sim.run(scene.run())
    assert scene.story == [
        *(("handled", 0, 5), ("handled", 0, 6), ("handled", 1, 0)),
        *("flushed", ("commit", {T0: 7, T1: 1})),
    ]
    assert scene.counts.records == 3
    assert scene.worker.positions == {T0: 7, T1: 1}


async def test_commits_come_at_their_interval_and_only_of_what_is_new() -> None:
    scene = Scene(*([record(T0, i)] for i in range(4)), commit_interval_s=1.0)

    async def slow(chunk: Records) -> None:
        await asyncio.sleep(0.6)

    scene.handler.before = slow
    await scene.run()
    assert scene.reader.commits == [{T0: 2}, {T0: 4}]


async def test_open_07_work_goes_on_while_there_is_nobody_to_commit_with() -> None:
    scene = Scene(*([record(T0, i)] for i in range(8)), commit_interval_s=1.0)
    commit, away = scene.reader.commit, True

    async def slow(chunk: Records) -> None:
        nonlocal away
        await asyncio.sleep(0.6)
        away = chunk[0].offset < 6

    async def nobody(offsets: Mapping[TopicPartition, int]) -> None:
        if away:
            await asyncio.sleep(3600)
        await commit(offsets)

    scene.handler.before = slow
    scene.reader.commit = nobody  # type: ignore[method-assign]
    loop = asyncio.get_running_loop()
    began = loop.time()
    await scene.run()
    assert scene.handler.handled == [(T0, i) for i in range(8)] and loop.time() - began < 10
    assert scene.reader.commits[-1] == {T0: 8}


def test_a_consumer_that_was_paused_for_longer_than_its_session_handles_nothing_more() -> None:
    """COORD-1: its lease is over when it goes on: what it has polled is the new owner's, the rest of its chunks too."""
    scene = Scene(records(T0, 0, 1) + records(T1, 0) + records(T0, 2))

    def pause(chunk: Records) -> None:
        if chunk[0].partition == 1:
            scene.reader.owned.clear()

    scene.handler.before = pause
    sim.run(scene.run())
    assert scene.handler.handled == [(T0, 0), (T0, 1), (T1, 0)]
    assert scene.counts.lost == 1


def test_what_follows_a_chunk_that_was_left_out_is_left_out_too() -> None:
    """Owned again in between, it begins at the committed offset: handling the rest of what was polled would leave a gap."""
    scene = Scene(records(T0, 0) + records(T1, 0) + records(T0, 1))

    def come_back(chunk: Records) -> None:
        scene.reader.owned.add(T0)

    scene.reader.owned.remove(T0)
    scene.handler.before = come_back
    sim.run(scene.run())
    assert scene.handler.handled == [(T1, 0)]
    assert scene.reader.commits == [{T1: 1}]


async def test_a_retry_asks_for_the_lease_again() -> None:
    scene = Scene(records(T0, 0), on_error="retry")
    tries = 0

    def fail(chunk: Records) -> None:
        nonlocal tries
        tries += 1
        scene.reader.owned.clear()
        raise ValueError("again")

    scene.handler.before = fail
    await scene.run()
    assert (tries, scene.counts.lost, scene.reader.commits) == (1, 1, [])


async def test_what_was_revoked_is_safe_and_committed_when_it_is_given_back() -> None:
    scene = Scene(records(T0, 0, 1) + records(T1, 7) + records(T0, 2))
    supervisor = Supervisor()
    revoking: list[asyncio.Task[None] | None] = []

    async def revoke(chunk: Records) -> None:
        if chunk[0].partition == 1:
            revoking.append(supervisor.start("revoke", scene.worker.revoked([T0])))
            await asyncio.sleep(0.1)
            assert scene.reader.commits == []  # between two chunks, not in the middle of one

    scene.handler.before = revoke
    await scene.run()
    await supervisor.wait()
    assert scene.reader.commits == [{T0: 2}, {T1: 8}]
    assert (T0, 2) not in scene.handler.handled
    assert scene.handler.lost == [T0]
    assert T0 not in scene.worker.positions


async def test_where_latest_began_is_committed_before_a_record() -> None:
    scene = Scene([], records(T1, 7, 8), commit_interval_s=3600.0)
    scene.reader.placed = {T0: 5, T1: 7}
    await scene.run()
    assert scene.reader.commits == [{T0: 5, T1: 7}, {T1: 9}]


async def test_where_latest_began_is_committed_at_a_revocation() -> None:
    scene = Scene()
    scene.reader.placed = {T0: 5, T1: 7}
    await scene.worker.revoked([T0])
    assert scene.reader.commits == [{T0: 5}]


def test_what_was_lost_is_never_committed() -> None:
    scene = Scene(records(T0, 0) + records(T1, 0) + records(T0, 1))

    def lose(chunk: Records) -> None:
        if chunk[0].partition == 1:
            scene.worker.lost([T0])

    scene.handler.before = lose
    sim.run(scene.run())
    assert scene.reader.commits == [{T1: 1}]
    assert scene.handler.handled == [(T0, 0), (T1, 0)]
    assert scene.handler.lost == [T0]


def test_what_is_lost_while_it_is_handled_or_made_safe_is_not_committed() -> None:
    scene = Scene(records(T0, 0), records(T1, 0))
    scene.handler.before = lambda chunk: scene.worker.lost([T0]) if chunk[0].partition == 0 else None
    scene.handler.flushing = lambda: scene.worker.lost([T1])
    sim.run(scene.run())
    assert scene.reader.commits == []


def test_a_partition_that_comes_back_is_handled_again() -> None:
    scene = Scene(records(T0, 0), records(T0, 0, 1))
    scene.handler.before = lambda chunk: scene.worker.lost([T0]) if len(chunk) == 1 else None
    sim.run(scene.run())
    assert scene.handler.handled == [(T0, 0), (T0, 0), (T0, 1)]
    assert scene.reader.commits == [{T0: 2}]


async def test_on_error_stop_names_the_records_and_commits_what_came_before() -> None:
    scene = Scene(records(T0, 0, 1), records(T0, 2, 3))

    def fail(chunk: Records) -> None:
        if chunk[0].offset == 2:
            raise ValueError("no such customer")

    scene.handler.before = fail
    with pytest.raises(TidelogError) as caught:
        await scene.run()
    assert caught.value.message == "the handler failed at t-0, offsets 2 to 3: ValueError: no such customer"
    assert scene.counts.failures == ["stop"]
    await scene.worker.revoked([T0])  # as the consumer does when it leaves
    assert scene.reader.commits == [{T0: 2}]


def test_on_error_skip_goes_on_behind_the_chunk() -> None:
    scene = Scene(records(T0, 0, 1), records(T0, 2), on_error="skip")

    def fail(chunk: Records) -> None:
        if chunk[0].offset == 0:
            raise ValueError("bad")

    scene.handler.before = fail
    sim.run(scene.run())
    assert scene.handler.handled == [(T0, 2)]
    assert scene.reader.commits == [{T0: 3}]
    assert scene.counts.failures == ["skip"]


async def test_on_error_retry_waits_longer_each_time_and_handles_it_in_the_end() -> None:
    scene = Scene(records(T0, 0), on_error="retry")
    loop, tries = asyncio.get_running_loop(), []

    def fail(chunk: Records) -> None:
        tries.append(round(loop.time(), 3))
        if len(tries) < 5:
            raise TransportError("UNAVAILABLE")

    scene.handler.before = fail
    await scene.run()
    assert tries == [0.0, 0.1, 0.3, 0.7, 1.5]
    assert scene.reader.commits == [{T0: 1}]


async def test_a_stop_cuts_a_retry_short_and_commits_nothing_of_it() -> None:
    scene = Scene(records(T0, 0), records(T1, 0), on_error="retry")
    loop = asyncio.get_running_loop()

    def fail(chunk: Records) -> None:
        if chunk[0].partition == 0:
            loop.call_later(100.0, scene.worker.stop)
            raise ValueError("for ever")

    scene.handler.before = fail
    await scene.run()
    assert loop.time() < 102
    assert scene.reader.commits == []


def test_a_commit_that_fails_is_made_with_the_next_one() -> None:
    scene = Scene(records(T0, 0), records(T1, 0), commit_interval_s=0.0)
    scene.reader.refusals.append(TidelogError("rebalancing", ErrorCode.REBALANCE_IN_PROGRESS))
    sim.run(scene.run())
    assert scene.reader.commits == [{T0: 1, T1: 1}]


def test_what_cannot_be_made_safe_is_not_committed_and_stops_the_agent() -> None:
    scene = Scene(records(T0, 0))

    def no_room() -> None:
        raise OSError(28, "No space left on device")

    scene.handler.flushing = no_room
    with pytest.raises(TidelogError, match=r"cannot make safe.*No space left"):
        sim.run(scene.run())
    assert scene.reader.commits == []


def test_a_fatal_error_of_the_membership_ends_the_worker() -> None:
    scene = Scene()

    def refused() -> None:
        raise TidelogError("another one lives", ErrorCode.DUPLICATE_CONSUMER_ID)

    scene.reader.when_empty = refused
    with pytest.raises(TidelogError, match="another one lives"):
        sim.run(scene.run())
