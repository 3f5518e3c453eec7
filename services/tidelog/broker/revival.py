"""The next step for a partition that a disk error took offline: to wait, to open its log again, or to throw away what is bad.

Pure functions; the reviver acts on them.
"""

from enum import Enum
from typing import Final, NamedTuple

from tidelog.ids import NO_LEADER
from tidelog.storage.trouble import Trouble
from tidelog.wire import messages as m

PAUSE_MIN_S: Final = 1.0
PAUSE_MAX_S: Final = 60.0
REOPENS: Final = 2
"""Number of attempts to open a log as it is; one that fails each time is no copy of its records."""


class Step(Enum):
    WAIT = "nothing has changed that would help, or only an operator can"
    REOPEN = "what was written must be there again; then it goes on as before"
    DISCARD = "nobody counts this copy: what cannot be trusted is cut and fetched again"


class Pause(NamedTuple):
    """Between attempts: a disk that fails is not asked all the time."""

    attempts: int
    until: float

    def longer(self, now: float) -> "Pause":
        return Pause(self.attempts + 1, now + min(PAUSE_MAX_S, PAUSE_MIN_S * 2**self.attempts))

    def forgotten(self, now: float) -> bool:
        """It has held for long: the next failure is another story."""
        return now > self.until + PAUSE_MAX_S


NO_PAUSE: Final = Pause(0, float("-inf"))


def next_step(
    trouble: Trouble,
    broker_id: int,
    told: m.PartitionState | None,
    room_bytes: int,
    wanted_bytes: int,
    attempts: int = 0,
) -> Step:
    """`told` is what the controller said of the partition since it went offline. `attempts` to open it have failed.

    Records may be thrown away only where no in-sync set names this replica and none can come to name it: the controller
    knows of the failure (`offline_replicas`), so it admits this replica nowhere, and somebody else leads. A controller that
    follows it hears of the failure before it admits anybody, since the failure is reported until all has been fetched
    again. The last copy is left as it is, for an operator (HOLE-27, row 32).
    """
    expendable = told is not None and _nobody_counts(broker_id, told)
    match trouble:
        case Trouble.NO_SPACE:
            return Step.REOPEN if room_bytes >= wanted_bytes else Step.WAIT
        case Trouble.IO:
            return Step.DISCARD if expendable and attempts >= REOPENS else Step.REOPEN
        case Trouble.SYNC | Trouble.DAMAGE:
            return Step.DISCARD if expendable else Step.WAIT


def _nobody_counts(broker_id: int, told: m.PartitionState) -> bool:
    return (
        broker_id in told.offline_replicas
        and told.leader not in (NO_LEADER, broker_id)
        and all(member.broker_id != broker_id for member in told.isr)
    )
