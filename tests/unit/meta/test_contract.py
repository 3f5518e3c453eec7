"""What every `Meta` promises: the twin always, the real one over a real server (reliability 4.2)."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from helpers.requirements import requirement
from helpers.zookeeper import drop_connection, expire, zk_clients, zookeeper_server
from tidelog.cluster.zookeeper import EmbeddedZooKeeper
from tidelog.ports.meta import (
    MULTI_LIMIT_BYTES,
    BadVersion,
    Check,
    Create,
    Delete,
    Meta,
    MetaError,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    OutcomeUnknown,
    SessionClosed,
    SessionExpired,
    SessionState,
    SetData,
    TooLarge,
)
from tidelog.testing.meta import SimMeta, SimZooKeeper

TIMEOUT_S = 2.0


class Env:
    """Two connected clients of one store, and the faults that both kinds of store can be given."""

    def __init__(self, metas: list[Meta], drop: Callable[[Any], None], expire: Callable[[Any], None]) -> None:
        self.one, self.two = metas
        self.drop = drop
        self.expire = expire


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with zookeeper_server(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@asynccontextmanager
async def sim_env(servers: int) -> AsyncIterator[Env]:
    store = SimZooKeeper(random.Random(7), servers=servers, lag_s=0.0)
    clients: list[Meta] = [store.client(session_timeout_s=TIMEOUT_S) for _ in range(2)]
    for client in clients:
        await client.start()
    yield Env(clients, SimMeta.drop, lambda client: store.expire(client.session_id))
    for client in clients:
        await client.close()


@pytest.fixture(params=["sim", "sim-3", pytest.param("zookeeper", marks=[pytest.mark.integration, pytest.mark.smoke])])
async def env(request: pytest.FixtureRequest) -> AsyncIterator[Env]:
    if request.param == "zookeeper":
        async with zk_clients(request.getfixturevalue("server"), 2, TIMEOUT_S) as clients:
            await wipe(clients[0])
            yield Env(list(clients), drop_connection, expire)
    else:
        async with sim_env(3 if request.param == "sim-3" else 1) as env:
            yield env


async def wipe(meta: Meta, path: str = "/t") -> None:
    try:
        for name in await meta.children(path):
            await wipe(meta, f"{path}/{name}")
        await meta.multi([Delete(path)])
    except NoNode:
        pass


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not condition():  # noqa: ASYNC110 - what is waited for is often no event of ours
            await asyncio.sleep(0.01)


async def test_create_set_get_delete(env: Env) -> None:
    meta = env.one
    (created,) = await meta.multi([Create("/t", b"a")])
    assert created is not None and created.version == 0 and created.ephemeral_owner == 0
    assert await meta.get("/t") == (b"a", created)
    (changed,) = await meta.multi([SetData("/t", b"b", 0)])
    assert changed is not None and changed.version == 1
    assert changed.czxid == created.czxid and changed.mzxid > created.mzxid
    assert await meta.exists("/t") == changed
    assert await meta.multi([Check("/t", 1), Delete("/t", 1)]) == [None, None]
    assert await meta.exists("/t") is None
    with pytest.raises(NoNode, match="/t"):
        await meta.get("/t")
    with pytest.raises(NoNode):
        await meta.children("/t")


async def test_find_8_a_multi_raises_the_first_real_error_and_changes_nothing(env: Env) -> None:
    meta = env.one
    await meta.multi([Create("/t"), Create("/t/a"), Create("/t/e", ephemeral=True)])
    cases: list[tuple[type[MetaError], list[Op]]] = [
        (BadVersion, [Check("/t", 0), SetData("/t/a", b"x", 7), Delete("/t/b")]),
        (NoNode, [SetData("/t/a", b"x"), Delete("/t/b"), SetData("/t/a", b"y", 9)]),
        (NodeExists, [SetData("/t/a", b"x"), Create("/t/a")]),
        (NoNode, [SetData("/t/a", b"x"), Create("/t/b/c")]),
        (NotEmpty, [SetData("/t/a", b"x"), Delete("/t")]),
        (MetaError, [SetData("/t/a", b"x"), Create("/t/e/child")]),
        (BadVersion, [Create("/t/b"), Check("/t", 3)]),
    ]
    for kind, ops in cases:
        with pytest.raises(MetaError) as caught:
            await meta.multi(ops)
        assert type(caught.value) is kind
        assert (caught.value.index, caught.value.path) == (1, ops[1].path)
    assert (await meta.get("/t/a"))[0] == b""
    assert await meta.children("/t") == ["a", "e"]


async def test_a_multi_sees_its_own_operations_and_all_share_one_zxid(env: Env) -> None:
    meta = env.one
    await meta.multi([Create("/t", b"")])
    a, b, c = await meta.multi([Create("/t/a"), SetData("/t/a", b"1", 0), SetData("/t", b"2")])
    assert a is not None and b is not None and c is not None
    assert a.czxid == b.mzxid == c.mzxid and b.version == 1
    assert await meta.multi([]) == []


async def test_ephemerals_carry_their_session_and_go_with_it(env: Env) -> None:
    await env.one.multi([Create("/t")])
    (stat,) = await env.two.multi([Create("/t/b", ephemeral=True)])
    assert stat is not None and stat.ephemeral_owner == env.two.session_id != 0
    await env.one.sync("/t")
    fired = asyncio.Event()
    assert await env.one.children("/t", fired.set) == ["b"]
    await env.two.close()
    async with asyncio.timeout(10):
        await fired.wait()
    assert await env.one.children("/t") == []
    with pytest.raises(SessionClosed):
        await env.two.multi([SetData("/t", b"")])
    with pytest.raises(SessionClosed):
        await env.two.get("/t")


@requirement("A watch only triggers a read that a timer repeats")
async def test_a_watch_fires_once_for_what_it_is_on(env: Env) -> None:
    fired: list[str] = []

    def mark(name: str) -> Callable[[], None]:
        return lambda: fired.append(name)

    await env.two.multi([Create("/t"), Create("/t/a", b"0")])
    await env.one.sync("/t")
    await env.one.get("/t/a", mark("get"))
    await env.one.exists("/t/new", mark("exists"))
    await env.one.children("/t", mark("children"))
    await env.two.multi([SetData("/t/a", b"1")])
    await until(lambda: fired == ["get"])
    await env.two.multi([SetData("/t/a", b"2")])
    await env.two.multi([Create("/t/new")])
    await until(lambda: sorted(fired) == ["children", "exists", "get"])
    await env.two.multi([Delete("/t/new")])
    await env.two.multi([Create("/t/more")])
    await env.one.sync("/t")
    await env.one.get("/t")
    assert sorted(fired) == ["children", "exists", "get"]


async def test_one_callback_given_many_times_is_called_once(env: Env) -> None:
    calls: list[int] = []

    def callback() -> None:
        calls.append(1)

    await env.one.multi([Create("/t")])
    for _ in range(50):
        await env.one.get("/t", callback)
    await env.two.multi([SetData("/t", b"1")])
    await until(lambda: bool(calls))
    await env.one.sync("/t")
    await env.one.get("/t")
    assert calls == [1]


async def test_watches_fire_when_the_connection_breaks(env: Env) -> None:
    states: list[SessionState] = []
    env.one.on_session(states.append)
    fired = asyncio.Event()
    await env.one.multi([Create("/t")])
    await env.one.get("/t", fired.set)
    session_id = env.one.session_id
    env.drop(env.one)
    async with asyncio.timeout(10):
        await fired.wait()
    assert (await env.one.get("/t"))[0] == b""
    assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
    assert env.one.session_id == session_id


async def test_reads_outlive_a_lost_connection_and_writes_report_it_unknown(env: Env) -> None:
    await env.one.multi([Create("/t", b"0")])
    async with asyncio.TaskGroup() as group:
        reads = [group.create_task(env.one.get("/t")) for _ in range(20)]
        writes = [group.create_task(outcome(env.one, b"%d" % i)) for i in range(20)]
        await asyncio.sleep(0)
        env.drop(env.one)
    assert all(read.result()[0].isdigit() for read in reads)
    assert {write.result() for write in writes} <= {"applied", "unknown"}
    await env.one.sync("/t")
    applied = (await env.one.get("/t"))[1].version
    certain = sum(write.result() == "applied" for write in writes)
    assert certain <= applied <= 20


async def outcome(meta: Meta, data: bytes) -> str:
    try:
        await meta.multi([SetData("/t", data)])
    except OutcomeUnknown:
        return "unknown"
    except SessionExpired:
        return "expired"
    return "applied"


async def test_find_8_a_write_is_never_executed_in_the_session_after_its_own(env: Env) -> None:
    await env.two.multi([Create("/t", b"0")])
    states: list[SessionState] = []
    env.one.on_session(states.append)
    old = env.one.session_id
    env.expire(env.one)
    # Some are made before this client knows, some while it is suspended, some while it has no session.
    results: dict[str, list[bytes]] = {}
    serial = 0
    while env.one.session_id in (0, old):
        serial += 1
        data = b"%d by %d" % (serial, env.one.session_id)
        results.setdefault(await outcome(env.one, data), []).append(data)
        await asyncio.sleep(0.001)
    assert states[-2:] == [SessionState.LOST, SessionState.CONNECTED]
    await env.two.sync("/t")
    data, stat = await env.two.get("/t")
    # None was confirmed, and none of them shows: the session in which they were made was over.
    assert set(results) <= {"unknown", "expired"} and results
    assert (data, stat.version) == (b"0", 0)
    assert env.one.session_id not in (0, old)
    assert await outcome(env.one, b"new") == "applied"


async def test_find_8_callbacks_may_call_the_store(env: Env) -> None:
    await env.one.multi([Create("/t", b"0")])
    seen: list[bytes] = []
    tasks: set[asyncio.Task[None]] = set()

    async def read_again() -> None:
        seen.append((await env.one.get("/t", on_watch))[0])

    def on_watch() -> None:
        tasks.add(asyncio.get_running_loop().create_task(read_again()))

    env.one.on_session(lambda _state: on_watch())
    await read_again()
    await env.two.multi([SetData("/t", b"1")])
    await until(lambda: seen[-1] == b"1")
    env.drop(env.one)
    before = len(seen)
    await until(lambda: len(seen) >= before + 2)  # the watch and both changes of state led to reads
    await asyncio.gather(*tasks)


async def test_find_8_an_oversize_multi_is_refused_here_and_the_session_lives_on(env: Env) -> None:
    states: list[SessionState] = []
    env.one.on_session(states.append)
    await env.one.multi([Create("/t")])
    session_id = env.one.session_id
    with pytest.raises(TooLarge, match=f"of {MULTI_LIMIT_BYTES} bytes"):
        await env.one.multi([Create("/t/big", b"x" * MULTI_LIMIT_BYTES)])
    await env.one.multi([Create("/t/big", b"x" * (MULTI_LIMIT_BYTES - 200))])
    assert await env.one.children("/t") == ["big"]
    assert env.one.session_id == session_id and states == []


async def test_get_many_answers_in_order_with_none_for_what_is_not_there(env: Env) -> None:
    await env.one.multi([Create("/t")])
    for at in range(0, 600, 50):  # a multi that keeps the server busy for longer than the session's third has no answer
        await env.one.multi([Create(f"/t/{i}", b"%d" % i) for i in range(at, at + 50)])
    found = await env.one.get_many([f"/t/{i}" for i in range(0, 1200, 2)])
    assert [None if f is None else int(f[0]) for f in found] == [*range(0, 600, 2), *[None] * 300]
    assert await env.one.get_many([]) == []


async def test_a_list_of_children_of_900_kb_is_read_whole(env: Env) -> None:
    """Reliability 7.2, ZK: nearly as much as a server sends in one answer."""
    names = [f"{number:04}".ljust(240, "x") for number in range(3_700)]

    await env.one.multi([Create("/t", b"")])
    for at in range(0, len(names), 100):
        await env.one.multi([Create(f"/t/{name}", b"") for name in names[at : at + 100]])
    assert sum(map(len, names)) > 880_000
    assert sorted(await env.one.children("/t")) == names
    for at in range(0, len(names), 100):
        await env.one.multi([Delete(f"/t/{name}") for name in names[at : at + 100]])
    await env.one.multi([Delete("/t")])


async def test_a_cancelled_request_leaves_the_session_usable(env: Env) -> None:
    await env.one.multi([Create("/t")])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(env.one.get_many(["/t"] * 1000))
        await asyncio.sleep(0)
        task.cancel()
    assert await env.one.children("/t") == []
