"""What a fault is: it is injected, it is seen to have taken effect, and it is healed, whatever happens to the run.

A fault declares the parameters that a scenario may give it, what it may hit and where it cannot be played, so that a
scenario can be refused before anything starts. Its undoing is known to `InForce` before it does anything: a run that is
interrupted in the middle of an injection is undone as well.
"""

import asyncio
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from types import FrameType, TracebackType
from typing import Any, ClassVar, Final, Self, TypeVar

from tidelog.client.admin import Admin
from tidelog.cluster.api import Cluster, ClusterError
from tidelog.ports.clock import Clock
from tidelog.ports.rand import Rand
from tidelog.runtime.tasks import Supervisor

T = TypeVar("T")

LOOK_AGAIN_S: Final = 0.1
_ENDS: Final = (signal.SIGTERM, signal.SIGHUP)
"""What ends a program as Ctrl-C does: somebody stops it, or closes its terminal."""
_INTERRUPTS: Final = (signal.SIGINT, *_ENDS)


class On(StrEnum):
    """Where a scenario runs."""

    LOCAL = "local"
    COMPOSE = "compose"


class FaultMissed(Exception):
    """The fault did not take effect, so the run says nothing about it."""


def parameter(default: str, parse: Callable[[str], Any], about: str) -> Any:
    """A field of a fault that a scenario may give; `parse` takes its text, ValueError says what is wrong with it."""
    return field(default=parse(default), metadata={"written": default, "parse": parse, "about": about})


@dataclass(frozen=True, slots=True)
class OneOf:
    """Parses one of a few words."""

    choices: tuple[str, ...]
    make: Callable[[str], Any] = str

    def __call__(self, text: str) -> Any:
        if text not in self.choices:
            raise ValueError(f"{text!r} is none of {', '.join(self.choices)}")
        return self.make(text)


def one_of(*choices: str) -> OneOf:
    return OneOf(choices)


async def to_the_end(act: Callable[..., T], *arguments: object) -> T:
    """In a thread, beside the load. Whoever is cancelled meanwhile waits for its end: an act is never half done."""
    acting = asyncio.get_running_loop().run_in_executor(None, partial(act, *arguments))
    try:
        return await asyncio.shield(acting)
    except asyncio.CancelledError:
        while not acting.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([acting])
        raise


class Injected:
    """A fault in force. It may be healed more than once: from the loop, or with `undo` where there is none any more."""

    def __init__(self, name: str, targets: Sequence[str], undo: Callable[[], None]) -> None:
        self.name = name
        self.targets = tuple(targets)
        self.effect = ""
        """What was seen, for people."""
        self.observed: dict[str, object] = {}
        """The same as values, for the expectations of a scenario."""
        self._undo = undo
        self._lock = threading.Lock()
        self._over = threading.Event()

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def undo(self) -> None:
        """ClusterError when it could not be healed; then it may be tried again."""
        with self._lock:
            if not self.over:
                self._undo()
                self._over.set()

    async def heal(self) -> None:
        await to_the_end(self.undo)


class InForce:
    """The faults of a run that are not healed yet. A context manager around the run's event loop: on its way out it undoes
    them, and no Ctrl-C keeps it from that."""

    def __init__(self) -> None:
        self._injected: list[Injected] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with interrupts_wait():
            self.undo_all()

    def begin(self, name: str, targets: Sequence[str], undo: Callable[[], None]) -> Injected:
        """Before the fault does anything. `undo` looks at what is to be undone: there may be nothing yet, or a part."""
        injected = Injected(name, targets, undo)
        self._injected.append(injected)
        return injected

    @property
    def left(self) -> list[Injected]:
        return [injected for injected in self._injected if not injected.over]

    def undo_all(self) -> None:
        """The newest first; one that cannot be undone does not keep the others. ClusterError names what is left."""
        undo_each(partial(_undo_named, injected) for injected in reversed(self.left))

    async def heal_all(self) -> None:
        await to_the_end(self.undo_all)


def undo_each(undos: Iterable[Callable[[], None]]) -> None:
    """In their order, each of them whatever becomes of the others. ClusterError tells of all that went wrong."""
    problems: list[str] = []
    with ExitStack() as stack:
        for undo in reversed([*undos]):
            stack.callback(_noting, undo, problems)
    if problems:
        raise ClusterError("; ".join(problems))


def _noting(undo: Callable[[], None], problems: list[str]) -> None:
    try:
        undo()
    except (ClusterError, OSError) as error:
        problems.append(str(error))


def _undo_named(injected: Injected) -> None:
    try:
        injected.undo()
    except (ClusterError, OSError) as error:
        raise ClusterError(f"{injected.name} of {', '.join(injected.targets)} is still in force: {error}") from error


@dataclass(frozen=True, slots=True)
class Bed:
    """What a fault lies in."""

    cluster: Cluster
    on: On
    admin: Admin
    topic: str
    """`leader of 0` leads this topic's partition 0."""
    clock: Clock
    rand: Rand
    tasks: Supervisor
    """For what a fault does again and again while it lasts."""
    in_force: InForce
    say: Callable[[str], None] = lambda what: None

    async def until(self, seen: Callable[[], bool], what: str, timeout_s: float) -> None:
        """FaultMissed when `seen` does not come; it is asked in a thread."""
        deadline = self.clock.now() + timeout_s
        while not await to_the_end(seen):
            if self.clock.now() >= deadline:
                raise FaultMissed(f"{timeout_s:g} s without {what}")
            await self.clock.sleep(LOOK_AGAIN_S)

    @asynccontextmanager
    async def injecting(
        self, fault: "Fault", targets: Sequence[str], undo: Callable[[], None]
    ) -> AsyncIterator[Injected]:
        """Around an injection: when it misses, or is interrupted, it is undone at once."""
        injected = self.in_force.begin(fault.name, targets, undo)
        took = False
        try:
            yield injected
            took = True
        finally:
            if not took:
                await injected.heal()


class Fault(ABC):
    """A frozen dataclass whose fields are its parameters."""

    name: ClassVar[str]
    about: ClassVar[str]
    """One line for people."""
    hits: ClassVar[frozenset[str]]
    """Kinds of process that it can be aimed at."""
    not_on: ClassVar[Mapping[On, str]] = {}
    """Where it cannot be played whatever its parameters are, and why."""
    passes: ClassVar[bool] = False
    """Its effect, once seen, is its end: nothing of it lasts."""
    destroys: ClassVar[bool] = False
    """It takes data away, which no healing brings back."""
    needs_proxy: ClassVar[bool] = False
    """A local cluster's links have to run through the proxy."""

    def why_not(self, on: On) -> str | None:
        """Why it cannot be played there, or None."""
        return self.not_on.get(on)

    def check(self, cluster: Cluster) -> None:
        """ClusterError when this cluster cannot have it; asked before there is a load."""
        return  # most can be played on any

    @abstractmethod
    async def inject(self, bed: Bed, targets: Sequence[str]) -> Injected:
        """Returns when the effect was seen; FaultMissed when it was not to be seen, and then it is undone already."""


@contextmanager
def ends_as_interrupt() -> Iterator[None]:
    """SIGTERM and a hang-up are a Ctrl-C inside, so that they too leave no fault behind; one that is ignored stays so. For the
    main thread."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        if (
            signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        ):  # as in the background of a script, where Ctrl-C means others
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    before = {number: signal.getsignal(number) for number in _ENDS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """A Ctrl-C, a SIGTERM or a hang-up inside comes through behind it, unless an error does, which has more to say. For the main
    thread."""
    waiting: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        waiting.append(number)

    before = [(number, signal.signal(number, note)) for number in _INTERRUPTS]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
    for interrupt in dict.fromkeys(waiting):
        signal.raise_signal(interrupt)
