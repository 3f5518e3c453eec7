"""The bare relay: bytes in, into three files, acknowledged. `python -m bench.relay_server DIRECTORY [PORT OF THE LEADER]`.

The shape of acks=all with replication factor 3 and nothing else of it (performance 3, "Replication prototype"): no log format, no
offsets, no epochs, no checks, no metrics. What it moves is what gRPC in Python leaves to whoever replicates by it.

`/relay/Produce` takes frames on a stream and answers with how many more both followers have; `/relay/Fetch` is the stream of one
follower: chunks of at most 1 MiB, one of them unacknowledged. Prints its port. A follower prints 0, and serves nobody.
"""

import asyncio
import os
import sys
from collections import deque
from pathlib import Path
from typing import Any, Final

import grpc
from grpc import aio

from bench.bare_server import OPTIONS
from tidelog.runtime import loop

FOLLOWERS: Final = 2
CHUNK_BYTES: Final = 1 << 20
FILE_BYTES: Final = 128 << 20
"""As a segment of the log; then from its beginning again."""


class File:
    """What is appended, kept to the size of a segment."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = os.open(directory / "log", os.O_WRONLY | os.O_CREAT)
        self._at = 0

    def append(self, data: bytes) -> None:
        if self._at + len(data) > FILE_BYTES:
            self._at = 0
        self._at += os.pwrite(self._file, data, self._at)


class Follower:
    """The leader's side of one Fetch stream."""

    def __init__(self) -> None:
        self.waiting: deque[bytes] = deque()
        self.acked = 0
        self.news = asyncio.Event()

    def chunk(self) -> tuple[bytes, int]:
        """The frames that fit, joined, and their number; at least one."""
        taken = [self.waiting.popleft()]
        size = len(taken[0])
        while self.waiting and size + len(self.waiting[0]) <= CHUNK_BYTES:
            taken.append(self.waiting.popleft())
            size += len(taken[-1])
        return b"".join(taken), len(taken)


class Leader:
    def __init__(self, file: File) -> None:
        self._file = file
        self._followers: list[Follower] = []
        self._committed = asyncio.Event()

    async def produce(self, _frames: Any, context: Any) -> None:
        start = self._done()
        read = 0

        async def answer() -> None:
            answered = 0
            while True:
                await self._committed.wait()
                self._committed.clear()
                if (done := self._done() - start) > answered:
                    await context.write((done - answered).to_bytes(4, "big"))
                    answered = done

        writer = asyncio.create_task(answer())
        try:
            while (frame := await context.read()) is not aio.EOF:
                read += 1
                self._file.append(frame)
                for follower in self._followers:
                    follower.waiting.append(frame)
                    follower.news.set()
        finally:
            writer.cancel()

    async def fetch(self, _frames: Any, context: Any) -> None:
        follower = Follower()
        self._followers.append(follower)
        while True:
            await follower.news.wait()
            follower.news.clear()
            while follower.waiting:
                chunk, frames = follower.chunk()
                await context.write(chunk)
                await context.read()
                follower.acked += frames
                self._committed.set()

    def _done(self) -> int:
        return min(follower.acked for follower in self._followers) if len(self._followers) == FOLLOWERS else 0


async def lead(file: File) -> None:
    leader, server = Leader(file), aio.server(options=OPTIONS)
    handlers = {
        "Produce": grpc.stream_stream_rpc_method_handler(leader.produce),
        "Fetch": grpc.stream_stream_rpc_method_handler(leader.fetch),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("relay", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)  # ends with the process that started it, whose pipe this is
    await server.stop(None)


async def follow(file: File, port: int) -> None:
    async def copy() -> None:
        async with aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
            call = channel.stream_stream("/relay/Fetch")()
            while (chunk := await call.read()) is not aio.EOF:
                file.append(chunk)
                await call.write(b"")

    copying = asyncio.create_task(copy())
    print(0, flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)
    copying.cancel()


if __name__ == "__main__":
    directory = File(Path(sys.argv[1]))
    loop.run(lead(directory) if len(sys.argv) == 2 else follow(directory, int(sys.argv[2])))
