"""A real ZooKeeper server for tests, and the owner of the clients' background tasks."""

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from kazoo.protocol import serialization as jute

from tidelog.cluster.zookeeper import EmbeddedZooKeeper, ServerFiles
from tidelog.ids import Address
from tidelog.runtime.zk import ZkMeta


def free_port() -> int:
    """Below the ports that the system gives to outgoing connections: one of those may be gone when a server restarts."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


@contextmanager
def zookeeper_server(directory: Path) -> Iterator[EmbeddedZooKeeper]:
    server = EmbeddedZooKeeper(ServerFiles(directory, Address("127.0.0.1", free_port())))
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


class Tasks:
    """Stands for the supervisor: `spawn` as the adapters take it; a task that fails fails the test."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self.tasks: list[asyncio.Task[None]] = []

    def spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(self._group.create_task(coroutine, name=name))


@asynccontextmanager
async def owned_tasks() -> AsyncIterator[Tasks]:
    async with asyncio.TaskGroup() as group:
        tasks = Tasks(group)
        yield tasks
        for task in tasks.tasks:
            task.cancel()


@asynccontextmanager
async def zk_clients(
    server: EmbeddedZooKeeper | Address, count: int = 1, timeout_s: float = 4.0
) -> AsyncIterator[list[ZkMeta]]:
    """Connected clients; each ends its session in order."""
    async with owned_tasks() as tasks:
        address = str(server if isinstance(server, Address) else server.address)
        clients = [ZkMeta(address, session_timeout_s=timeout_s, spawn=tasks.spawn) for _ in range(count)]
        try:
            for client in clients:
                await client.start()
            yield clients
        finally:
            for client in clients:
                await client.close()


def expire(client: ZkMeta) -> None:
    """The server ends the client's session."""
    end_session(client._client.hosts[0], client._client._session_id, client._client._session_passwd)


def end_session(server: tuple[str, int], session_id: int, password: bytes) -> None:
    """The server ends a client's session: the usual trick, somebody else takes the session over and closes it.

    The client takes it back as fast as it can, so again and again, until the server says that it is over.
    """
    reopen = jute.Connect(0, 0, 10_000, session_id, password, False).serialize()
    close = jute.int_struct.pack(1) + jute.int_struct.pack(jute.Close.type)
    for _ in range(100):
        with socket.create_connection(server, timeout=5) as connection:
            try:
                connection.sendall(jute.int_struct.pack(len(reopen)) + reopen)
                answer = connection.makefile("rb")
                (length,) = jute.int_struct.unpack(answer.read(4))
                if jute.Connect.deserialize(answer.read(length), 0)[0].time_out <= 0:
                    return
                connection.sendall(jute.int_struct.pack(len(close)) + close)
                answer.read()
            except (OSError, struct.error):
                continue  # the client took it back
    raise AssertionError("the session does not end")


def password_of(session_id: int) -> bytes:
    """As a server makes it from the session's id, with Java's generator and a constant: it protects from mistakes only."""
    mask = (1 << 48) - 1
    state = (session_id ^ 0xB3415C00 ^ 0x5DEECE66D) & mask
    words = []
    for _ in range(4):
        state = (state * 0x5DEECE66D + 0xB) & mask
        words.append((state >> 16 & 0xFFFFFFFF).to_bytes(4, "little"))
    return b"".join(words)


def drop_connection(client: ZkMeta) -> None:
    """The connection breaks; the session lives on."""
    client._client._connection._socket.shutdown(socket.SHUT_RDWR)


async def eventually(condition: Any, timeout_s: float = 15.0) -> None:
    """Polls until `condition()` is true; the test fails when it is not in time."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is waited for is often no event of ours
            await asyncio.sleep(0.01)
