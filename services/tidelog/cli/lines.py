"""Lines of any bytes from a file or a pipe, without blocking the event loop and without trusting their length."""

import asyncio
import os
import stat
import threading
from collections.abc import AsyncIterator, Iterator
from typing import BinaryIO, Final

CHUNK_BYTES: Final = 256 * 1024


class TooLong:
    """Stands for a line over the limit; its bytes were dropped as they came."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes


class LineSplitter:
    """Cuts chunks at \\n, which is not part of the line; every other byte is. The last line needs no \\n."""

    def __init__(self, line_bytes_max: int) -> None:
        self._limit = line_bytes_max
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytes | TooLong]:
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield self._joined(line)
        self._keep(rest)

    def end(self) -> Iterator[bytes | TooLong]:
        if self._size:
            yield self._joined(b"")

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._limit:
            self._parts.append(part)
        else:
            self._parts.clear()

    def _joined(self, last: bytes) -> bytes | TooLong:
        self._keep(last)
        size, parts = self._size, self._parts
        self._size, self._parts = 0, []
        return b"".join(parts) if size <= self._limit else TooLong(size)


async def chunks_of(stream: BinaryIO) -> AsyncIterator[bytes]:
    """What `stream` holds, as it comes: a terminal's line at once, a file's bytes in large pieces."""
    if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk
        return
    loop = asyncio.get_running_loop()
    ready: asyncio.Queue[bytes] = asyncio.Queue(2)

    def pump() -> None:
        # A daemon thread of its own, not the loop's executor: Ctrl-C must not wait for the next line.
        while True:
            chunk = os.read(stream.fileno(), CHUNK_BYTES)
            try:
                asyncio.run_coroutine_threadsafe(ready.put(chunk), loop).result()
            except RuntimeError:
                return  # the loop is closed: nobody reads any more
            if not chunk:
                return

    threading.Thread(target=pump, name="stdin", daemon=True).start()
    while chunk := await ready.get():
        yield chunk
