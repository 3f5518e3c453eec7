"""Answers that come together item by item, in any order."""

from typing import Generic, TypeVar

T = TypeVar("T")


class Gather(Generic[T]):
    """One request's results; complete when each of its items has one."""

    def __init__(self, size: int) -> None:
        self._results: list[T | None] = [None] * size
        self._missing = size

    def put(self, slot: int, result: T) -> None:
        assert self._results[slot] is None, f"item {slot} has been answered: {self._results[slot]}"
        self._results[slot] = result
        self._missing -= 1

    def complete(self) -> tuple[T, ...] | None:
        """All results in the order asked, or None while one is missing."""
        if self._missing:
            return None
        return tuple(result for result in self._results if result is not None)
