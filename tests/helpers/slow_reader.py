"""A client of gRPC that asks and does not read: it speaks HTTP/2 itself, and opens no window for answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tidelog.ids import Address

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADERS, _SETTINGS, _PING, _DATA = 1, 4, 6, 0
_ACK: Final = 1
_END_STREAM, _END_HEADERS = 1, 4
_INITIAL_WINDOW_SIZE: Final = 4


class SlowReader:
    """It answers pings, so that no keepalive finds it dead."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._stream = 1
        self.ended: dict[int, bytes] = {}
        """Frames that ended a stream, by its number."""

    @classmethod
    @asynccontextmanager
    async def connected(cls, address: Address) -> AsyncIterator["SlowReader"]:
        """Is connected, and answers pings, until the end of the context."""
        reader, writer = await asyncio.open_connection(*address)
        writer.write(_PREFACE + _frame(_SETTINGS, 0, 0, _INITIAL_WINDOW_SIZE.to_bytes(2) + (0).to_bytes(4)))
        self = cls(reader, writer)
        pings = asyncio.ensure_future(self._answer_pings())
        try:
            yield self
        finally:
            self.close()
            await pings

    def ask(self, path: str, request: bytes) -> int:
        """Sends a request, and returns the number of its stream."""
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "broker",
            "te": "trailers",
            "content-type": "application/grpc",
        }
        block = b"".join(b"\0" + _text(name) + _text(value) for name, value in headers.items())
        stream, self._stream = self._stream, self._stream + 2
        self._writer.write(_frame(_HEADERS, _END_HEADERS, stream, block))
        self._writer.write(_frame(_DATA, _END_STREAM, stream, b"\0" + len(request).to_bytes(4) + request))
        return stream

    async def _answer_pings(self) -> None:
        """Runs until the server closes the connection."""
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(3))
                kind, flags = await self._reader.readexactly(2)
                stream = int.from_bytes(await self._reader.readexactly(4))
                body = await self._reader.readexactly(size)
                if kind == _SETTINGS and not flags & _ACK:
                    self._writer.write(_frame(_SETTINGS, _ACK, 0, b""))
                elif kind == _PING and not flags & _ACK:
                    self._writer.write(_frame(_PING, _ACK, 0, body))
                elif stream and (kind == 3 or flags & _END_STREAM):
                    self.ended[stream] = body
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    def close(self) -> None:
        self._writer.close()


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + body


def _text(text: str) -> bytes:
    """Not in Huffman code; shorter than 127 bytes."""
    return bytes((len(text),)) + text.encode()
