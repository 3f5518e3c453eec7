"""Election, registration and watching of children over the twin, with every fault that it has (reliability 6.4)."""

import asyncio
import logging
import random

import pytest

from helpers.requirements import requirement
from helpers.zookeeper import owned_tasks
from tidelog.ports.meta import Create, Delete, MetaError, SetData, Stat
from tidelog.runtime.zk_patterns import Elected, elect, ensure_path, register, resign, watch_children
from tidelog.testing.meta import SimMeta, SimZooKeeper

SESSION_S = 4.0
UNKNOWN = pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])


async def clients(store: SimZooKeeper, count: int) -> list[SimMeta]:
    made = [store.client(session_timeout_s=SESSION_S) for _ in range(count)]
    for client in made:
        await client.start()
    return made


async def run_for_office(meta: SimMeta, name: str) -> Elected | None:
    return await elect(meta, "/controller", "/controller_epoch", name.encode())


@requirement("The process that creates the controller znode is the controller")
async def test_the_first_epoch_is_1_and_each_election_raises_it(store: SimZooKeeper) -> None:
    a, b = await clients(store, 2)
    first = await run_for_office(a, "a")
    assert first is not None and (first.epoch, first.epoch_version) == (1, 0)
    assert await run_for_office(b, "b") is None
    assert await run_for_office(a, "a again") == first
    await a.close()
    second = await run_for_office(b, "b")
    assert second is not None and (second.epoch, second.epoch_version) == (2, 1)
    assert store.dump()["/controller"].data == b"b"


@requirement("The process that creates the controller znode is the controller")
@UNKNOWN
async def test_an_election_with_a_lost_answer_is_decided_by_what_is_there(store: SimZooKeeper, applied: bool) -> None:
    a, b = await clients(store, 2)
    await a.multi([Create("/controller_epoch", b"41")])
    a.lose_next_answer(applied=applied)
    won = await run_for_office(a, "a")
    assert won is not None and won.epoch == 42 and won.session_id == a.session_id
    assert store.dump()["/controller_epoch"].data == b"42"
    assert await run_for_office(b, "b") is None


@UNKNOWN
async def test_who_resigns_and_wins_again_has_another_epoch(store: SimZooKeeper, applied: bool) -> None:
    a, b = await clients(store, 2)
    assert await run_for_office(a, "a") is not None
    await resign(b, "/controller")
    assert "/controller" in store.dump()
    a.lose_next_answer(applied=applied)
    await resign(a, "/controller")
    assert "/controller" not in store.dump()
    again = await run_for_office(a, "a")
    assert again is not None and again.epoch == 2


@requirement("The process that creates the controller znode is the controller")
@requirement("Every controller write checks the controller epoch")
@pytest.mark.parametrize("seed", range(30))
async def test_at_most_one_wins_an_epoch_and_someone_wins_in_the_end(seed: int) -> None:
    store = SimZooKeeper(random.Random(seed), servers=3, lag_s=0.2)
    rand = random.Random(seed)
    candidates = await clients(store, 3)
    winners: dict[int, int] = {}

    async def candidate(meta: SimMeta) -> None:
        while True:
            won = await run_for_office(meta, "me")
            if won is not None:
                assert winners.setdefault(won.epoch, won.session_id) == won.session_id
            await asyncio.sleep(0.1 + rand.random() / 10)

    async with owned_tasks() as tasks:
        for meta in candidates:
            tasks.spawn("candidate", candidate(meta))
        for _ in range(60):
            await asyncio.sleep(rand.random())
            victim = candidates[rand.randrange(3)]
            fault = rand.randrange(6)
            if fault == 0:
                victim.drop()
            elif fault == 1:
                store.expire(victim.session_id)
            elif fault == 2:
                victim.lose_next_answer(applied=rand.random() < 0.5)
            elif fault == 3:
                victim.cut()
            elif fault == 4:
                victim.heal()
            else:
                victim.pause()
                await asyncio.sleep(rand.random() * SESSION_S * 1.5)
                victim.resume()
        for meta in candidates:
            meta.heal()
        await asyncio.sleep(3 * SESSION_S)
    epoch = int(store.dump()["/controller_epoch"].data)
    assert store.dump()["/controller"].stat.ephemeral_owner == winners[epoch]
    assert len(winners) > 1


@UNKNOWN
async def test_a_registration_with_a_lost_answer_is_one_registration(store: SimZooKeeper, applied: bool) -> None:
    (meta,) = await clients(store, 1)
    await ensure_path(meta, "/brokers/ids")
    meta.lose_next_answer(applied=applied)
    stat = await register(meta, "/brokers/ids/1", b"x")
    assert store.dump()["/brokers/ids/1"].stat == stat
    assert stat.ephemeral_owner == meta.session_id


async def test_registration_makes_the_missing_parents_and_may_change_its_payload(store: SimZooKeeper) -> None:
    (meta,) = await clients(store, 1)
    first = await register(meta, "/brokers/ids/1", b"x")
    second = await register(meta, "/brokers/ids/1", b"y")
    assert (second.czxid, second.version) == (first.czxid, 1)
    assert store.dump()["/brokers/ids/1"].data == b"y"
    assert store.dump()["/brokers"].stat.ephemeral_owner == 0


@requirement("An ephemeral znode counts only for the session that made it")
async def test_a_znode_of_an_own_previous_session_is_taken_over_at_once(store: SimZooKeeper) -> None:
    old, new = await clients(store, 2)
    before = await register(old, "/brokers/ids/1", b"x")
    old_session = old.session_id

    async def is_dead(data: bytes, stat: Stat) -> bool:
        return (data, stat.ephemeral_owner) == (b"x", old_session)

    old.kill()
    began = asyncio.get_running_loop().time()
    after = await register(new, "/brokers/ids/1", b"x", is_dead)
    assert asyncio.get_running_loop().time() - began < 1.0
    assert after.czxid > before.czxid and after.ephemeral_owner == new.session_id
    await asyncio.sleep(3 * SESSION_S)  # and the end of the old session does not take it away
    assert store.dump()["/brokers/ids/1"].stat == after


@requirement("An ephemeral znode counts only for the session that made it")
async def test_a_znode_of_an_unknown_session_is_waited_for(
    store: SimZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        old, new = await clients(store, 2)
        await register(old, "/brokers/ids/1", b"broker 1 at elsewhere")
        old.kill()
        began = asyncio.get_running_loop().time()
        stat = await register(new, "/brokers/ids/1", b"x")
        assert SESSION_S * 2 / 3 <= asyncio.get_running_loop().time() - began <= SESSION_S + 1.0
        assert stat.ephemeral_owner == new.session_id
    (line,) = [r.getMessage() for r in caplog.records if "is held by session" in r.getMessage()]
    assert "/brokers/ids/1" in line and "broker 1 at elsewhere" in line


async def test_a_second_broker_with_the_same_id_waits_and_says_so_again_and_again(
    store: SimZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        first, second = await clients(store, 2)
        stat = await register(first, "/brokers/ids/1", b"x")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(31):
                await register(second, "/brokers/ids/1", b"y")
        assert store.dump()["/brokers/ids/1"].stat == stat
    assert sum("is held by session" in r.getMessage() for r in caplog.records) == 7


async def test_registration_waits_for_a_store_that_is_away(store: SimZooKeeper) -> None:
    (meta,) = await clients(store, 1)
    store.stop()
    async with owned_tasks() as tasks:
        stats: list[Stat] = []

        async def run() -> None:
            stats.append(await register(meta, "/brokers/ids/1", b"x"))

        tasks.spawn("register", run())
        await asyncio.sleep(60)
        assert stats == []
        store.start()
        await asyncio.sleep(1)
        assert len(stats) == 1


async def test_patterns_end_when_the_session_is_closed(store: SimZooKeeper) -> None:
    (meta,) = await clients(store, 1)
    await meta.close()
    with pytest.raises(MetaError):
        await register(meta, "/brokers/ids/1", b"x")
    with pytest.raises(MetaError):
        await run_for_office(meta, "a")
    with pytest.raises(MetaError):
        async for _ in watch_children(meta, "/"):
            raise AssertionError("a closed session read something")


class Snapshots:
    """Collects what `watch_children` yields, as {name: czxid}."""

    def __init__(self) -> None:
        self.seen: list[dict[str, int]] = []

    async def run(self, meta: SimMeta, path: str, reconcile_s: float | None = None) -> None:
        async for snapshot in watch_children(meta, path, reconcile_s=reconcile_s):
            self.seen.append({name: stat.czxid for name, (_, stat) in snapshot.items()})


@requirement("A watch only triggers a read that a timer repeats")
async def test_mut_24_a_child_that_died_and_came_back_while_disconnected_shows_by_its_czxid(
    store: SimZooKeeper,
) -> None:
    controller, broker, again = await clients(store, 3)
    before = await register(broker, "/brokers/ids/1", b"x")
    snapshots = Snapshots()
    async with owned_tasks() as tasks:
        tasks.spawn("watch", snapshots.run(controller, "/brokers/ids"))
        await asyncio.sleep(0.1)
        controller.cut()
        await broker.close()
        after = await register(again, "/brokers/ids/1", b"x")
        await asyncio.sleep(0.1)
        controller.heal()
        await asyncio.sleep(1)
    assert snapshots.seen[0] == {"1": before.czxid}
    assert snapshots.seen[-1] == {"1": after.czxid}
    assert after.czxid != before.czxid


async def test_a_missing_parent_has_no_children_until_it_appears(store: SimZooKeeper) -> None:
    meta, other = await clients(store, 2)
    snapshots = Snapshots()
    async with owned_tasks() as tasks:
        tasks.spawn("watch", snapshots.run(meta, "/brokers/ids"))
        await asyncio.sleep(1)
        assert snapshots.seen == [{}]
        stat = await register(other, "/brokers/ids/1", b"x")
        await asyncio.sleep(1)
        assert snapshots.seen[-1] == {"1": stat.czxid}
        await other.multi([Delete("/brokers/ids/1"), Delete("/brokers/ids")])
        await asyncio.sleep(1)
        assert snapshots.seen[-1] == {}
        stat = await register(other, "/brokers/ids/2", b"x")
        await asyncio.sleep(1)
        assert snapshots.seen[-1] == {"2": stat.czxid}


@requirement("A watch only triggers a read that a timer repeats")
@pytest.mark.parametrize("seed", range(20))
async def test_the_last_snapshot_is_the_truth_whatever_happened(seed: int) -> None:
    store = SimZooKeeper(random.Random(seed), servers=3, lag_s=0.1)
    rand = random.Random(seed)
    watcher, writer = await clients(store, 2)
    await ensure_path(writer, "/p")
    snapshots = Snapshots()
    async with owned_tasks() as tasks:
        tasks.spawn("watch", snapshots.run(watcher, "/p"))
        for _ in range(150):
            path = f"/p/{rand.randrange(5)}"
            present = path in store.dump()
            await writer.multi([Delete(path) if present else Create(path)])
            if rand.random() < 0.1:
                watcher.drop()
            if rand.random() < 0.05:
                store.expire(watcher.session_id)
            await asyncio.sleep(rand.random() / 20)
        await asyncio.sleep(2)
    truth = {p.removeprefix("/p/"): n.stat.czxid for p, n in store.dump().items() if p.startswith("/p/")}
    assert snapshots.seen[-1] == truth


@requirement("A watch only triggers a read that a timer repeats")
async def test_a_full_reconcile_comes_by_the_clock_too(store: SimZooKeeper) -> None:
    (meta,) = await clients(store, 1)
    await ensure_path(meta, "/p")
    snapshots = Snapshots()
    async with owned_tasks() as tasks:
        tasks.spawn("watch", snapshots.run(meta, "/p", reconcile_s=10))
        await asyncio.sleep(35)
    assert len(snapshots.seen) == 4


async def test_data_of_a_child_do_not_fire_the_watch(store: SimZooKeeper) -> None:
    (meta,) = await clients(store, 1)
    await register(meta, "/p/1", b"")
    snapshots = Snapshots()
    async with owned_tasks() as tasks:
        tasks.spawn("watch", snapshots.run(meta, "/p"))
        await asyncio.sleep(1)
        await meta.multi([SetData("/p/1", b"beat")])
        await asyncio.sleep(1)
    assert len(snapshots.seen) == 1
