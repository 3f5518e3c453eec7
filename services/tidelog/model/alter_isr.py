"""Model of reliability 3.5: one leader in one epoch, its ISR changed by the controller on AlterIsr (KIP-497).

Every message, once sent, may arrive late, never, or again. The order of the controller's checks is that of
`controller/alter_isr.py`: the same set is granted whatever its version, an older version is refused without effect, a member
that is not alive is refused for good. A leader proposes one change at a time and keeps it pending until it is told better.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from tidelog.model.search import Label

FOLLOWERS: Final = (0, 1)
NAMES: Final = "BC"
NO_CHANGE: Final = -1
LEADER: Final = "A"


class Counted(Enum):
    """Over whom the leader takes the minimum for its high watermark, while a change is pending."""

    MAXIMAL = "committed and pending members"
    COMMITTED = "committed members"
    PROPOSED = "proposed members"


@dataclass(frozen=True, slots=True)
class Rules:
    counted: Counted = Counted.MAXIMAL
    version_checked: bool = True
    """The controller refuses a proposal that was made on an older state."""
    kept_on_timeout: bool = True
    """A change of unknown outcome stays pending."""
    dead_for_good: bool = True
    """Whoever was once ineligible stays so: a broker that comes back does so in another life, under another epoch.

    A suspicion is different: it may pass.
    """
    repeats: bool = True
    """Messages may arrive again after they were answered."""


@dataclass(frozen=True, slots=True)
class Bounds:
    records: int
    versions: int
    """Changes of the stored state."""


class State(NamedTuple):
    """ISRs are masks of the followers; the leader is in each of them."""

    stored: tuple[int, ...]
    """ISR that the controller stored under version 0, 1, ..."""
    version: int
    """Of the state that the leader knows."""
    pending: int
    """ISR that the leader has proposed and heard nothing about, or NO_CHANGE."""
    end: int
    ends: tuple[int, int]
    hw: int
    sent: frozenset[tuple[int, int]]
    """(version, ISR) of every AlterIsr on the way, or arrived and perhaps to arrive again."""
    refused: frozenset[tuple[int, int]]
    """Answers INELIGIBLE_REPLICA on the way."""
    dead: int


class AlterIsrModel:
    """Property ValidHighWatermark: whoever is in the stored ISR, and so may be elected, holds all below the leader's HW."""

    def __init__(self, rules: Rules, bounds: Bounds) -> None:
        self.rules = rules
        self.bounds = bounds

    def initial(self) -> State:
        return State((3,), 0, NO_CHANGE, 0, (0, 0), 0, frozenset(), frozenset(), 0)

    def canonical(self, state: State) -> State:
        other = State(
            tuple(_swapped(isr) for isr in state.stored),
            state.version,
            _swapped(state.pending),
            state.end,
            (state.ends[1], state.ends[0]),
            state.hw,
            frozenset((version, _swapped(isr)) for version, isr in state.sent),
            frozenset((version, _swapped(isr)) for version, isr in state.refused),
            _swapped(state.dead),
        )
        return state if _order(state) <= _order(other) else other

    def violation(self, state: State) -> str | None:
        for i in FOLLOWERS:
            if state.stored[-1] >> i & 1 and state.ends[i] < state.hw:
                return (
                    f"LOST: {NAMES[i]} is in the stored ISR {isr_text(state.stored[-1])} and free to lead next; it holds "
                    f"{state.ends[i]} records where {LEADER} has shown {state.hw}"
                )
        return None

    def moves(self, state: State) -> list[tuple[Label, State]]:
        return [*self._data_moves(state), *self._leader_moves(state), *self._controller_moves(state)]

    def _data_moves(self, state: State) -> list[tuple[Label, State]]:
        out: list[tuple[Label, State]] = []
        if state.end < self.bounds.records:
            out.append((("write",), state._replace(end=state.end + 1)))
        for i in FOLLOWERS:
            if state.ends[i] < state.end:
                b, c = state.ends
                out.append((("fetch", i), state._replace(ends=(b + 1, c) if i == 0 else (b, c + 1))))
        counted = self._counted(state)
        ends = [state.end, *(state.ends[i] for i in FOLLOWERS if counted >> i & 1)]
        if min(ends) > state.hw:
            out.append((("advance", counted), state._replace(hw=state.hw + 1)))
        return out

    def _counted(self, state: State) -> int:
        committed = state.stored[state.version]
        if state.pending == NO_CHANGE or self.rules.counted is Counted.COMMITTED:
            return committed
        return state.pending if self.rules.counted is Counted.PROPOSED else committed | state.pending

    def _leader_moves(self, state: State) -> list[tuple[Label, State]]:
        out: list[tuple[Label, State]] = []
        committed = state.stored[state.version]
        if state.pending == NO_CHANGE:
            for i in FOLLOWERS:
                # A member may be dropped at any time: how far it lags is a matter of the clock.
                if committed >> i & 1 or state.ends[i] >= state.hw:
                    wanted = committed ^ 1 << i
                    sent = state.sent | {(state.version, wanted)}
                    out.append((("propose", wanted), state._replace(pending=wanted, sent=sent)))
        newer = range(state.version + 1, len(state.stored))
        out += [(("learn", version), state._replace(version=version, pending=NO_CHANGE)) for version in newer]
        answer = (state.version, state.pending)
        if answer in state.refused:
            refused = state.refused if self.rules.repeats else state.refused - {answer}
            out.append((("refused", state.pending), state._replace(pending=NO_CHANGE, refused=refused)))
        if not self.rules.kept_on_timeout and state.pending != NO_CHANGE:
            out.append((("forget", state.pending), state._replace(pending=NO_CHANGE)))
        return out

    def _controller_moves(self, state: State) -> list[tuple[Label, State]]:
        out: list[tuple[Label, State]] = []
        isr, version = state.stored[-1], len(state.stored) - 1
        full = version == self.bounds.versions
        for sent_version, wanted in state.sent:
            if wanted == isr or (self.rules.version_checked and sent_version != version):
                continue  # answered, and nothing changes
            if wanted & state.dead:
                message = {(sent_version, wanted)}
                sent = state.sent if self.rules.repeats else state.sent - message
                after = state._replace(sent=sent, refused=state.refused | message)
                if after != state:
                    out.append((("refuse", sent_version, wanted), after))
            elif not full:
                out.append((("grant", sent_version, wanted), state._replace(stored=(*state.stored, wanted))))
        for i in FOLLOWERS:
            stored = (*state.stored, isr & ~(1 << i)) if isr >> i & 1 else state.stored
            if not full and isr >> i & 1:
                out.append((("drop", i), state._replace(stored=stored)))
            if not state.dead >> i & 1 and not (full and isr >> i & 1):
                out.append((("die", i), state._replace(stored=stored, dead=state.dead | 1 << i)))
            if state.dead >> i & 1 and not self.rules.dead_for_good:
                out.append((("recover", i), state._replace(dead=state.dead & ~(1 << i))))
        return out

    def tell(self, label: Label, before: State, after: State) -> str:
        stored = f"{isr_text(after.stored[-1])} under version {len(after.stored) - 1}"
        match label:
            case ("write",):
                return f"{LEADER} appends a record: it holds {after.end}."
            case ("fetch", int(i)):
                return f"{NAMES[i]} fetches the next record: it holds {after.ends[i]}."
            case ("advance", int(counted)):
                return f"{LEADER} advances its high watermark to {after.hw}: it counts {isr_text(counted)}."
            case ("propose", int(wanted)):
                known = isr_text(before.stored[before.version])
                return f"{LEADER}, which knows ISR {known} of version {before.version}, asks for {isr_text(wanted)}."
            case ("learn", int(version)):
                return f"{LEADER} learns version {version}: the ISR is {isr_text(after.stored[version])}."
            case ("refused", int(wanted)):
                return f"{LEADER} hears that {isr_text(wanted)} was refused: back to {isr_text(before.stored[before.version])}."
            case ("forget", int(wanted)):
                return f"{LEADER} waits no longer for an answer about {isr_text(wanted)} and forgets it."
            case ("refuse", int(version), int(wanted)):
                return f"The controller refuses {isr_text(wanted)}, asked on version {version}: INELIGIBLE_REPLICA."
            case ("grant", int(version), int(wanted)):
                late = "" if version == len(before.stored) - 1 else f", though it was asked on version {version}"
                return f"The controller grants {isr_text(wanted)}{late}: it stores {stored}."
            case ("drop", int(i)):
                return f"The controller takes {NAMES[i]} out of the ISR: it stores {stored}."
            case ("die", int(i)):
                return f"The controller finds {NAMES[i]} not alive: the ISR is {stored}."
            case ("recover", int(i)):
                return f"The controller takes {NAMES[i]} for alive again, in the same life."
        raise AssertionError(label)


def isr_text(isr: int) -> str:
    return LEADER + "".join(NAMES[i] for i in FOLLOWERS if isr >> i & 1)


def _swapped(isr: int) -> int:
    return isr if isr < 0 else (isr & 1) << 1 | isr >> 1


def _order(state: State) -> tuple[object, ...]:
    return (*state[:6], sorted(state.sent), sorted(state.refused), state.dead)
