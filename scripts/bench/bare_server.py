"""The bare gRPC server of the references: no log, no protocol, bytes in and out. `python -m bench.bare_server`.

Prints its port. `/bare/Stream` answers each frame of a bidirectional stream with an empty one; `/bare/Echo` returns the
request of a unary call. Same event loop, same library and same limits as our own servers.
"""

import asyncio
import sys
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
]


async def stream(frames: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
    async for _ in frames:
        yield b""


async def echo(request: bytes, _context: Any) -> bytes:
    return request


async def serve() -> None:
    server = aio.server(options=OPTIONS)
    handlers = {
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
