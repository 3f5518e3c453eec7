"""All states of a model, for tests that compare whole sets of them."""

from tidelog.model.search import Model, State


def reachable(model: Model[State]) -> set[State]:
    """In canonical form."""
    found = {model.canonical(model.initial())}
    waiting = list(found)
    while waiting:
        for _, after in model.moves(waiting.pop()):
            state = model.canonical(after)
            if state not in found:
                found.add(state)
                waiting.append(state)
    return found
