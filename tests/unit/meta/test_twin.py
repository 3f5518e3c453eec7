"""The faults that only the twin can be given, and that it repeats a run from its seed (reliability 4.2)."""

import asyncio
import random

import pytest

from helpers.aio import now
from helpers.zookeeper import owned_tasks
from tidelog.ports.meta import BadVersion, Create, MetaError, OutcomeUnknown, SessionExpired, SessionState, SetData
from tidelog.testing import loop as sim
from tidelog.testing.meta import SimMeta, SimZooKeeper

SESSION_S = 4.0


async def client(store: SimZooKeeper) -> SimMeta:
    made = store.client(session_timeout_s=SESSION_S)
    await made.start()
    return made


@pytest.mark.parametrize("seed", range(10))
async def test_the_server_expires_a_silent_session_after_its_timeout_and_not_before(seed: int) -> None:
    store = SimZooKeeper(random.Random(seed))
    meta = await client(store)
    await meta.multi([Create("/mine", ephemeral=True)])
    heard_at = now()
    await asyncio.sleep(random.Random(seed).random() * 10)
    cut_at = now()
    meta.cut()
    while "/mine" in store.dump():  # noqa: ASYNC110 - the server tells nobody
        await asyncio.sleep(0.01)
    assert now() >= heard_at + SESSION_S
    assert cut_at + SESSION_S * 2 / 3 <= now() <= cut_at + SESSION_S + 0.52
    assert meta.state is SessionState.SUSPENDED
    await asyncio.sleep(30)
    assert meta.state is SessionState.SUSPENDED  # nobody tells a client that is cut off


async def test_a_client_learns_of_its_expiry_when_it_is_back(store: SimZooKeeper) -> None:
    meta = await client(store)
    states: list[SessionState] = []
    meta.on_session(states.append)
    old = meta.session_id
    meta.cut()
    await asyncio.sleep(3 * SESSION_S)
    meta.heal()
    await asyncio.sleep(1)
    assert states == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
    assert meta.session_id != old


async def test_a_pause_within_the_timeout_is_not_noticed(store: SimZooKeeper) -> None:
    meta = await client(store)
    states: list[SessionState] = []
    meta.on_session(states.append)
    await meta.multi([Create("/mine", ephemeral=True)])
    for _ in range(5):
        meta.pause()
        await asyncio.sleep(SESSION_S / 2)
        meta.resume()
        await asyncio.sleep(1)
    assert states == [] and "/mine" in store.dump()


async def test_a_paused_client_gets_what_had_arrived_in_order_and_then_the_news(store: SimZooKeeper) -> None:
    meta, other = await client(store), await client(store)
    await meta.multi([Create("/t", b"0")])
    events: list[str] = []
    meta.on_session(lambda state: events.append(state.value))
    await meta.get("/t", lambda: events.append("watch"))
    write = asyncio.ensure_future(meta.multi([SetData("/t", b"1", 0)]))
    await asyncio.sleep(0.0001)
    meta.pause()
    await asyncio.sleep(1)
    assert not write.done() and (await other.get("/t"))[0] == b"1"
    await asyncio.sleep(2 * SESSION_S)
    meta.resume()
    assert meta.state is SessionState.CONNECTED
    await write
    await asyncio.sleep(1)
    assert events == ["watch", "suspended", "lost", "connected"]


async def test_a_lagging_follower_serves_old_data_until_sync() -> None:
    store = SimZooKeeper(random.Random(1), servers=3, lag_s=20.0)
    writer = await client(store)
    readers = [await client(store) for _ in range(6)]
    await writer.multi([Create("/t", b"0")])
    await asyncio.sleep(60)
    stale = 0
    for i in range(20):
        await writer.multi([SetData("/t", b"%d" % (i + 1))])
        assert (await writer.get("/t"))[0] == b"%d" % (i + 1)  # own writes are always seen
        for reader in readers:
            stale += (await reader.get("/t"))[0] != b"%d" % (i + 1)
            await reader.sync("/t")
            assert (await reader.get("/t"))[0] == b"%d" % (i + 1)
    assert stale > 10


async def test_a_client_never_goes_back_in_time_when_it_moves_to_another_server() -> None:
    store = SimZooKeeper(random.Random(1), servers=3, lag_s=1.0)
    writer, reader = await client(store), await client(store)
    await writer.multi([Create("/t", b"0")])
    await reader.sync("/t")
    seen = -1
    for i in range(100):
        await writer.multi([SetData("/t", b"%d" % i)])
        value = int((await reader.get("/t"))[0])
        assert value >= seen
        seen = value
        reader.drop()


async def test_a_connection_that_breaks_leaves_writes_applied_and_not_applied(store: SimZooKeeper) -> None:
    outcomes: set[bool] = set()
    meta = await client(store)
    await meta.multi([Create("/t")])
    for version in range(30):
        write = asyncio.ensure_future(meta.multi([SetData("/t", b"%d" % version)]))
        await asyncio.sleep(0.0004)
        meta.drop()
        with pytest.raises(OutcomeUnknown):
            await write
        outcomes.add(store.dump()["/t"].data == b"%d" % version)
        await meta.sync("/t")

    assert outcomes == {True, False}


@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_answer_is_on_the_side_of_the_server_that_was_asked_for(
    store: SimZooKeeper, applied: bool
) -> None:
    meta = await client(store)
    meta.lose_next_answer(applied=applied)
    with pytest.raises(OutcomeUnknown):
        await meta.multi([Create("/t")])
    assert ("/t" in store.dump()) is applied
    assert (await meta.exists("/t") is not None) is applied


async def test_a_killed_process_gets_no_more_news_and_its_ephemerals_time_out(store: SimZooKeeper) -> None:
    meta = await client(store)
    await meta.multi([Create("/mine", ephemeral=True)])
    states: list[SessionState] = []
    meta.on_session(states.append)
    meta.kill()
    await asyncio.sleep(1)
    assert "/mine" in store.dump()
    await asyncio.sleep(SESSION_S)
    assert "/mine" not in store.dump() and states == [] and store.live_sessions == []


async def test_sessions_outlive_an_outage_of_the_whole_store(store: SimZooKeeper) -> None:
    metas = [await client(store) for _ in range(3)]
    for i, meta in enumerate(metas):
        await meta.multi([Create(f"/{i}", ephemeral=True)])
    store.stop()
    await asyncio.sleep(100)
    metas[0].kill()
    assert {meta.state for meta in metas[1:]} == {SessionState.SUSPENDED}
    store.start()
    await asyncio.sleep(SESSION_S + 1)
    assert [path for path in store.dump() if path != "/"] == ["/1", "/2"]


async def random_run(seed: int) -> list[str]:
    """Two writers and a watcher under random faults; the trace of everything that anybody saw, with its time."""
    rand = random.Random(seed)
    store = SimZooKeeper(rand, servers=3, lag_s=0.1)
    metas = [await client(store) for _ in range(3)]
    trace: list[str] = []

    async def work(name: str, meta: SimMeta) -> None:
        meta.on_session(lambda state: trace.append(f"{now():.6f} {name} {state.value}"))
        for i in range(100):
            try:
                data, stat = await meta.get("/t", lambda: trace.append(f"{now():.6f} {name} watch"))
                await meta.multi([SetData("/t", data + b".", stat.version)])
                trace.append(f"{now():.6f} {name} wrote {i} on {stat.version}")
            except (BadVersion, OutcomeUnknown, SessionExpired) as error:
                trace.append(f"{now():.6f} {name} {error!r}")
            await asyncio.sleep(rand.random() / 10)

    await metas[0].multi([Create("/t")])
    await asyncio.sleep(1)
    async with owned_tasks() as tasks:
        for name, meta in zip("abc", metas, strict=True):
            tasks.spawn(name, work(name, meta))
        for _ in range(20):
            await asyncio.sleep(rand.random())
            victim = metas[rand.randrange(3)]
            (victim.drop, victim.cut, victim.heal, victim.pause, victim.resume)[rand.randrange(5)]()
    return trace


def test_a_seed_repeats_a_run() -> None:
    traces = [sim.run(random_run(seed)) for seed in (1, 1, 2, 3)]
    assert traces[0] == traces[1] and len(traces[0]) > 100
    assert traces[0] != traces[2] != traces[3]


@pytest.mark.parametrize("seed", range(10))
def test_every_confirmed_conditional_write_counts_exactly_once(seed: int) -> None:
    versions = [int(line.rsplit(" ", 1)[1]) for line in sim.run(random_run(seed)) if " wrote " in line]
    assert len(versions) == len(set(versions)) > 10


async def test_the_tree_refuses_a_child_of_an_ephemeral(store: SimZooKeeper) -> None:
    meta = await client(store)
    await meta.multi([Create("/e", ephemeral=True)])
    with pytest.raises(MetaError, match="an ephemeral has no children"):
        await meta.multi([Create("/e/child")])
