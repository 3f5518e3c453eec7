"""MOVE and LEAVE: from a member's death, and from its farewell, until others have read a record of every partition it owned."""

import asyncio
import itertools
import json
import os
import sys
import time
from contextlib import AsyncExitStack
from typing import Any, Final, Self

from bench.bare import SCRIPTS
from bench.cluster import BenchCluster
from bench.harness import Bench, Line, against_limit
from tidelog.client.producer import Producer

NAMES: Final = ("MOVE", "LEAVE")
READERS: Final = 3
PARTITIONS: Final = 12
SESSION_MS: Final = 3_000
MOVE_LIMIT_S: Final = SESSION_MS / 1000 + 1.0
LEAVE_LIMIT_S: Final = 0.5
PACE_S: Final = 0.02
"""Between two records of a partition: what is read cannot be found out more precisely."""
GIVE_UP_S: Final = 60.0


class Reader:
    """One process."""

    def __init__(self, group: "Group", name: str) -> None:
        self.name = name
        self._group = group
        self._process: Any = None
        self._lines: asyncio.Task[None] | None = None
        self._left_at = 0.0

    async def start(self) -> Self:
        group = self._group
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.group_reader"),
            *(group.bootstrap, f"group-{group.topic}", group.topic, self.name, str(SESSION_MS)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SCRIPTS), os.environ.get("PYTHONPATH", "")])},
        )
        self._lines = asyncio.create_task(self._listen())
        return self

    async def _listen(self) -> None:
        while line := await self._process.stdout.readline():
            said = json.loads(line)
            if "first" in said:
                self._group.note(self, said["first"], said["at"])
            else:
                self._left_at = said["at"]

    async def kill(self) -> float:
        """When."""
        killed_at = time.perf_counter()
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        return killed_at

    async def leave(self) -> float:
        """When it began to."""
        self._process.stdin.write(b"leave\n")
        await self._process.wait()
        assert self._lines is not None
        await self._lines
        return self._left_at


class Group:
    """Readers of one topic, and who has read a record of each partition last since it was assigned."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.readers: list[Reader] = []
        self._owners: dict[int, tuple[Reader, float]] = {}
        self._news = asyncio.Event()
        self._names = itertools.count()

    def note(self, reader: Reader, partition: int, at: float) -> None:
        self._owners[partition] = reader, at
        self._news.set()

    async def grow(self) -> None:
        """Until READERS of them read equal shares."""
        while len(self.readers) < READERS:
            self.readers.append(await Reader(self, f"reader-{next(self._names)}").start())
        async with asyncio.timeout(GIVE_UP_S):
            while any(len(self.owned_by(each)) != PARTITIONS // READERS for each in self.readers):
                await self._next()

    def owned_by(self, reader: Reader) -> list[int]:
        return [partition for partition, (owner, _) in self._owners.items() if owner is reader]

    async def moved(self, reader: Reader) -> float:
        """When the last of its partitions was read by another."""
        lost = self.owned_by(reader)
        async with asyncio.timeout(GIVE_UP_S):
            while self.owned_by(reader):
                await self._next()
        return max(self._owners[partition][1] for partition in lost)

    async def _next(self) -> None:
        self._news.clear()
        await self._news.wait()


async def write(producer: Producer, topic: str) -> None:
    """A record to each partition every PACE_S, until cancelled."""
    for number in itertools.count():
        for partition in range(PARTITIONS):
            await producer.send(topic, b"%d" % number, partition=partition)
        await asyncio.sleep(PACE_S)


async def go(bench: Bench, group: Group, *, kill: bool) -> float:
    """Seconds from the end of the oldest reader until others read what it had; then another one joins."""
    reader = group.readers.pop(0)
    owned = len(group.owned_by(reader))
    moved = asyncio.create_task(group.moved(reader))
    await asyncio.sleep(0)  # so that it sees what there was to lose
    ended_at = await (reader.kill() if kill else reader.leave())
    took_s = await moved - ended_at
    bench.say(
        f"{reader.name} was {'killed' if kill else 'stopped'}: {owned} partitions moved in {took_s * 1000:.0f} ms"
    )
    await group.grow()
    return took_s


async def run(bench: Bench) -> list[Line]:
    lines: list[Line] = []
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(BenchCluster(bench.directory / "cluster"))
        producer = await stack.enter_async_context(Producer(cluster.bootstrap, acks="all"))
        group = Group(cluster.bootstrap, await cluster.new_topic(PARTITIONS))
        writing = asyncio.create_task(write(producer, group.topic))
        try:
            bench.say(f"{PARTITIONS} partitions are written to")
            await group.grow()
            bench.say(f"{READERS} readers share them")
            if "LEAVE" in bench.wanted:
                took = [await go(bench, group, kill=False) for _ in range(bench.scale.leaves)]
                target = "at most 1 (from its first word of leaving to a record of each of its partitions)"
                lines.append(against_limit("LEAVE", took, limit=LEAVE_LIMIT_S, unit="s", target=target))
            if "MOVE" in bench.wanted:
                took = [await go(bench, group, kill=True) for _ in range(bench.scale.deaths)]
                target = f"at most 1 (SIGKILL; session timeout {SESSION_MS / 1000:g} s and one second)"
                lines.append(against_limit("MOVE", took, limit=MOVE_LIMIT_S, unit="s", target=target))
        finally:
            writing.cancel()
            await asyncio.gather(*(reader.kill() for reader in group.readers))
            await asyncio.gather(writing, return_exceptions=True)
    return lines
