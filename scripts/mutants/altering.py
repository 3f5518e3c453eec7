"""Objects that look different to one call: what a mutant needs so that it can call the original and not copy it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def altered(owner: object, **fields: object) -> Iterator[None]:
    """The fields of `owner` have these values in the block, and their own ones after it."""
    kept = {name: getattr(owner, name) for name in fields}
    try:
        for name, each in fields.items():
            setattr(owner, name, each)
        yield
    finally:
        for name, each in kept.items():
            setattr(owner, name, each)


class Seen:
    """`real` with some attributes that say something else."""

    def __init__(self, real: object, **instead: object) -> None:
        self.__dict__.update(instead)
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)
