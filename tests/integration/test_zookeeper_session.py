"""The kazoo adapter against a real server that is stopped, killed and restarted (FIND-8, reliability 6.2, 6.3)."""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from helpers.requirements import requirement
from helpers.zookeeper import drop_connection, eventually, expire, free_port, owned_tasks, zk_clients, zookeeper_server
from tidelog.cluster.zookeeper import EmbeddedZooKeeper, ServerFiles
from tidelog.ids import Address
from tidelog.ports.meta import Create, Delete, OutcomeUnknown, SessionExpired, SessionState, SetData
from tidelog.runtime import meta_session
from tidelog.runtime.lease import LeaseKeeper
from tidelog.runtime.loop_watch import LoopWatch
from tidelog.runtime.zk import ConnectionThreadEnded, ZkMeta
from tidelog.runtime.zk_patterns import elect, ensure_path, register, watch_children
from tidelog.testing.clock import SimClock

pytestmark = pytest.mark.integration


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with zookeeper_server(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.mark.parametrize(("asked_s", "granted_s"), [(0.2, 1.0), (1.5, 1.5), (6.0, 6.0), (600.0, 60.0)])
async def test_the_session_timeout_is_the_one_the_server_granted(
    server: EmbeddedZooKeeper, asked_s: float, granted_s: float
) -> None:
    async with zk_clients(server, timeout_s=asked_s) as (meta,):
        assert meta.session_timeout_s == granted_s


async def test_start_waits_for_a_server_that_comes_later_and_says_so(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meta_session, "SAY_AGAIN_S", 0.2)
    files = ServerFiles(tmp_path_factory.mktemp("zookeeper"), Address("127.0.0.1", free_port()))
    server = EmbeddedZooKeeper(files)

    try:
        with caplog.at_level(logging.WARNING):
            async with owned_tasks() as tasks:
                meta = ZkMeta(str(files.address), session_timeout_s=4, spawn=tasks.spawn)
                starting = asyncio.ensure_future(meta.start())
                await asyncio.sleep(0.7)
                assert not starting.done()
                server.start()
                async with asyncio.timeout(20):
                    await starting
                assert meta.state is SessionState.CONNECTED and meta.session_id != 0
                await meta.close()
    finally:
        server.stop()
    lines = [r.getMessage() for r in caplog.records]
    assert len(lines) >= 3 and all("waiting for the metadata store at" in line for line in lines), lines


@requirement("Leaders keep serving while ZooKeeper has no quorum")
async def test_a_server_that_takes_a_connection_and_never_answers_does_not_cost_the_session() -> None:
    """So does one that is still starting: whoever waits for its answer all the time comes back too late."""
    session_s = 6.0
    accepted: list[float] = []

    again = asyncio.Event()
    writers: list[asyncio.StreamWriter] = []

    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(asyncio.get_running_loop().time())
        writers.append(writer)
        if len(accepted) == 2:
            again.set()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server, owned_tasks() as tasks:
        host, port = server.sockets[0].getsockname()
        meta = ZkMeta(f"{host}:{port}", session_timeout_s=session_s, spawn=tasks.spawn)
        starting = asyncio.ensure_future(meta.start())
        async with asyncio.timeout(20):
            await again.wait()
        starting.cancel()
        await meta.close()
        for writer in writers:
            writer.close()
            await writer.wait_closed()

    assert accepted[1] - accepted[0] < session_s * 2 / 3


async def test_nothing_blocks_the_loop_while_kazoo_is_stuck_in_a_write(server: EmbeddedZooKeeper) -> None:
    """kazoo's own wake-up pipe holds 278 bytes, one a request; here its thread does not read them."""

    done, others = threading.Event(), [0]

    def another_thread() -> None:
        """A machine that holds this process up holds it up as well."""
        while not done.wait(0.01):
            others[0] += 1

    thread = threading.Thread(target=another_thread)
    thread.start()
    try:
        async with zk_clients(server, timeout_s=6.0) as (meta,), owned_tasks() as tasks:
            turns = [others[0]]

            async def turn() -> None:
                while True:
                    await asyncio.sleep(0.01)
                    turns.append(others[0])

            server.pause()
            # More than the two sockets' buffers hold.
            requests = [asyncio.ensure_future(meta.multi([SetData("/t", b"x" * 500_000)])) for _ in range(40)]
            tasks.spawn("turn", turn())
            await asyncio.sleep(0.5)
            requests += [asyncio.ensure_future(meta.multi([SetData("/t", b"x")])) for _ in range(1000)]
            await asyncio.sleep(1.0)
            server.resume()
            await asyncio.gather(*requests, return_exceptions=True)
            longest = max(late - early for early, late in pairwise(turns))
        assert longest < 50, "of the other thread's turns, which take 0.01 s, in one of the loop's"
    finally:
        server.resume()
        done.set()
        thread.join()


@requirement("A paused ZooKeeper causes no split brain")
@requirement("Leaders keep serving while ZooKeeper has no quorum")
async def test_a_silent_server_suspends_but_never_expires(server: EmbeddedZooKeeper) -> None:
    try:
        async with zk_clients(server, timeout_s=2.0) as (meta,):
            states: list[SessionState] = []
            meta.on_session(states.append)
            await meta.multi([Create("/t", b"0")])
            server.pause()
            reads = [asyncio.ensure_future(meta.get("/t")) for _ in range(500)]
            write = asyncio.ensure_future(meta.multi([SetData("/t", b"1")]))
            with pytest.raises(OutcomeUnknown):
                async with asyncio.timeout(6):
                    await write
            await eventually(lambda: states == [SessionState.SUSPENDED])
            reads += [asyncio.ensure_future(meta.get("/t")) for _ in range(500)]
            await asyncio.sleep(2.5)  # beyond the session timeout
            assert states == [SessionState.SUSPENDED]  # the server alone could tell
            server.resume()
            await eventually(lambda: meta.state is SessionState.CONNECTED)
            results = await asyncio.gather(*reads, return_exceptions=True)
            assert {type(r) for r in results} <= {tuple, SessionExpired}
            assert await meta.exists("/t") is not None
    finally:
        server.resume()


async def test_a_request_has_a_deadline(server: EmbeddedZooKeeper) -> None:
    try:
        # Who prepares and looks has patience: a server that has just started writes its first record slowly.
        async with zk_clients(server, timeout_s=30.0) as (patient,), owned_tasks() as tasks:
            observed: list[tuple[str, float]] = []
            meta = ZkMeta(
                str(server.address),
                session_timeout_s=30,
                spawn=tasks.spawn,
                request_timeout_s=0.5,
                observe=lambda op, seconds: observed.append((op, seconds)),
            )
            await meta.start()
            await patient.multi([Create("/t", b"0")])
            server.pause()
            for request in (meta.get("/t"), meta.multi([SetData("/t", b"1")])):
                with pytest.raises(OutcomeUnknown, match=r"/t no answer within 0\.5 s"):
                    await request
            server.resume()
            changed = asyncio.Event()
            if (await patient.get("/t", changed.set))[0] == b"0":  # unknown, and applied after all
                await changed.wait()
                assert (await patient.get("/t"))[0] == b"1"
            assert [op for op, _ in observed] == ["get", "multi"]
            assert 0.5 <= observed[0][1] < 2
            await meta.close()
    finally:
        server.resume()


@requirement("A paused ZooKeeper causes no split brain")
@pytest.mark.smoke
async def test_a_session_outlives_a_killed_server_that_comes_back(server: EmbeddedZooKeeper) -> None:
    async with zk_clients(server, timeout_s=10.0) as (meta,):
        states: list[SessionState] = []
        meta.on_session(states.append)
        (stat,) = await meta.multi([Create("/mine", b"0", ephemeral=True)])
        session_id = meta.session_id
        server.kill()
        await eventually(lambda: states == [SessionState.SUSPENDED])
        reading = asyncio.ensure_future(meta.get("/mine"))
        server.start()
        assert await reading == (b"0", stat)
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED] and meta.session_id == session_id


async def test_find_8_what_was_queued_for_an_expired_session_is_not_sent_in_the_next(server: EmbeddedZooKeeper) -> None:
    """Appended to kazoo's own queue at the worst moment: after the session ended, before the loop was told."""

    async with zk_clients(server, 2) as (one, two):
        await two.multi([Create("/t", b"0")])
        old = one.session_id
        blocked = threading.Event()
        release = threading.Event()
        inner = one._drain

        def late() -> None:
            if not release.is_set():
                blocked.set()
                asyncio.get_running_loop().call_later(0.05, late)  # the loop hears of nothing for a while
            else:
                inner()

        one._drain = late  # type: ignore[method-assign]
        expire(one)
        await eventually(lambda: one._client._session_id not in (None, old) and one._client._live.is_set())
        assert one.session_id == old and one.state is SessionState.CONNECTED  # as the loop still believes
        write = asyncio.ensure_future(one.multi([SetData("/t", b"stale")]))
        await asyncio.sleep(0.3)
        release.set()
        with pytest.raises((SessionExpired, OutcomeUnknown)):
            await write
        assert (await two.get("/t"))[0] == b"0"
        assert one.session_id != old


@requirement("An ephemeral znode counts only for the session that made it")
async def test_mut_24_a_bounce_while_disconnected_is_seen(server: EmbeddedZooKeeper) -> None:
    async with zk_clients(server, 3, timeout_s=6.0) as (controller, broker, again), owned_tasks() as tasks:
        before = await register(broker, "/brokers/ids/1", b"x")
        seen: list[dict[str, int]] = []

        async def watch() -> None:
            async for snapshot in watch_children(controller, "/brokers/ids"):
                seen.append({n: stat.czxid for n, (_, stat) in snapshot.items()})  # noqa: PERF401 - it never ends

        tasks.spawn("watch", watch())
        await eventually(lambda: seen == [{"1": before.czxid}])
        # Disconnected for as long as the bounce takes.
        hold = threading.Event()
        connect = controller._connection._connect_attempt

        def held(*args: object) -> object:
            hold.wait(10)
            return connect(*args)

        controller._connection._connect_attempt = held
        drop_connection(controller)
        await eventually(lambda: controller.state is SessionState.SUSPENDED)
        await broker.close()
        after = await register(again, "/brokers/ids/1", b"x")
        hold.set()
        await eventually(lambda: seen[-1] == {"1": after.czxid})
        assert after.czxid != before.czxid


@requirement("An ephemeral znode counts only for the session that made it")
async def test_a_restart_within_the_session_timeout_waits_and_registers(server: EmbeddedZooKeeper) -> None:
    async with zk_clients(server, 2, timeout_s=1.5) as (old, new):
        before = await register(old, "/brokers/ids/1", b"x")
        # As a killed process: its session is never closed and never pinged again.
        old._connection._send_ping = lambda *_: None
        after = await register(new, "/brokers/ids/1", b"x")
        assert after.czxid > before.czxid and after.ephemeral_owner == new.session_id


async def test_a_dead_connection_thread_is_reported_to_the_supervisor(server: EmbeddedZooKeeper) -> None:
    class Poison:
        type = 3

        def serialize(self) -> bytes:
            raise MemoryError("no kazoo exception")

    hook, threading.excepthook = threading.excepthook, lambda _: None
    try:
        with pytest.raises(ExceptionGroup) as caught:
            async with owned_tasks() as tasks:
                meta = ZkMeta(str(server.address), session_timeout_s=4, spawn=tasks.spawn)
                await meta.start()
                meta._client._queue.append((Poison(), None))
                meta._connection.wake()
                try:
                    await asyncio.sleep(10)
                finally:
                    await meta.close()
    finally:
        threading.excepthook = hook
    assert [type(e) for e in caught.value.exceptions] == [ConnectionThreadEnded]


async def test_close_does_not_wait_for_a_server_that_is_silent(server: EmbeddedZooKeeper) -> None:
    try:
        loop = asyncio.get_running_loop()
        async with owned_tasks() as tasks:
            meta = ZkMeta(str(server.address), session_timeout_s=30, spawn=tasks.spawn)
            await meta.start()
            server.pause()
            began = loop.time()
            await meta.close()
            took_s = loop.time() - began
        assert took_s < 5
    finally:
        server.resume()


@requirement("The process that creates the controller znode is the controller")
@requirement("The controller znode is ephemeral and names the controller")
async def test_one_wins_an_election_and_keeps_its_lease(server: EmbeddedZooKeeper) -> None:
    async with zk_clients(server, 2, timeout_s=6.0) as (one, two), owned_tasks() as tasks:
        outcomes = await asyncio.gather(
            elect(one, "/controller", "/controller_epoch", b"one"),
            elect(two, "/controller", "/controller_epoch", b"two"),
        )
        (won,) = [o for o in outcomes if o is not None]
        winner, data = (one, b"one") if won.session_id == one.session_id else (two, b"two")
        loser = two if winner is one else one
        keeper = LeaseKeeper(winner, SimClock(), "/controller", data, session_id=won.session_id, version=won.version)
        assert not keeper.holds()
        tasks.spawn("lease", keeper.run())
        await eventually(keeper.holds)
        # It outlives the lease that the first write gave. How steadily, the keeper's own tests say, whose clock no busy
        # machine holds up.
        first = keeper.lease.valid_until
        await eventually(lambda: SimClock().now() > first and keeper.holds())
        expire(winner)
        await eventually(lambda: not keeper.holds())
        again = await elect(loser, "/controller", "/controller_epoch", b"again")
        assert again is not None and again.epoch == won.epoch + 1


async def test_ten_thousand_znodes_are_read_pipelined(server: EmbeddedZooKeeper) -> None:
    async with zk_clients(server) as (meta,):
        await ensure_path(meta, "/many")
        paths = [f"/many/{i}" for i in range(10_000)]
        for start in range(0, len(paths), 500):
            await meta.multi([Create(path, b"x" * 75) for path in paths[start : start + 500]])
        found = await meta.get_many(paths)
        assert all(f is not None and f[0] == b"x" * 75 for f in found)
        assert len(await meta.children("/many")) == 10_000
        for start in range(0, len(paths), 500):
            await meta.multi([Delete(path) for path in paths[start : start + 500]])


async def test_a_child_list_of_900_kb_is_read_and_watched(server: EmbeddedZooKeeper) -> None:
    """Reliability 7.2, ZK: the limit of 1 MB is the server's for requests; an answer may be as large as the tree is."""
    names = [f"{number:05}{'n' * 240}" for number in range(3_700)]

    async with zk_clients(server) as (meta,):
        await ensure_path(meta, "/many")
        for first in range(0, len(names), 500):
            await meta.multi([Create(f"/many/{name}") for name in names[first : first + 500]])
        assert sum(map(len, names)) > 900_000
        assert sorted(await meta.children("/many")) == names
        async with asyncio.timeout(60):
            async for children in watch_children(meta, "/many"):
                if len(children) == len(names):
                    await meta.multi([Create("/many/one more")])
                else:
                    assert len(children) == len(names) + 1
                    break


@pytest.mark.parametrize(("stands_s", "lost"), [(6.0, True), (1.5, False)], ids=["longer than the session", "shorter"])
async def test_a_loop_that_stands_still_keeps_no_session(
    server: EmbeddedZooKeeper, stands_s: float, lost: bool
) -> None:
    """The thread of the session goes on, and its pings would keep the place of a process that does nothing."""
    watch = LoopWatch(lambda _: None, lambda _: None)
    async with owned_tasks() as tasks:
        tasks.spawn("loop watch", watch.run())
        meta = ZkMeta(
            str(server.files.address), session_timeout_s=2.5, spawn=tasks.spawn, stalled_s=lambda: watch.stalled_s
        )
        states: list[SessionState] = []
        meta.on_session(states.append)
        await meta.start()
        await asyncio.sleep(0.5)
        before = meta.session_id
        time.sleep(stands_s)  # noqa: ASYNC251
        await asyncio.sleep(0.5)
        await eventually(lambda: meta.state is SessionState.CONNECTED)
        assert (SessionState.LOST in states) is lost and (meta.session_id != before) is lost
        await meta.close()
