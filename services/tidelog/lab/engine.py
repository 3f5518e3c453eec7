"""A lab's cluster and the loop that it runs in: what `Lab` and stories share."""

import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tidelog.lab.cluster import LabCluster, LabError
from tidelog.testing.drive import Drive
from tidelog.testing.invariants import Violation
from tidelog.testing.sim_node import Timing

T = TypeVar("T")


class Engine:
    def __init__(self, seed: int, brokers: int, controllers: int, timing: Timing, *, invariants: bool) -> None:
        self._thread = threading.get_ident()
        self._busy = self._closed = False
        self._violation: Violation | None = None
        self._drive = Drive(seed)
        self._cluster = LabCluster(seed, brokers, controllers, timing, self._drive, invariants=invariants)
        self._drive.watching = self._cluster.watching
        if invariants:
            self._drive.loop.after_step = self._cluster.after_step

    def start(self) -> None:
        """Returns when the cluster is up."""
        self.do(self._cluster.start())

    @property
    def cluster(self) -> LabCluster:
        """For a look; what is done to it goes through `act`. LabError."""
        self._check(looks=True)
        return self._cluster

    @property
    def time(self) -> float:
        """Seconds of virtual time since the lab began."""
        return self._drive.loop.time()

    @property
    def violation(self) -> str:
        """The first invariant that did not hold; "" as long as all do."""
        return "" if self._violation is None else str(self._violation)

    def _check(self, *, looks: bool = False) -> None:
        if threading.get_ident() != self._thread:
            raise LabError("this lab belongs to another thread; a lab is used in the thread that made it")
        if self._closed:
            raise LabError("this lab is closed; make another one with Lab()")
        if self._busy and not looks:
            raise LabError("this lab is in the middle of a call, such as until; it cannot be changed from within")

    def _check_moves(self) -> None:
        """LabError, Violation: the simulation cannot go on."""
        self._check()
        if self._violation is not None:
            raise self._violation

    def do(self, coro: Coroutine[Any, Any, T]) -> T:
        """Runs the simulation until `coro` returns. LabError, Violation, and what `coro` raises."""
        try:
            self._check_moves()
        except (LabError, Violation):
            coro.close()
            raise
        with self._working():
            return self._drive.run(coro)

    def advance(self, until_s: float, halted: Callable[[], bool] = lambda: False) -> bool:
        """Lets time pass up to `until_s`, or until `halted` is true after a step. Advances in parts add up to one advance.

        Returns False if it was halted. LabError, Violation.
        """
        with self._working():
            return self._drive.advance(until_s, halted)

    @contextmanager
    def _working(self) -> Iterator[None]:
        self._check_moves()
        self._busy = True
        try:
            yield
        except Violation as error:
            self._violation = error
            raise
        finally:
            self._busy = False

    def act(self, act: Callable[[], T]) -> T:
        """Does something that takes no time. LabError, Violation."""
        with self._working():
            return self._drive.call(act)

    def run(self, seconds: float) -> None:
        self.advance(self.time + seconds)

    def close(self) -> None:
        """Ends every process. Further calls do nothing. LabError."""
        if not self._closed:
            self._check()
            self._closed = True
            self._drive.finish()
