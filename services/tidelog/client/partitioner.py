"""Which partition a record goes to: by key as Kafka does, else sticky for one batch (KIP-480). Pure."""

from collections.abc import Sequence
from functools import lru_cache

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


@lru_cache(maxsize=16384)
def murmur2(key: bytes) -> int:
    """Kafka's `Utils.murmur2` as an unsigned 32-bit number; cached because keys repeat and Python hashes slowly."""
    length = len(key)
    h = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole != length:
        h = (h ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_for_key(key: bytes, partitions: int) -> int:
    """`toPositive(murmur2(key)) % partitions`: where every Kafka client puts this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def next_sticky(available: Sequence[int], partitions: int, previous: int, draw: float) -> int:
    """The partition that null keys stay on until its batch is closed: another one than `previous` if there is one.

    `available` are the partitions with a leader; without any, all are. `draw` is uniform in [0, 1).
    """
    choices = [p for p in (available or range(partitions)) if p != previous]
    if not choices:
        return previous if previous >= 0 else 0
    return choices[int(draw * len(choices))]
