"""The codecs of record batches, with a limit on what comes out: a few bytes can claim to be gigabytes (a bomb)."""

import zlib
from collections.abc import Callable
from typing import Final

import cramjam

from tidelog.errors import TidelogError
from tidelog.wire.batch import Buffer, Codec, corrupt, invalid

_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD_BYTES: Final = 16
_XERIAL_VERSIONS: Final = (1).to_bytes(4, "big") * 2
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_LZ4_LEVEL: Final = 1
"""Of those from 3 on each takes several times as long for a few percent."""
_FIRST_GUESS: Final = 16
"""Times the compressed size; a batch that needs more is tried again with more."""
_GROWTH: Final = 16
_TOO_SMALL: Final = "failed to write whole buffer"


def inflate(codec: int, data: Buffer, bytes_max: int) -> bytes:
    """What `data` was compressed from. INVALID_RECORD when that is over `bytes_max`, CORRUPT_MESSAGE when it is damaged."""
    if codec == Codec.NONE:
        return bytes(data)
    try:
        match codec:
            case Codec.GZIP:
                return _gzip(data, bytes_max)
            case Codec.SNAPPY:
                return _snappy(bytes(data), bytes_max)
            case Codec.LZ4:
                return _growing(cramjam.lz4.decompress_into, data, bytes_max)
            case Codec.ZSTD:
                return _growing(cramjam.zstd.decompress_into, data, bytes_max)
    except (cramjam.DecompressionError, zlib.error, ValueError) as error:
        raise corrupt(f"records: damaged {Codec(codec).name.lower()} data: {error}") from error
    raise invalid(f"attributes: codec {codec}, known are 0 to {max(Codec)}")


def too_large(bytes_max: int) -> TidelogError:
    """What `inflate` raises for data that may well be whole."""
    return invalid(f"records: more than {bytes_max} bytes when decompressed, which is the limit")


def _gzip(data: Buffer, bytes_max: int) -> bytes:
    inflater = zlib.decompressobj(wbits=31)
    out = inflater.decompress(data, bytes_max + 1)
    if len(out) > bytes_max:
        raise too_large(bytes_max)
    if not inflater.eof:
        raise ValueError("it ends too early")
    if inflater.unused_data:
        raise ValueError(f"{len(inflater.unused_data)} bytes follow its end")
    return out


def _snappy(data: bytes, bytes_max: int) -> bytes:
    if not data.startswith(_XERIAL):
        return _snappy_block(data, bytes_max, bytes_max)
    parts: list[bytes] = []
    at, room = _XERIAL_HEAD_BYTES, bytes_max
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if at + 4 + size > len(data) or not size:
            raise ValueError(f"a block of {size} bytes at position {at}")
        parts.append(_snappy_block(data[at + 4 : at + 4 + size], room, bytes_max))
        room -= len(parts[-1])
        at += 4 + size
    return b"".join(parts)


def _snappy_block(data: bytes, room: int, bytes_max: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(data) > room:
        raise too_large(bytes_max)
    return bytes(cramjam.snappy.decompress_raw(data))


def _growing(into: Callable[[bytes, bytearray], int], data: Buffer, bytes_max: int) -> bytes:
    size = min(bytes_max, max(len(data), 64) * _FIRST_GUESS)
    while True:
        out = bytearray(size)
        try:
            return bytes(memoryview(out)[: into(bytes(data), out)])
        except cramjam.DecompressionError as error:
            if _TOO_SMALL not in str(error):
                raise
        if size == bytes_max:
            raise too_large(bytes_max)
        size = min(bytes_max, size * _GROWTH)


def deflate(codec: int, data: bytes) -> bytes:
    """What `inflate` gives back as `data`, in the framing that Kafka's clients read."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return zlib.compress(data, wbits=31)
        case Codec.SNAPPY:
            return _xerial(data)
        case Codec.LZ4:
            return _lz4(data)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data))
    raise invalid(f"attributes: codec {codec}, known are 0 to {max(Codec)}")


def _lz4(data: bytes) -> bytes:
    """Blocks that do not depend on each other: Kafka's clients read no other ones (KIP-57). The fast level, as Kafka's own."""
    compressor = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


def _xerial(data: bytes) -> bytes:
    """snappy-java's stream, which Kafka's clients expect: a head with two version numbers, then blocks with their sizes."""
    parts = [_XERIAL, _XERIAL_VERSIONS]
    for at in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK_BYTES]))
        parts += [len(block).to_bytes(4, "big"), block]
    return b"".join(parts)
