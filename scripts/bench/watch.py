"""WATCH: how much acks=all moves while a page watches the cluster, against the same without one."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

from bench.cluster import BATCH_BYTES, BenchCluster, batch_of
from bench.harness import Bench, Line, compared, take_turns
from bench.throughput import MB, PARTITIONS, WINDOW

NAMES: Final = ("WATCH",)
PAGE: Final = (
    sys.executable,
    "-m",
    "tidelog.cli.main",
    "watch",
    "--web",
    "--listen",
    "127.0.0.1:0",
    "--bootstrap-server",
)
SETTLED_S: Final = 2.0
"""Time in which the page takes what happened before it."""


@asynccontextmanager
async def page(servers: str) -> AsyncIterator[None]:
    """Runs the command, with one reader of its page that takes everything."""
    process = await asyncio.create_subprocess_exec(*PAGE, servers, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        address = urlsplit((await process.stdout.readline()).split()[-1].decode())
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(f"GET /stream HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
        reading = asyncio.create_task(_read(reader))
        await asyncio.sleep(SETTLED_S)
        yield
        assert not reading.done(), "the stream has ended"
        reading.cancel()
        writer.close()
    finally:
        process.terminate()
        await process.wait()


async def _read(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 16):
        pass


async def run(bench: Bench) -> list[Line]:
    batch = batch_of(BATCH_BYTES)
    async with BenchCluster(bench.directory / "cluster") as cluster:

        async def watched(seconds: float) -> float:
            async with page(cluster.bootstrap):
                return await cluster.rate(batch, WINDOW, PARTITIONS, seconds)

        measures = {"without": lambda s: cluster.rate(batch, WINDOW, PARTITIONS, s), "watched": watched}
        taken = await take_turns(bench, measures, references=("without",))
    what = " without a page"
    return [
        compared("WATCH", taken["watched"], taken["without"], unit="MB/s", times=MB, target="at least 0.9", what=what)
    ]
