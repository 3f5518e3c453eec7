"""Model of reliability 3.5: one leader in one epoch, its ISR changed by the controller on AlterIsr (KIP-497).

Every message, once sent, may arrive late, never, or again. The order of the controller's checks is that of
`controller/alter_isr.py`: the same set is granted whatever its version, an older version is refused without effect, a member
that is not alive is refused for good. A leader proposes one change at a time and keeps it pending until it is told better.

"For good" is what the documents' model says. A suspicion passes, so requests have numbers (`Hearing` in the same file): each
is judged once at most, none after a later one, and a controller hears only who names its own term.
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
    numbered: bool = False
    """Each request has a number, also when it says the same again; the controller judges none twice and none that is older
    than one judged before, and the leader heeds the answer to its newest alone."""
    term_named: bool = True
    """A numbered request names the newest term that its leader has heard of, and a controller of another one refuses it."""


@dataclass(frozen=True, slots=True)
class Bounds:
    records: int
    versions: int
    """Changes of the stored state."""
    numbers: int = 0
    """Requests that the leader may send, where they are numbered."""
    terms: int = 1
    """Controllers, one after the other; each knows what is stored, and no number."""


Request = tuple[int, int, int, int]
"""(version, ISR, number, term): an AlterIsr. The last two are 0 where requests are not numbered."""


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
    sent: frozenset[Request]
    """Every AlterIsr on the way, or arrived and perhaps to arrive again."""
    refused: frozenset[Request]
    """Those answered INELIGIBLE_REPLICA, the answer on the way."""
    dead: int
    number: int = 0
    """Of the leader's newest request."""
    judged: int = 0
    """The highest number that the controller has judged in its term."""
    term: int = 0
    heard: int = 0
    """The newest term of which the leader has heard."""


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
            frozenset((version, _swapped(isr), number, term) for version, isr, number, term in state.sent),
            frozenset((version, _swapped(isr), number, term) for version, isr, number, term in state.refused),
            _swapped(state.dead),
            state.number,
            state.judged,
            state.term,
            state.heard,
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
        may_send = not self.rules.numbered or state.number < self.bounds.numbers
        if state.pending == NO_CHANGE and may_send:
            for i in FOLLOWERS:
                # A member may be dropped at any time: how far it lags is a matter of the clock.
                if committed >> i & 1 or state.ends[i] >= state.hw:
                    wanted = committed ^ 1 << i
                    out.append((("propose", wanted), self._sent(state, wanted)))
        elif self.rules.numbered and may_send:
            out.append((("again", state.pending), self._sent(state, state.pending)))
        newer = range(state.version + 1, len(state.stored))
        out += [(("learn", version), state._replace(version=version, pending=NO_CHANGE)) for version in newer]
        if any(each[:3] == (state.version, state.pending, state.number) for each in state.refused):
            out.append((("refused", state.pending), state._replace(pending=NO_CHANGE)))
        if state.heard < state.term:
            out.append((("hear", state.term), state._replace(heard=state.term)))
        if not self.rules.kept_on_timeout and state.pending != NO_CHANGE:
            out.append((("forget", state.pending), state._replace(pending=NO_CHANGE)))
        return out

    def _sent(self, state: State, wanted: int) -> State:
        number = state.number + 1 if self.rules.numbered else 0
        sent = state.sent | {(state.version, wanted, number, state.heard if self.rules.numbered else 0)}
        # Answers to earlier requests find nobody who waits for them.
        refused = frozenset[Request]() if self.rules.numbered else state.refused
        return state._replace(pending=wanted, sent=sent, number=number, refused=refused)

    def _judged(self, state: State, request: Request) -> State:
        """After the controller has judged `request`; what no controller can ever judge any more is forgotten."""
        if not self.rules.numbered:
            return state
        judged = request[2]
        return state._replace(judged=judged, sent=self._audible(state.sent, judged, state.term))

    def _audible(self, sent: frozenset[Request], judged: int, term: int) -> frozenset[Request]:
        if not self.rules.term_named and term + 1 < self.bounds.terms:
            return sent  # the next controller will hear them all
        return frozenset(each for each in sent if each[2] > judged and (not self.rules.term_named or each[3] == term))

    def _controller_moves(self, state: State) -> list[tuple[Label, State]]:
        out: list[tuple[Label, State]] = []
        isr, version = state.stored[-1], len(state.stored) - 1
        full = version == self.bounds.versions
        for request in self._heard(state):
            sent_version, wanted, _, _ = request
            if wanted == isr or (self.rules.version_checked and sent_version != version):
                continue  # answered, and nothing changes
            judged = self._judged(state, request)
            if wanted & state.dead:
                after = judged._replace(refused=state.refused | {request})
                if after != state:
                    out.append((("refuse", sent_version, wanted), after))
            elif not full:
                out.append((("grant", sent_version, wanted), judged._replace(stored=(*state.stored, wanted))))
        if state.term + 1 < self.bounds.terms:
            term = state.term + 1
            out.append((("elect", term), state._replace(term=term, judged=0, sent=self._audible(state.sent, 0, term))))
        for i in FOLLOWERS:
            stored = (*state.stored, isr & ~(1 << i)) if isr >> i & 1 else state.stored
            if not full and isr >> i & 1:
                out.append((("drop", i), state._replace(stored=stored)))
            if not state.dead >> i & 1 and not (full and isr >> i & 1):
                out.append((("die", i), state._replace(stored=stored, dead=state.dead | 1 << i)))
            if state.dead >> i & 1 and not self.rules.dead_for_good:
                out.append((("recover", i), state._replace(dead=state.dead & ~(1 << i))))
        return out

    def _heard(self, state: State) -> list[Request]:
        if not self.rules.numbered:
            return list(state.sent)
        named = self.rules.term_named
        return [each for each in state.sent if each[2] > state.judged and (not named or each[3] == state.term)]

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
            case ("again", int(wanted)):
                return f"{LEADER} has heard nothing and asks for {isr_text(wanted)} once more, request {after.number}."
            case ("hear", int(term)):
                return f"{LEADER} hears of the controller of term {term}."
            case ("elect", int(term)):
                return f"Another controller takes over, in term {term}: it knows what is stored and no number."
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
    return (*state[:6], sorted(state.sent), sorted(state.refused), *state[8:])
