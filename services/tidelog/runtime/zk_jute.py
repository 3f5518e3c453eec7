"""ZooKeeper's bytes of the two requests that carry thousands of operations: multi, and many reads in one (multiRead, 3.6).

kazoo builds and reads a multi through four objects an operation, which was most of what a failover of 10,000 partitions
cost (B1.04); and it knows no request for many reads (performance 4.4).
"""

import struct
from collections.abc import Sequence
from typing import Final

from tidelog.ports.meta import Check, Create, Delete, Op, SetData, Stat

MULTI: Final = 14
MULTI_READ: Final = 22
DELETE: Final = 2
GET_DATA: Final = 4
SET_DATA: Final = 5
CHECK: Final = 13
CREATE_2: Final = 15
ERROR: Final = -1
EPHEMERAL_FLAG: Final = 1

_INT: Final = struct.Struct("!i")
_HEADER: Final = struct.Struct("!iBi")
"""Before each operation and each result: type, done, error."""
_PATH: Final = struct.Struct("!iBii")
"""The header, and the length of the path that follows it."""
_STAT: Final = struct.Struct("!qq16xi8xq16x")
"""czxid, mzxid, (ctime, mtime,) version, (cversion, aversion,) ephemeralOwner, (dataLength, numChildren, pzxid)."""
_END: Final = _HEADER.pack(-1, 1, -1)
_NO_WATCH: Final = b"\0"
_ALL_RIGHTS: Final = 31
_OPEN_ACL: Final = struct.pack("!iii5si6s", 1, _ALL_RIGHTS, 5, b"world", 6, b"anyone")

Result = Stat | int | None
"""Of one operation: what it made of the znode where that is told, or the server's error number."""


def encode_multi(ops: Sequence[Op]) -> bytes:
    parts: list[bytes] = []
    for op in ops:
        path = op.path.encode()
        if type(op) is SetData:
            parts += (
                _PATH.pack(SET_DATA, 0, -1, len(path)),
                path,
                _INT.pack(len(op.data)),
                op.data,
                _INT.pack(op.version),
            )
        elif type(op) is Create:
            parts += (
                _PATH.pack(CREATE_2, 0, -1, len(path)),
                path,
                _INT.pack(len(op.data)),
                op.data,
                _OPEN_ACL,
                _INT.pack(EPHEMERAL_FLAG if op.ephemeral else 0),
            )
        else:
            assert isinstance(op, Delete | Check)
            kind = DELETE if type(op) is Delete else CHECK
            parts += (_PATH.pack(kind, 0, -1, len(path)), path, _INT.pack(op.version))
    parts.append(_END)
    return b"".join(parts)


def decode_multi(data: bytes, offset: int) -> list[Result]:
    """One result for each operation. struct.error if the answer is cut off."""
    results: list[Result] = []
    while True:
        kind, done, _ = _HEADER.unpack_from(data, offset)
        offset += _HEADER.size
        if done:
            return results
        if kind in (SET_DATA, CREATE_2):
            if kind == CREATE_2:
                offset += _INT.size + max(0, _INT.unpack_from(data, offset)[0])
            czxid, mzxid, version, owner = _STAT.unpack_from(data, offset)
            offset += _STAT.size
            results.append(Stat(version, czxid, mzxid, owner))
        elif kind == ERROR:
            results.append(_INT.unpack_from(data, offset)[0])
            offset += _INT.size
        else:
            results.append(None)


def encode_reads(paths: Sequence[str]) -> bytes:
    parts: list[bytes] = []
    for path in paths:
        encoded = path.encode()
        parts += (_PATH.pack(GET_DATA, 0, -1, len(encoded)), encoded, _NO_WATCH)
    parts.append(_END)
    return b"".join(parts)


def decode_reads(data: bytes, offset: int) -> list[tuple[bytes, Stat] | int]:
    """What each path holds, or the server's error number. struct.error if the answer is cut off."""
    found: list[tuple[bytes, Stat] | int] = []
    while True:
        kind, done, _ = _HEADER.unpack_from(data, offset)
        offset += _HEADER.size
        if done:
            return found
        if kind == ERROR:
            found.append(_INT.unpack_from(data, offset)[0])
            offset += _INT.size
            continue
        (length,) = _INT.unpack_from(data, offset)
        begin = offset + _INT.size
        offset = begin + max(0, length)  # -1: a znode that somebody created without data
        czxid, mzxid, version, owner = _STAT.unpack_from(data, offset)
        found.append((bytes(data[begin:offset]), Stat(version, czxid, mzxid, owner)))
        offset += _STAT.size
