"""The bare relay of `bench.relay_server` and a client of it."""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any, Self

from grpc import aio

from bench.bare import SCRIPTS
from bench.bare_server import OPTIONS
from bench.harness import percentile
from bench.relay_server import FOLLOWERS


class Relay:
    """A leader and two followers, each a process with a file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[asyncio.subprocess.Process] = []
        self._channel: Any = None

    async def __aenter__(self) -> Self:
        port = await self._start("leader")
        for number in range(FOLLOWERS):
            await self._start(f"follower-{number}", str(port))
        self._channel = aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS)
        return self

    async def _start(self, name: str, *arguments: str) -> int:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.relay_server", str(self._directory / name), *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(SCRIPTS), os.environ.get("PYTHONPATH", "")))},
        )
        self._processes.append(process)
        assert process.stdout is not None
        return int(await process.stdout.readline())

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()
        for process in reversed(self._processes):
            await process.communicate(b"")

    async def rate(self, frame: bytes, window: int, seconds: float) -> float:
        """Bytes a second that all three have, at most `window` frames unanswered."""
        call = self._channel.stream_stream("/relay/Produce")()
        room = asyncio.Semaphore(window)
        written = 0

        async def read() -> None:
            while True:
                for _ in range(int.from_bytes(await call.read(), "big")):
                    room.release()

        reading = asyncio.create_task(read())
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            await room.acquire()
            await call.write(frame)
            written += 1
        for _ in range(window):  # until the last one is answered
            await room.acquire()
        rate = written * len(frame) / (time.perf_counter() - begin)
        reading.cancel()
        call.cancel()
        return rate

    async def p50(self, frame: bytes, seconds: float) -> float:
        """Median seconds until all three have a frame, one at a time."""
        call = self._channel.stream_stream("/relay/Produce")()
        took: list[float] = []
        end = time.perf_counter() + seconds
        while (begin := time.perf_counter()) < end:
            await call.write(frame)
            await call.read()
            took.append(time.perf_counter() - begin)
        call.cancel()
        return percentile(took, 0.5)
