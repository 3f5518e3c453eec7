"""The servers of a ZooKeeper ensemble: a session needs one of them, whichever that is."""

import asyncio
from struct import pack, unpack, unpack_from

import pytest

from helpers.requirements import requirement
from helpers.zookeeper import owned_tasks
from tidelog.runtime.zk import ZkMeta

SESSION_ID = 77


class FakeServer:
    """Grants every session that is asked for, and answers nothing else."""

    def __init__(self, asked: "asyncio.Queue[tuple[FakeServer, int]]") -> None:
        self._asked = asked
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> "FakeServer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        (size,) = unpack(">i", await reader.readexactly(4))
        _version, _zxid, timeout_ms, session_id = unpack_from(">iqiq", await reader.readexactly(size))
        writer.write(pack(">iiiqi16s?", 37, 0, timeout_ms, SESSION_ID, 16, bytes(16), False))
        self._asked.put_nowait((self, session_id))
        await reader.read(1)
        writer.close()

    def kill(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()


@requirement("The death of one ZooKeeper server expires no session")
@pytest.mark.real_loop
async def test_a_session_goes_on_at_another_server() -> None:
    asked: asyncio.Queue[tuple[FakeServer, int]] = asyncio.Queue()
    servers = [await FakeServer(asked).start() for _ in range(2)]
    async with owned_tasks() as tasks, asyncio.timeout(20):
        meta = ZkMeta(",".join(each.address for each in servers), session_timeout_s=6.0, spawn=tasks.spawn)
        await meta.start()
        first, session_id = await asked.get()
        assert session_id == 0, "it has none yet"
        first.kill()
        (other,) = (each for each in servers if each is not first)
        assert await asked.get() == (other, SESSION_ID)
        await meta.close()
        other.kill()
