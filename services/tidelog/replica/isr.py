"""The in-sync replicas of a partition as its leader knows them: a sum type, not flags (KIP-497 C4.02 to C4.04)."""

from typing import NamedTuple

from tidelog.values import value


class Member(NamedTuple):
    """A broker in one of its lives: the epoch tells whether it may have lost what it once held (KIP-903)."""

    broker_id: int
    broker_epoch: int


@value()
class Committed:
    """What the controller has stored, as far as this leader was told."""

    isr: frozenset[Member]

    @property
    def committed(self) -> "Committed":
        return self

    @property
    def maximal_isr(self) -> frozenset[Member]:
        return self.isr


@value()
class PendingExpand:
    committed: Committed
    joining: frozenset[Member]

    @property
    def maximal_isr(self) -> frozenset[Member]:
        # They count already: the controller may have stored them, and waiting for one too many loses nothing.
        return self.committed.isr | self.joining

    @property
    def proposed(self) -> frozenset[Member]:
        return self.committed.isr | self.joining


@value()
class PendingShrink:
    committed: Committed
    leaving: frozenset[Member]

    @property
    def maximal_isr(self) -> frozenset[Member]:
        # They count until the controller agrees: it may still elect one of them (HOLE-16).
        return self.committed.isr

    @property
    def proposed(self) -> frozenset[Member]:
        return self.committed.isr - self.leaving


@value()
class PendingRecovery:
    """Elected uncleanly: this leader reports back with the ISR as it is, and nobody joins before that counts (KIP-704)."""

    committed: Committed

    @property
    def maximal_isr(self) -> frozenset[Member]:
        return self.committed.isr

    @property
    def proposed(self) -> frozenset[Member]:
        return self.committed.isr


Pending = PendingExpand | PendingShrink | PendingRecovery
IsrState = Committed | Pending
