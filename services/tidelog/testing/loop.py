"""The simulator's event loop: time is virtual, order is seeded, and a deadlock is an error (reliability 4.3).

It never waits: when nothing is ready the clock jumps to the next timer. Steps of tasks that are ready together are shuffled
by the seed; callbacks of `call_soon` keep their order, which libraries rely on. Equal seeds give equal runs as long as
nothing above iterates over a set of objects.

A `SimProcess` is a group of tasks that can be stopped and killed as SIGSTOP and SIGKILL do: not a line of theirs runs then.
"""

import asyncio
import contextvars
import heapq
import itertools
import math
import random
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from tidelog.runtime.tasks import Supervisor

T = TypeVar("T")

_FINISH_S = 3600.0
_STEPS_AT_ONCE_MAX = 200_000
"""Without a move of the clock; while the loop finishes, in all."""

_PROCESS: contextvars.ContextVar["SimProcess"] = contextvars.ContextVar("process")


class Deadlock(Exception):
    """Every task waits, and no timer is left that could wake one."""


class Livelock(Exception):
    """Tasks wake each other without end, and no time passes."""


class SimProcess:
    """Tasks that live and die together. A restart is a new SimProcess of the same name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.context = contextvars.Context()
        """Tasks that are made in it, and what they make, belong to the process."""
        self.context.run(_PROCESS.set, self)
        self.supervisor = Supervisor(name)
        self._held: list[_Handle] = []

    def runs_now(self) -> bool:
        """Returns whether the step or callback that runs belongs to this process."""
        return _PROCESS.get(None) is self

    def start(self, name: str, coro: Coroutine[Any, Any, T]) -> "asyncio.Task[T | None]":
        return self.supervisor.start(name, coro, context=self.context)

    def pause(self) -> None:
        """SIGSTOP: timers go on outside, but what they wake here runs after `resume`."""
        self.paused = True

    def resume(self) -> None:
        """SIGCONT."""
        self.paused = False
        held, self._held = self._held, []
        if held and self.alive:
            _running()._ready.extend(held)

    def kill(self) -> None:
        """SIGKILL: no `finally` of its tasks runs before the simulation is over."""
        self.alive = False

    def hold(self, handle: "_Handle") -> None:
        self._held.append(handle)

    def bury(self) -> "list[_Handle]":
        """The steps that were held back, so that the coroutines can be closed when the simulation is over."""
        held, self._held = self._held, []
        self.alive, self.paused = True, False
        return held


class _NumberedTask(asyncio.Task[Any]):
    """asyncio keeps tasks in sets and cancels a TaskGroup in their order; by address it would differ from run to run."""

    def __init__(
        self, number: int, coro: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop, **kwargs: Any
    ) -> None:
        self._number = number
        context = kwargs.get("context")
        self.process = _PROCESS.get(None) if context is None else context.get(_PROCESS)
        super().__init__(coro, loop=loop, **kwargs)

    def __hash__(self) -> int:
        return self._number


class _Handle(asyncio.TimerHandle):
    """Of `call_soon` and of `call_at`: asyncio's own look for the debug mode whenever one is made or cancelled."""

    __slots__ = ()

    _callback: Any
    _context: contextvars.Context
    _source_traceback = None
    _repr = None

    def __init__(
        self, callback: Any, args: tuple[Any, ...], loop: "SimLoop", context: contextvars.Context | None
    ) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = contextvars.copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        """A timer is dropped when its time comes."""
        self._cancelled = True
        self._callback, self._args = None, ()

    @property
    def task(self) -> asyncio.Task[Any] | None:
        """Whose step it is."""
        owner = getattr(self._callback, "__self__", None)
        return owner if isinstance(owner, asyncio.Task) else None


class SimLoop(asyncio.BaseEventLoop):
    """`seed` None keeps the order of tasks first in, first out."""

    _ready: deque[_Handle]
    _stopping: bool

    def __init__(self, seed: int | None = None) -> None:
        super().__init__()
        self._now = 0.0
        self._order = itertools.count()
        self._timers: list[tuple[float, int, _Handle]] = []
        self._turn: deque[_Handle] = deque()
        """Steps that are ready now and have not run yet; those that become ready meanwhile are of the next turn."""
        self._until = math.inf
        self._halted: Callable[[], bool] | None = None
        """The end of `advance`, while it runs."""
        self._reached = False
        self.must_go_on = False
        """`advance`, too, raises Deadlock where no timer is left; else the clock moves to its end."""
        self._shuffle = None if seed is None else random.Random(f"{seed}/loop")
        self.ended = False
        """Everything that is left is ended, or has been."""
        self._held_by: dict[SimProcess, None] = {}
        self._steps_before = 0
        """What `steps` was when the clock moved last; once the loop finishes, when that began."""
        self.steps = 0
        """Task steps and callbacks that have run."""
        self.on_step: Callable[[float, str], None] | None = None
        """Called with time and task name before each step of a task, for traces."""
        self.after_step: Callable[[], None] | None = None
        """Called after each step and callback, for invariants; what it raises ends the run."""
        numbers = itertools.count()
        self.set_task_factory(lambda loop, coro, **kwargs: _NumberedTask(next(numbers), coro, loop, **kwargs))

    def time(self) -> float:
        return self._now

    def work(self, seconds: float) -> None:
        """The step that runs takes so long; nothing else runs meanwhile."""
        self._now += seconds
        self._steps_before = self.steps

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        """As asyncio's, without its checks of the thread and the callback: it is called more often than anything else."""
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        """There are no threads."""
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Timers of one moment fire in the order in which they were set; asyncio's heap leaves it open."""
        timer = _Handle(callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> "asyncio.Future[Any]":
        """There are no threads: `func` runs here and now, its answer comes in a later turn."""
        future: asyncio.Future[Any] = self.create_future()
        result = func(*args)

        def answer() -> None:
            if not future.cancelled():
                future.set_result(result)

        self.call_soon(answer)
        return future

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        """No signal reaches a simulated process."""

    def remove_signal_handler(self, sig: int) -> bool:
        return False

    def finish(self) -> None:
        """Ends what is left, also of stopped and killed processes, and closes the loop.

        Who heeds no cancellation, or whose end is another's beginning, is left alone in the end: this follows a violation,
        which is to be heard of.
        """
        self.ended = True
        self.on_step = self.after_step = None
        self._steps_before = self.steps
        for process in self._held_by:
            self._ready.extend(process.bury())
        with suppress(Livelock):
            while left := asyncio.all_tasks(self):
                for task in sorted(left, key=hash):  # in the order in which they were made
                    task.cancel()
                _, stuck = self.run_until_complete(asyncio.wait(left, timeout=_FINISH_S))
                if stuck:
                    break
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # what asyncio would say was done on purpose
        self.close()

    # What BaseEventLoop asks of a concrete loop.

    def _run_once(self) -> None:
        """Turn after turn until the loop is to stop, which is all that BaseEventLoop asks between two of them."""
        ready, timers, turn = self._ready, self._timers, self._turn
        while True:
            if not turn:
                if not ready and not self._stopping:
                    self._jump()
                if self.steps - self._steps_before > _STEPS_AT_ONCE_MAX:
                    raise Livelock(
                        f"at {self._now:.3f} s {_STEPS_AT_ONCE_MAX} steps have run, and there is no end of it"
                    )
                while timers and timers[0][0] <= self._now:
                    ready.append(heapq.heappop(timers)[2])
                turn.extend(ready)
                ready.clear()
                if len(turn) > 1 and self._shuffle is not None:
                    self._shuffle_steps(self._shuffle)
            while turn:
                self._run_handle(turn.popleft())
                if self._halted is not None and self._halted():
                    self._stopping = True
                    return
            if self._stopping:
                return

    def _shuffle_steps(self, rand: random.Random) -> None:
        turn = self._turn
        places = [i for i, handle in enumerate(turn) if handle.task is not None]
        if len(places) > 1:
            steps = [turn[i] for i in places]
            rand.shuffle(steps)
            for place, handle in zip(places, steps, strict=True):
                turn[place] = handle

    def advance(self, until: float, halted: Callable[[], bool]) -> bool:
        """Runs everything that is due up to `until`, and moves the clock there. It adds no task and no timer, so that a run in
        many parts is the same as a run in one.

        halted: called after each step and callback; if it returns True, the loop stops there, in the middle of a turn perhaps,
            and the next run goes on with the rest of it.

        Returns False if it was halted.
        """
        self._until, self._halted = until, halted
        self._reached = False
        try:
            self.run_forever()
        finally:
            self._until, self._halted = math.inf, None
        return self._reached

    def _run_handle(self, handle: _Handle) -> None:
        if handle._cancelled:
            return
        process = handle._context.get(_PROCESS)
        if process is not None and (process.paused or not process.alive) and not self.ended and handle.task is not None:
            self._held_by[process] = None
            process.hold(handle)
            return
        if self.on_step is not None and (task := handle.task) is not None:
            self.on_step(self._now, task.get_name())
        self.steps += 1
        handle._run()
        if self.after_step is not None:
            self.after_step()

    def _jump(self) -> None:
        """The clock moves to the next timer, or to the end of `advance`."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        due_s = timers[0][0] if timers else -math.inf if self.must_go_on else math.inf
        if self._halted is not None and due_s > self._until:
            self._now = max(self._now, self._until)
            self._reached = self._stopping = True
            return
        if not timers:
            waiting = sorted(task.get_name() for task in asyncio.all_tasks(self))
            raise Deadlock(f"at {self._now:.3f} s nothing can go on; waiting: {', '.join(waiting)}")
        self._now = max(self._now, timers[0][0])
        if not self.ended:
            self._steps_before = self.steps

    def _process_events(self, event_list: Any) -> None:
        """There are no sockets."""

    def _write_to_self(self) -> None:
        """Nobody sleeps, so nobody must be woken."""


def run(story: Coroutine[Any, Any, T], seed: int | None = None) -> T:
    """Runs `story` in virtual time and ends everything that it left behind."""
    loop = SimLoop(seed)
    try:
        return loop.run_until_complete(story)
    finally:
        loop.finish()


def tasks_outside() -> set[asyncio.Task[Any]]:
    """Tasks of the running loop that belong to no SimProcess."""
    return {task for task in asyncio.all_tasks() if getattr(task, "process", None) is None}


def work(seconds: float) -> None:
    """The caller computes for so long without a suspension."""
    _running().work(seconds)


def _running() -> SimLoop:
    loop = events.get_running_loop()
    assert isinstance(loop, SimLoop)
    return loop
