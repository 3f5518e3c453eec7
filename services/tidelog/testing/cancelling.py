"""Cancellation at a chosen suspension: a test goes through all of them, one run after the other."""

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

from tidelog.errors import TransportError

T = TypeVar("T")


class Cancelled(Generic[T]):
    """A call whose task is cancelled at the call's `at`-th suspension, counted from 1; it is awaited once.

    What the task waits for is cancelled at once, as `Task.cancel` does. The call hears of it `late_s` seconds later. A busy loop
    has such a gap: what comes in it finds a waiter that is gone, before any `finally` has run.
    """

    def __init__(self, call: Coroutine[Any, Any, T], at: int, late_s: float = 0.0) -> None:
        self._call = call
        self._at = at
        self._late_s = late_s
        self.reached = False
        """The call has got to that suspension."""

    def __await__(self) -> Generator[Any, Any, T]:
        task = asyncio.current_task()
        assert task is not None
        suspensions = 0
        resume = partial(self._call.send, None)
        while True:
            try:
                waits_for = resume()
            except StopIteration as done:
                found: T = done.value
                return found
            suspensions += 1
            if suspensions == self._at:
                self.reached = True
                task.cancel()
            sent = None
            try:
                with suppress(Exception):  # the future raises it once more, in the call
                    sent = yield waits_for
                resume = partial(self._call.send, sent)
            except asyncio.CancelledError as error:
                if suspensions == self._at and self._late_s:
                    yield from asyncio.sleep(self._late_s).__await__()
                resume = partial(self._call.throw, error)


class CancelledHandler:
    """Cancels the first call of a method that a simulated server gets, as the end of its caller would. For
    `SimNetwork.on_call`."""

    def __init__(self, method: str, at: int, late_s: float = 0.0) -> None:
        """`method` without its service; `at` and `late_s` as of `Cancelled`."""
        self._method = method
        self._at = at
        self._late_s = late_s
        self._call: Cancelled[Any] | None = None

    @property
    def called(self) -> bool:
        """True once the method has been called."""
        return self._call is not None

    @property
    def reached(self) -> bool:
        """True once the handler has been cancelled."""
        return self._call is not None and self._call.reached

    async def __call__(self, path: str, call: Coroutine[Any, Any, T]) -> T:
        if self._call is not None or path.rpartition("/")[2] != self._method:
            return await call
        cancelled: Cancelled[T] = Cancelled(call, self._at, self._late_s)
        self._call = cancelled
        try:
            return await cancelled
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not cancelled.reached or task is None:
                raise
            task.uncancel()
            raise TransportError("CANCELLED", "the call was cancelled") from None
