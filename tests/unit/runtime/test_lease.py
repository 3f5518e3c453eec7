"""The lease (design section 3, FIND-7): whoever holds it is alone, whatever the network and the scheduler do."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from helpers.requirements import requirement
from helpers.zookeeper import Tasks, owned_tasks
from tidelog.ports.meta import Create, Delete, Op, SessionState, SetData
from tidelog.runtime.lease import Lease, LeaseKeeper, PauseWatch
from tidelog.runtime.zk_patterns import elect
from tidelog.testing.clock import SimClock
from tidelog.testing.meta import SimMeta, SimZooKeeper

SESSION_S = 6.0


def test_a_lease_lasts_two_thirds_of_the_session_from_the_send_time() -> None:
    lease = Lease(SESSION_S)
    assert not lease.valid(0.0)
    lease = lease.acknowledged(10.0)
    assert lease.valid(10.0) and lease.valid(13.99) and not lease.valid(14.0)


def test_answers_in_another_order_do_not_shorten_it() -> None:
    lease = Lease(SESSION_S).acknowledged(10.0).acknowledged(9.0)
    assert lease.valid_until == 14.0
    assert lease.acknowledged(11.0).valid_until == 15.0


class Candidate:
    """A process that wants to be the controller: elects itself and keeps its lease."""

    def __init__(self, store: SimZooKeeper, name: str, tasks: Tasks) -> None:
        self.meta: SimMeta = store.client(session_timeout_s=SESSION_S)
        self.name = name
        self.clock = SimClock()
        self.keeper: LeaseKeeper | None = None
        self.epoch = 0
        self._tasks = tasks

    async def run(self) -> None:
        await self.meta.start()
        attempt = 0
        while True:
            attempt += 1
            payload = f"{self.name} {attempt}".encode()
            won = await elect(self.meta, "/controller", "/controller_epoch", payload)
            if won is not None:
                self.epoch = won.epoch
                self.keeper = LeaseKeeper(
                    self.meta, self.clock, "/controller", payload, session_id=won.session_id, version=won.version
                )
                await self.keeper.run()
            await asyncio.sleep(0.2)

    @property
    def acts(self) -> bool:
        return self.keeper is not None and self.keeper.holds()


@asynccontextmanager
async def two_candidates(seed: int) -> AsyncIterator[tuple[SimZooKeeper, Candidate, Candidate]]:
    """Candidates of which the first is elected and the second waits."""
    async with owned_tasks() as tasks:
        store = SimZooKeeper(random.Random(seed))
        old, new = (Candidate(store, name, tasks) for name in "ab")
        for candidate in (old, new):
            tasks.spawn(candidate.name, candidate.run())
            await asyncio.sleep(1.0)
        yield store, old, new


@pytest.mark.parametrize("seed", range(20))
async def test_mut_26_a_cut_off_holder_stops_before_another_can_be_elected(seed: int) -> None:
    """A lease that ends by a SUSPENDED or LOST event fails here: they come too late, or not at all."""

    async with two_candidates(seed) as (store, old, new):
        assert old.acts and not new.acts
        await asyncio.sleep(random.Random(seed).random() * SESSION_S)
        old.meta.cut()
        stopped_in = None
        while not new.acts:
            if not old.acts and stopped_in is None:
                stopped_in = old.meta.state
            assert not (old.acts and "/controller" not in store.dump())
            await asyncio.sleep(0.01)
        assert not old.acts
        # It stopped by its own clock, while nobody had told it that the session was over.
        assert stopped_in in (SessionState.CONNECTED, SessionState.SUSPENDED)
        assert old.meta.state is not SessionState.LOST
        assert new.epoch == old.epoch + 1


@requirement("A jump of the wall clock changes nothing but timestamps")
@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000])
async def test_a_jump_of_the_wall_clock_ends_no_lease(jump_ms: int) -> None:
    async with two_candidates(1) as (_, holder, other):
        holder.clock.wall_offset_ms += jump_ms
        for _ in range(100):
            assert holder.acts and not other.acts
            await asyncio.sleep(SESSION_S / 50)
        holder.meta.cut()
        await asyncio.sleep(SESSION_S * 2 / 3 + 0.1)
        assert not holder.acts, "it lasts no longer either"


@requirement("A controller isolated beyond its session changes nothing on return")
@requirement("Every controller write checks the controller epoch")
@pytest.mark.parametrize("seed", range(20))
async def test_a_holder_that_wakes_from_a_pause_does_not_act(seed: int) -> None:
    async with two_candidates(seed) as (store, old, new):
        old.meta.pause()
        paused_at = asyncio.get_running_loop().time()
        while not new.acts:
            assert not (old.acts and "/controller" not in store.dump())
            await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - paused_at < SESSION_S + 1.5
        old.meta.resume()
        assert old.meta.state is SessionState.CONNECTED  # as it believes on waking (reliability 6.2)
        assert not old.acts
        await asyncio.sleep(SESSION_S)
        assert not old.acts and new.acts


async def test_a_short_loss_of_the_connection_costs_no_lease() -> None:
    async with two_candidates(3) as (store, old, _new):
        for _ in range(20):
            old.meta.drop()
            for _ in range(10):
                assert old.acts
                await asyncio.sleep(0.05)
        assert old.epoch == 1 and store.dump()["/controller"].stat.ephemeral_owner == old.meta.session_id


@requirement("A write of unknown outcome is read back before it is judged")
@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_answer_to_the_lease_write_costs_no_lease(applied: bool) -> None:
    async with two_candidates(4) as (_store, old, _new):
        for _ in range(5):
            old.meta.lose_next_answer(applied=applied)
            for _ in range(30):
                assert old.acts
                await asyncio.sleep(0.1)
        assert old.epoch == 1


@pytest.mark.parametrize("change", [SetData("/controller", b"usurper"), Delete("/controller")])
async def test_an_ephemeral_that_somebody_wrote_to_or_removed_ends_the_lease(change: Op) -> None:
    async with two_candidates(5) as (_store, old, new):
        keeper = old.keeper
        assert keeper is not None and keeper.holds()
        await new.meta.multi([change])
        await asyncio.sleep(SESSION_S / 4 + 0.01)
        assert not keeper.holds()


@requirement("Leaders keep serving while ZooKeeper has no quorum")
async def test_a_lease_survives_an_outage_of_the_store_only_for_its_time_and_comes_back_with_it() -> None:
    async with two_candidates(6) as (store, old, new):
        store.stop()
        await asyncio.sleep(SESSION_S * 2 / 3)
        assert not old.acts
        await asyncio.sleep(60.0)
        store.start()
        await asyncio.sleep(1.0)
        assert old.acts and old.epoch == 1 and not new.acts


async def test_an_answer_that_waited_for_its_paused_reader_counts_from_when_its_request_was_sent() -> None:
    store = SimZooKeeper(random.Random(1), latency_s=0.2)
    meta = store.client(session_timeout_s=SESSION_S)
    await meta.start()
    (stat,) = await meta.multi([Create("/mine", ephemeral=True)])
    assert stat is not None
    keeper = LeaseKeeper(meta, SimClock(), "/mine", b"", session_id=meta.session_id, version=stat.version)
    async with owned_tasks() as tasks:
        tasks.spawn("lease", keeper.run())
        await asyncio.sleep(0.05)
        meta.pause()
        await asyncio.sleep(SESSION_S * 2 / 3)
        meta.resume()
        await asyncio.sleep(0.01)
        assert keeper.lease.sent_at is not None and not keeper.holds()
        await asyncio.sleep(2.0)
        assert keeper.holds()  # and the next one renews it


def test_own_pauses_are_noticed() -> None:
    watch = PauseWatch(threshold_s=2.0)
    assert [watch.tick(t) for t in (0.0, 1.0, 3.0, 5.5, 6.0)] == [None, None, None, 2.5, None]


async def test_the_pause_watch_runs_on_the_clock() -> None:
    gaps: list[float] = []
    clock = SimClock()
    skipped = 0.0

    class Skipping(SimClock):
        def now(self) -> float:
            return clock.now() + skipped

    async with owned_tasks() as tasks:
        tasks.spawn("watch", PauseWatch(1.0).run(Skipping(), gaps.append))
        await asyncio.sleep(5.0)
        assert gaps == []
        skipped = 30.0
        await asyncio.sleep(0.2)
    assert len(gaps) == 1 and 30.0 < gaps[0] < 30.2
