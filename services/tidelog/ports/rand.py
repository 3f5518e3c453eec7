"""Randomness, as a port: jitter, ids and the choice among equals come from here, so that a seed repeats a run."""

from typing import Protocol


class Rand(Protocol):
    """`random.Random` is the real adapter; the simulator passes a seeded one."""

    def random(self) -> float: ...

    def randrange(self, stop: int, /) -> int: ...

    def randbytes(self, n: int, /) -> bytes: ...
