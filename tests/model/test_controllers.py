"""Two controllers, one of them past its term (HOLE-11, I12)."""

from helpers.requirements import requirement
from tidelog.model.controllers import Bounds, ControllerModel, Rules, State
from tidelog.model.search import search

SMALL = Bounds(terms=2, versions=2)


class Unreduced(ControllerModel):
    def canonical(self, state: State) -> State:
        return state


@requirement("The controller is the only writer of leader and ISR")
@requirement("Every controller write checks the controller epoch")
def test_i12_the_controller_in_office_is_the_only_writer() -> None:
    outcome = search(ControllerModel(Rules(), SMALL))
    assert outcome.violation is None and outcome.exhausted


def test_mut_10_without_the_epoch_in_the_multi_a_controller_past_its_term_writes() -> None:
    outcome = search(ControllerModel(Rules(epoch_checked=False), SMALL))
    assert outcome.violation is not None and outcome.violation.startswith("TWO WRITERS")
    assert any("though its epoch 1 is not 2" in sentence for sentence in outcome.story)


def test_brokers_that_fence_controllers_do_not_replace_the_check_in_the_multi() -> None:
    """And the other way round: with the check alone nothing stale is ever stored."""
    assert search(ControllerModel(Rules(epoch_fenced=False), SMALL)).violation is None


def test_symmetry_of_the_controllers_keeps_verdict_and_depth() -> None:
    for rules in (Rules(), Rules(epoch_checked=False)):
        reduced, whole = search(ControllerModel(rules, SMALL)), search(Unreduced(rules, SMALL))
        assert (reduced.violation is None) == (whole.violation is None)
        assert reduced.depth == whole.depth
        assert reduced.states < whole.states <= 2 * reduced.states
