"""Simulated members of groups, thousands of them in one process, each with a stream of its own. `python -m bench.group_members`.

They register, answer pings, stops and starts as a consumer does, number their messages, and read no records. Commands come
as JSON lines and are answered with one each; the process ends with its input. The same streams answer the bare server.
"""

import asyncio
import json
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from grpc import aio

from bench.bare_server import OPTIONS
from tidelog.errors import ErrorCode
from tidelog.runtime import loop
from tidelog.wire import messages as m
from tidelog.wire.codec import decode, encode
from tidelog.wire.services import COORDINATOR_SERVICE_SESSION

SESSION_MS: Final = 10_000
CHANNELS: Final = 8
JOINING_MAX: Final = 400
"""Streams that have not registered yet; a broker refuses more than a thousand."""
COMMAND_S: Final = 120.0

Answers = Mapping[str, float]


class Broken(Exception):
    """A stream ended, or said what it should not."""


class Crowd:
    """The members of one group, and what all of them have been told."""

    def __init__(self, group: str, topics: Mapping[str, int]) -> None:
        """`topics`: with their numbers of partitions."""
        self.group = group
        self.partitions = sum(topics.values())
        self.topic_count = json.dumps({"pattern": "static", "subscription": dict.fromkeys(topics, 1)})
        self.members: dict[str, Member] = {}
        self.bytes: dict[str, list[int]] = {"stop": [], "start": [], "answer": []}
        self.generation = 0
        """The newest that anybody was started with."""
        self._started: Counter[int] = Counter()
        self._owned = 0
        self._idle = 0
        self._changed = asyncio.Event()
        self._failure: Broken | None = None

    def add(self, member: "Member") -> None:
        self.members[member.consumer_id] = member
        self._started[0] += 1
        self._idle += 1

    def remove(self, member: "Member") -> None:
        del self.members[member.consumer_id]
        self._started[member.generation] -= 1
        self._owned -= member.owned
        self._idle -= member.owned == 0

    def start(self, member: "Member", generation: int, owned: int) -> None:
        self._started[member.generation] -= 1
        self._started[generation] += 1
        self._owned += owned - member.owned
        self._idle += (owned == 0) - (member.owned == 0)
        member.generation, member.owned = generation, owned
        self.generation = max(self.generation, generation)
        if self._is_whole():
            self._changed.set()

    def fail(self, error: Broken) -> None:
        self._failure = self._failure or error
        self._changed.set()

    def _is_whole(self) -> bool:
        """Everybody has the newest generation and something to read, and together they have everything."""
        everybody = self._started[self.generation] == len(self.members)
        return everybody and not self._idle and self._owned == self.partitions

    async def whole(self, above: int = 0) -> None:
        """Until that is so in a generation above this one."""
        while not (self._is_whole() and self.generation > above):
            if self._failure is not None:
                raise self._failure
            self._changed.clear()
            await self._changed.wait()

    def sizes(self) -> Answers:
        """Medians, of what was counted since the last time."""
        found = {f"{kind}_bytes": statistics.median(sizes) for kind, sizes in self.bytes.items() if sizes}
        for sizes in self.bytes.values():
            sizes.clear()
        return found


class Member:
    def __init__(self, crowd: Crowd, consumer_id: str, channel: Any) -> None:
        self.consumer_id = consumer_id
        self.generation = 0
        self.owned = 0
        self._crowd = crowd
        self._channel = channel
        self._call: Any = None
        self._number = 0
        self._epoch = 0
        self._incarnation = random.getrandbits(63)
        self._leaving = False
        self._writing = asyncio.Lock()

    async def join(self) -> None:
        """Returns when it is registered."""
        self._call = self._channel.stream_stream(COORDINATOR_SERVICE_SESSION.path)()
        await self._say(register=self._registration())
        answer = decode(m.CoordinatorMessage, await self._call.read()).registered
        assert answer is not None
        if answer.error_code is not ErrorCode.NONE:
            raise Broken(f"{self.consumer_id}: {answer.error_code.name} {answer.error_message}")
        self._crowd.add(self)

    def _registration(self) -> m.RegisterConsumerRequest:
        return m.RegisterConsumerRequest(
            group_id=self._crowd.group,
            consumer_id=self.consumer_id,
            topic_count=self._crowd.topic_count,
            auto_commit=True,
            session_timeout_ms=SESSION_MS,
            incarnation=self._incarnation,
            max_processing_ms=SESSION_MS,
            admission=0,
            watch_port=0,
        )

    async def run(self) -> None:
        """Answers until it has left; whatever else ends the stream is a failure of the crowd."""
        try:
            while (data := await self._call.read()) is not aio.EOF:
                await self._answer(data)
        except (aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError) as error:
            why = repr(error)
        else:
            why = "its stream has ended"
        if not self._leaving:
            self._crowd.fail(Broken(f"{self.consumer_id}: {why}"))

    async def _answer(self, data: bytes) -> None:
        message = decode(m.CoordinatorMessage, data)
        name = self.consumer_id
        if (ping := message.ping) is not None:
            epoch = ping.coordinator_epoch
            await self._say(ping=m.PingResponse(consumer_id=name, coordinator_epoch=epoch, generation=self.generation))
        elif (stop := message.stop) is not None:
            self._crowd.bytes["stop"].append(len(data))
            answer = m.StopFetcherResponse(
                consumer_id=name,
                coordinator_epoch=stop.coordinator_epoch,
                generation=stop.generation,
                started_generation=self.generation,
            )
            self._crowd.bytes["answer"].append(await self._say(stopped=answer))
        elif (start := message.start) is not None:
            self._crowd.bytes["start"].append(len(data))
            self._epoch = start.coordinator_epoch
            owned = sum(len(thread.assigned_parts) for thread in start.ownership_info)
            self._crowd.start(self, start.generation, owned)
            await self._say(
                started=m.StartFetcherResponse(
                    consumer_id=name, coordinator_epoch=start.coordinator_epoch, generation=start.generation
                )
            )

    async def leave(self) -> None:
        self._leaving = True
        self._crowd.remove(self)
        request = m.LeaveGroupRequest(
            consumer_id=self.consumer_id, coordinator_epoch=self._epoch, generation=self.generation
        )
        await self._say(leave=request)

    def cut(self) -> None:
        self._leaving = True
        self._call.cancel()

    async def _say(self, **body: Any) -> int:
        async with self._writing:  # gRPC takes one write of a stream at a time
            self._number += 1
            data = encode(m.ConsumerMessage(number=self._number, **body))
            await self._call.write(data)
        return len(data)


async def answer_bare(call: Any, answer: bytes) -> None:
    """One stream to the bare server."""
    while await call.read() is not aio.EOF:
        await call.write(answer)


class Commands:
    """Each takes what its line holds, and returns its answer."""

    def __init__(self) -> None:
        self._crowds: dict[str, Crowd] = {}
        self._channels: dict[str, list[Any]] = {}
        self._bare: list[Any] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def _channel(self, address: str, number: int) -> Any:
        """Of one address there are CHANNELS, each with a connection of its own."""
        if address not in self._channels:
            options = [*OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
            self._channels[address] = [aio.insecure_channel(address, options=options) for _ in range(CHANNELS)]
        return self._channels[address][number % CHANNELS]

    def _start(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def join(self, address: str, group: str, count: int, topics: dict[str, int]) -> Answers:
        """So many more members; until everything is assigned."""
        crowd = self._crowds.setdefault(group, Crowd(group, topics))
        before, first = crowd.generation, len(crowd.members)
        joining = asyncio.Semaphore(JOINING_MAX)
        began_at = time.perf_counter()

        async def one(number: int) -> None:
            member = Member(crowd, f"member-{number:05}-{random.getrandbits(32):08x}", self._channel(address, number))
            async with joining:
                await member.join()
            self._start(member.run())

        await asyncio.gather(*(one(first + number) for number in range(count)))
        registered_s = time.perf_counter() - began_at
        await crowd.whole(before)
        took = {"registered_s": registered_s, "assigned_s": time.perf_counter() - began_at}
        crowd.sizes()
        return took

    async def leave_one(self, group: str) -> Answers:
        """Until all others have been started anew. `stopped` of them had to stop."""
        crowd = self._crowds[group]
        before = crowd.generation
        began_at = time.perf_counter()
        await next(reversed(crowd.members.values())).leave()
        await crowd.whole(before)
        took_s = time.perf_counter() - began_at
        return {"seconds": took_s, "stopped": len(crowd.bytes["stop"]), **crowd.sizes()}

    async def cut(self, group: str) -> Answers:
        """All streams of the group, without a word."""
        for member in self._crowds.pop(group).members.values():
            member.cut()
        return {}

    async def open_bare(self, address: str, count: int, answer_bytes: int) -> Answers:
        self._bare = [self._channel(address, n).stream_stream("/bare/Session")() for n in range(count)]
        for call in self._bare:
            self._start(answer_bare(call, bytes(answer_bytes)))
        return {}

    async def bare(self, address: str, sizes: list[int]) -> Answers:
        """One round trip on every stream with each of the sizes."""
        request = json.dumps({"streams": len(self._bare), "sizes": sizes}).encode()
        return {"seconds": float(await self._channel(address, 0).unary_unary("/bare/Rounds")(request))}

    async def close_bare(self, address: str) -> Answers:
        for call in self._bare:
            call.cancel()
        self._bare = []
        for channel in self._channels.pop(address):
            await channel.close()
        return {}


async def serve() -> None:
    commands = Commands()
    while line := await asyncio.to_thread(sys.stdin.readline):
        given = json.loads(line)
        command: Callable[..., Awaitable[Answers]] = getattr(commands, given.pop("do"))
        try:
            async with asyncio.timeout(COMMAND_S):
                answer: Mapping[str, Any] = await command(**given)
        except (Broken, TimeoutError, aio.AioRpcError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    loop.settle_memory()
    loop.run(serve())
