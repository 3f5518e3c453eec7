"""The bare gRPC references: what the library moves when nothing else is done."""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any, Self

from grpc import aio

from bench.bare_server import OPTIONS
from bench.harness import percentile

SCRIPTS = Path(__file__).resolve().parent.parent


class BareServer:
    """One server process and a channel to it."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._channel: Any = None
        self.address = ""

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.bare_server"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
        )
        assert self._process.stdout is not None
        port = int(await self._process.stdout.readline())
        self.address = f"127.0.0.1:{port}"
        self._channel = aio.insecure_channel(self.address, options=OPTIONS)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        await self._channel.close()
        await self._process.communicate(b"")

    async def stream_rate(self, frame: bytes, window: int, seconds: float) -> float:
        """Bytes a second through one bidirectional stream with at most `window` unanswered frames."""
        call = self._channel.stream_stream("/bare/Stream")()
        room = asyncio.Semaphore(window)
        answered = 0

        async def read() -> None:
            nonlocal answered
            while await call.read() is not aio.EOF:
                answered += 1
                room.release()

        async with asyncio.TaskGroup() as group:
            group.create_task(read())
            begin = time.perf_counter()
            while time.perf_counter() - begin < seconds:
                await room.acquire()
                await call.write(frame)
            rate = answered * len(frame) / (time.perf_counter() - begin)
            await call.done_writing()
        return rate

    async def round_trip_p50(self, request: bytes, seconds: float) -> float:
        """Median seconds of a unary call, one at a time."""
        echo = self._channel.unary_unary("/bare/Echo")
        took: list[float] = []
        end = time.perf_counter() + seconds
        while (begin := time.perf_counter()) < end:
            await echo(request)
            took.append(time.perf_counter() - begin)
        return percentile(took, 0.5)
