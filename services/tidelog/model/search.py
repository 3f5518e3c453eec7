"""Breadth-first search over every state that a model can reach, so that the first violation found has a shortest trace.

The engine knows nothing of replication: a model gives it hashable states, the moves out of one, a canonical form under
symmetry and a test of one state. The trace is the chain of parents; because states are kept in canonical form only, names
are put back by walking it once more with the moves as they were before.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

State = TypeVar("State", bound=Hashable)
Label = tuple[object, ...]

PROGRESS_EVERY: Final = 20_000
"""States between two reports."""


class Model(Protocol[State]):
    """One set of rules at one set of bounds. Every method is a function of its arguments alone."""

    def initial(self) -> State: ...

    def moves(self, state: State) -> Iterable[tuple[Label, State]]:
        """Every single step that may happen next, not in canonical form."""

    def canonical(self, state: State) -> State:
        """The one state that stands for all that differ from `state` by a renaming of the replicas."""

    def violation(self, state: State) -> str | None:
        """What is wrong with `state` in one clause, or None."""

    def tell(self, label: Label, before: State, after: State) -> str:
        """The step as a sentence."""


@dataclass(frozen=True, slots=True)
class Progress:
    states: int
    depth: int
    waiting: int
    """States found and not yet expanded."""


@dataclass(frozen=True, slots=True)
class Outcome:
    states: int
    """Distinct canonical states."""
    depth: int
    """Steps of the longest of the shortest ways; with a violation the steps that lead to it."""
    exhausted: bool
    """Nothing is left beyond: neither a depth bound nor a violation ended the search."""
    violation: str | None
    story: tuple[str, ...]
    """A sentence for each step of a shortest trace; empty without a violation."""


def search(
    model: Model[State], depth_max: int | None = None, report: Callable[[Progress], None] = lambda _: None
) -> Outcome:
    """Expands level by level until a violation, the end, or `depth_max` steps."""
    moves, canonical, violation = model.moves, model.canonical, model.violation
    first = canonical(model.initial())
    # The parent is kept as a reference to the very state that is a key already: eight bytes, no copy.
    parents: dict[State, State | None] = {first: None}
    if (wrong := violation(first)) is not None:
        return Outcome(1, 0, False, wrong, ())
    level = [first]
    depth = 0
    while level and depth != depth_max:
        found: list[State] = []
        for number, state in enumerate(level):
            if number % PROGRESS_EVERY == 0:
                report(Progress(len(parents), depth, len(level) - number + len(found)))
            for _, reached in moves(state):
                after = canonical(reached)
                if after in parents:
                    continue
                parents[after] = state
                if violation(after) is not None:
                    story, last = retell(model, chain(parents, after))
                    return Outcome(len(parents), depth + 1, False, violation(last), story)
                found.append(after)
        level = found
        depth += bool(found)
    return Outcome(len(parents), depth, not level, None, ())


def chain(parents: dict[State, State | None], last: State) -> list[State]:
    """The canonical states from the first to `last`."""
    states = [last]
    while (before := parents[states[-1]]) is not None:
        states.append(before)
    return states[::-1]


def retell(model: Model[State], states: list[State]) -> tuple[tuple[str, ...], State]:
    """Sentences for a chain of canonical states, and its last state, with the names that the initial state gives."""
    state = model.initial()
    story = []
    for wanted in states[1:]:
        label, after = next((label, after) for label, after in model.moves(state) if model.canonical(after) == wanted)
        story.append(model.tell(label, state, after))
        state = after
    return tuple(story), state
