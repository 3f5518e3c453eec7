"""The bare gRPC server of the references: no log, no protocol, bytes in and out. `python -m bench.bare_server`.

Prints its port. `/bare/Stream` answers each frame of a bidirectional stream with an empty one; `/bare/Echo` returns the
request of a unary call; `/bare/Rounds` asks something on every stream of `/bare/Session` and waits for all answers. Same event
loop, same library and same limits as our own servers.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
from grpc import aio

from tidelog.runtime import loop

MESSAGE_BYTES_MAX: Final = 4 << 20
OPTIONS: Final = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", 10_000),
]


async def stream(frames: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
    async for _ in frames:
        yield b""


async def echo(request: bytes, _context: Any) -> bytes:
    return request


class Sessions:
    """Streams on which the server asks and the client answers."""

    def __init__(self) -> None:
        self._contexts: set[Any] = set()
        self._changed = asyncio.Event()

    async def session(self, _frames: AsyncIterator[bytes], context: Any) -> None:
        self._contexts.add(context)
        self._changed.set()
        try:
            await asyncio.Event().wait()  # until it is cancelled
        finally:
            self._contexts.discard(context)

    async def rounds(self, request: bytes, _context: Any) -> bytes:
        """Seconds for one round trip on every stream after the other, with a frame of each of the sizes."""
        wanted = json.loads(request)
        while len(self._contexts) < wanted["streams"]:
            self._changed.clear()
            await self._changed.wait()
        begin = time.perf_counter()
        for size in wanted["sizes"]:
            await asyncio.gather(*(self._ask(context, bytes(size)) for context in self._contexts))
        return str(time.perf_counter() - begin).encode()

    async def _ask(self, context: Any, frame: bytes) -> None:
        await context.write(frame)
        await context.read()


async def serve() -> None:
    server = aio.server(options=OPTIONS)
    sessions = Sessions()
    handlers = {
        "Session": grpc.stream_stream_rpc_method_handler(sessions.session),
        "Rounds": grpc.unary_unary_rpc_method_handler(sessions.rounds),
        "Stream": grpc.stream_stream_rpc_method_handler(stream),
        "Echo": grpc.unary_unary_rpc_method_handler(echo),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    # Ends with the process that started it, whose pipe this is.
    await asyncio.to_thread(sys.stdin.buffer.read)
    await server.stop(None)


if __name__ == "__main__":
    loop.run(serve())
