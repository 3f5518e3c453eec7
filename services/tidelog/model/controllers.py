"""Model for MUT-10: two controllers, of which one does not know that its term is over (HOLE-11).

One partition with leader A, whose ISR changes on AlterIsr or because a follower died. A controller decides from what it
keeps in memory, as the only writer may (C2.01, C2.04), and writes a multi: the state under its version, and a check that
/controller_epoch is still its own. A write may reach the store late, and also over a newer session of the same process than
the one that held /controller.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.model.search import Label

CONTROLLERS: Final = (0, 1)
FOLLOWERS: Final = (0, 1)
NOBODY: Final = -1


@dataclass(frozen=True, slots=True)
class Rules:
    epoch_checked: bool = True
    """Every multi of a controller checks /controller_epoch."""
    epoch_fenced: bool = True
    """Brokers refuse a controller of an older epoch than they have heard of."""


@dataclass(frozen=True, slots=True)
class Bounds:
    terms: int
    versions: int


class Stored(NamedTuple):
    isr: int
    """Mask of the followers."""
    version: int


class Controller(NamedTuple):
    term: int
    """Controller epoch in which it thinks it is in office, 0 if it does not."""
    known: Stored | None
    """The state as it last read or wrote it."""
    writing: Stored | None
    """What it has sent to the store and not heard about."""
    written: bool
    """The store has applied it."""


class State(NamedTuple):
    holder: int
    """Owner of the ephemeral /controller, or NOBODY."""
    epoch: int
    """/controller_epoch"""
    stored: Stored
    controllers: tuple[Controller, Controller]
    leader: Stored
    """What A knows."""
    heard: int
    """Highest controller epoch that A has heard of."""
    dead: int
    """Mask of the followers that are not registered."""


OUT_OF_OFFICE: Final = Controller(0, None, None, False)


class ControllerModel:
    """Property: the controller in office is never behind the leader that it serves, unless its own write is on the way."""

    def __init__(self, rules: Rules, bounds: Bounds) -> None:
        self.rules = rules
        self.bounds = bounds

    def initial(self) -> State:
        return State(NOBODY, 0, Stored(3, 0), (OUT_OF_OFFICE, OUT_OF_OFFICE), Stored(3, 0), 0, 0)

    def canonical(self, state: State) -> State:
        """The controllers are alike."""
        a, b = state.controllers
        other = {NOBODY: NOBODY, 0: 1, 1: 0}[state.holder]
        return state if _order(a) <= _order(b) else state._replace(controllers=(b, a), holder=other)

    def violation(self, state: State) -> str | None:
        for c in CONTROLLERS:
            controller = state.controllers[c]
            if state.holder != c or controller.known is None or controller.writing is not None:
                continue
            if controller.known.version < state.leader.version:
                return (
                    f"TWO WRITERS: A knows version {state.leader.version} of its state, and {_name(c)}, which is in office, "
                    f"only version {controller.known.version}: it sends out stale state, and answers A with "
                    "NOT_CONTROLLER for ever"
                )
        return None

    def moves(self, state: State) -> list[tuple[Label, State]]:
        out: list[tuple[Label, State]] = []
        if state.holder != NOBODY:
            out.append((("expire", state.holder), state._replace(holder=NOBODY)))
        out += [(("die", i), state._replace(dead=state.dead | 1 << i)) for i in FOLLOWERS if not state.dead >> i & 1]
        for c in CONTROLLERS:
            controller = state.controllers[c]
            if controller.term:
                self._term(out, state, c, controller)
            elif state.holder == NOBODY and state.epoch < self.bounds.terms:
                epoch = state.epoch + 1
                after = _with(state, c, Controller(epoch, None, None, False))
                out.append((("elect", c, epoch), after._replace(holder=c, epoch=epoch)))
        return out

    def _term(self, out: list[tuple[Label, State]], state: State, c: int, controller: Controller) -> None:
        if state.holder != c:
            # Whoever notices at once does no harm; the moves below are those of one that has not noticed yet.
            out.append((("notice", c), _with(state, c, OUT_OF_OFFICE)))
        elif controller.known is None:
            out.append((("read", c), _with(state, c, controller._replace(known=state.stored))))
        if controller.writing is not None:
            self._write(out, state, c, controller, controller.writing)
        elif controller.known is not None:
            self._decide(out, state, c, controller, controller.known)

    def _decide(
        self, out: list[tuple[Label, State]], state: State, c: int, controller: Controller, known: Stored
    ) -> None:
        fenced = self.rules.epoch_fenced and controller.term < state.heard
        if not fenced and known.version > state.leader.version:
            after = state._replace(leader=known, heard=max(state.heard, controller.term))
            out.append((("tell", c, known.isr, known.version), after))
        if known.version == self.bounds.versions:
            return
        for i in FOLLOWERS:
            if known.isr >> i & 1 and state.dead >> i & 1:
                writing = Stored(known.isr & ~(1 << i), known.version + 1)
                out.append((("drop", c, i, writing.isr), _with(state, c, controller._replace(writing=writing))))
            if state.leader.version == known.version and not state.dead >> i & 1 and not fenced:
                writing = Stored(known.isr ^ 1 << i, known.version + 1)
                out.append((("grant", c, writing.isr), _with(state, c, controller._replace(writing=writing))))

    def _write(
        self, out: list[tuple[Label, State]], state: State, c: int, controller: Controller, writing: Stored
    ) -> None:
        if controller.written:
            done = controller._replace(known=writing, writing=None, written=False)
            out.append((("done", c, writing.version), _with(state, c, done)))
        elif self.rules.epoch_checked and controller.term != state.epoch:
            out.append((("fenced", c), _with(state, c, OUT_OF_OFFICE)))
        elif writing.version == state.stored.version + 1:
            after = _with(state, c, controller._replace(written=True))
            out.append((("apply", c, writing.isr, writing.version), after._replace(stored=writing)))
        else:
            conflict = controller._replace(known=state.stored, writing=None)
            out.append((("conflict", c, state.stored.version), _with(state, c, conflict)))

    def tell(self, label: Label, before: State, after: State) -> str:
        match label:
            case ("expire", int(c)):
                return f"The session of {_name(c)} expires and /controller is gone; {_name(c)} does not know it."
            case ("die", int(i)):
                return f"{'BC'[i]} dies."
            case ("elect", int(c), epoch):
                return f"{_name(c)} creates /controller and raises /controller_epoch to {epoch}."
            case ("notice", int(c)):
                return f"{_name(c)} notices that its term is over."
            case ("read", int(c)):
                return f"{_name(c)} reads every state: ISR {_isr(after.stored.isr)}, version {after.stored.version}."
            case ("tell", int(c), int(isr), version):
                return f"{_name(c)} tells A: ISR {_isr(isr)}, version {version}."
            case ("drop", int(c), int(i), int(isr)):
                return f"{_name(c)} drops {'BC'[i]}, which died: it sends a multi that writes ISR {_isr(isr)}."
            case ("grant", int(c), int(isr)):
                return f"A asks {_name(c)} for ISR {_isr(isr)}, which sends a multi that writes it."
            case ("apply", int(c), int(isr), version):
                term = before.controllers[c].term
                late = "" if term == before.epoch else f", though its epoch {term} is not {before.epoch}"
                return f"The store applies the multi of {_name(c)}{late}: ISR {_isr(isr)}, version {version}."
            case ("done", int(c), version):
                return f"{_name(c)} hears that version {version} is written."
            case ("fenced", int(c)):
                return f"The store refuses the multi of {_name(c)}, whose epoch is over: it resigns."
            case ("conflict", int(c), version):
                return f"The store refuses the multi of {_name(c)}: it reads again and finds version {version}."
        raise AssertionError(label)


def _name(c: int) -> str:
    return f"Controller {c + 1}"


def _isr(isr: int) -> str:
    return "A" + "".join("BC"[i] for i in FOLLOWERS if isr >> i & 1)


def _order(controller: Controller) -> tuple[object, ...]:
    return (controller.term, controller.known or (), controller.writing or (), controller.written)


def _with(state: State, c: int, controller: Controller) -> State:
    a, b = state.controllers
    return state._replace(controllers=(controller, b) if c == 0 else (a, controller))
