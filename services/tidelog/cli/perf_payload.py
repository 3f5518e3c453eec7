"""The values that `tidelog perf produce` sends. Pure, but for the file that it is given."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidelog.cli.errors import CommandError
from tidelog.ports.rand import Rand

Payload = Callable[[int], bytes]
"""The value of the n-th record, from 0 on."""

FILE_BYTES_MAX: Final = 256 << 20
LETTERS: Final = bytes(ord("A") + byte % 26 for byte in range(256))
"""By which any byte becomes a capital letter."""
POOL_BYTES: Final = 1 << 20
"""Letters that random values are cut from: more than a batch holds, so that none compresses because it repeats itself."""
STEP: Final = 7919
"""A prime: values begin in other places each time around."""


def random_values(size_bytes: int, rand: Rand) -> Payload:
    """Capital letters, as Kafka's tool sends."""
    pool = rand.randbytes(POOL_BYTES + size_bytes).translate(LETTERS)

    def value(n: int) -> bytes:
        at = n * (size_bytes + STEP) % POOL_BYTES
        return pool[at : at + size_bytes]

    return value


def numbers(n: int) -> bytes:
    """0, 1, 2, ... as text."""
    return b"%d" % n


def values_of(file: Path, delimiter: str, rand: Rand) -> Payload:
    """One of the file's values for each record, drawn at random; CommandError for a file without any, or too large."""
    size = file.stat().st_size
    if size > FILE_BYTES_MAX:
        raise CommandError(f"--payload-file {file}: {size} bytes; at most {FILE_BYTES_MAX} are kept in memory", 2)
    separator = delimiter.replace("\\n", "\n").replace("\\t", "\t").encode()
    if not separator:
        raise CommandError("--payload-delimiter is empty", 2)
    found = [value for value in file.read_bytes().split(separator) if value]
    if not found:
        raise CommandError(f"--payload-file {file} holds no value", 2)
    return lambda n: found[int(rand.random() * len(found))]
