"""Injects faults and heals them, and tells of each step: where it is written down, and on the boards."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tidelog.chaos.faults.base import Bed, Fault, Injected
from tidelog.chaos.metrics import ChaosMetrics
from tidelog.ids import NO_LEADER


class Book(Protocol):
    """Takes down the steps of faults."""

    def now(self) -> float:
        """Seconds since it began."""
        ...

    def next_fault(self) -> int: ...

    def fault(self, number: int, fault: str, what: str, targets: Sequence[str], name: str) -> None:
        """what: `begin`, `effect` (it was seen), `heal`, `healed`."""
        ...


class State(Protocol):
    """The state of a partition, as it was seen."""

    @property
    def leader(self) -> int: ...

    @property
    def isr(self) -> Sequence[int]: ...

    @property
    def replicas(self) -> Sequence[int]: ...


class InEffect(NamedTuple):
    text: str
    fault: Fault
    injected: Injected


@dataclass(slots=True)
class Injector:
    book: Book
    metrics: ChaosMetrics
    active: dict[int, InEffect] = field(default_factory=dict)
    """Faults that are not healed yet, by their numbers."""
    _healing: set[int] = field(default_factory=set)
    _recovering: list[tuple[str, float]] = field(default_factory=list)
    """(fault, when it was healed) of those after which the cluster was not seen whole yet."""

    async def inject(self, bed: Bed, fault: Fault, targets: Sequence[str], text: str) -> tuple[int, Injected]:
        """Returns the number of the fault once its effect was seen. FaultMissed, ClusterError, TidelogError, TransportError."""
        number = self.book.next_fault()
        self.book.fault(number, fault.name, "begin", targets, text)
        injected = await fault.inject(bed, targets)
        self.book.fault(number, fault.name, "effect", targets, text)
        self.metrics.began(fault.name, targets)
        self.active[number] = InEffect(text, fault, injected)
        return number, injected

    async def heal(self, number: int) -> None:
        """May be called again if it was interrupted. ClusterError."""
        text, fault, injected = self.active[number]
        if number not in self._healing:
            self._healing.add(number)
            self.book.fault(number, fault.name, "heal", injected.targets, text)
        await injected.heal()
        if self.active.pop(number, None) is None:
            return  # another heal of it was under way
        self.book.fault(number, fault.name, "healed", injected.targets, text)
        self.metrics.ended(fault.name, injected.targets)
        self._recovering.append((fault.name, self.book.now()))

    def looked(self, partitions: Sequence[State], at: float) -> None:
        """Tells the boards how long the cluster took to be whole again.

        partitions: all, as they were seen at this time of the book.
        """
        if not partitions or any(each.leader == NO_LEADER or {*each.isr} != {*each.replicas} for each in partitions):
            return
        for name, healed in [each for each in self._recovering if each[1] <= at]:
            self.metrics.recovered(name, at - healed)
            self._recovering.remove((name, healed))
