"""Requests parked until the high watermark passes them: each with a call of its own, so that one cancelled request cancels
no other."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from tidelog.errors import ErrorCode

T = TypeVar("T")

Settle = Callable[[ErrorCode], None]


def resolve(answer: "asyncio.Future[T]", result: T) -> None:
    """Sets the result unless it comes too late: a cancelled request is done at once, and gives up what it waits for only when
    its task runs again."""
    if not answer.done():
        answer.set_result(result)


class PendingProduces:
    """Produces of one partition waiting for their end to be committed, in ascending order of it."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Settle]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, end: int, settle: Settle) -> None:
        """`settle` is called with NONE when everything below `end` is committed, or with why it will not be."""
        waiting = self._waiting
        at = len(waiting)
        while at and waiting[at - 1][0] > end:  # a repetition waits for its original, which others have followed
            at -= 1
        waiting.insert(at, (end, settle))

    def complete_below(self, high_watermark: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            waiting.popleft()[1](ErrorCode.NONE)

    def fail(self, code: ErrorCode) -> None:
        while self._waiting:
            self._waiting.popleft()[1](code)
