"""X6: how long a partition acknowledged nothing while records waited, and what was promised."""

import pytest

from helpers.histories import Story, found
from tidelog.chaos.checker.promise import Availability, Promise
from tidelog.chaos.checker.verdict import Gap
from tidelog.ids import TopicPartition


def outage(acks: str = "all") -> Story:
    """Acknowledged at 1 s, tried at 2 s, acknowledged again at 9 s; a fault from 1.5 s to 5 s."""
    story = Story().at(0.99).sent("a", 0, acks=acks)
    story.at(1.5).fault("begin").at(1.6).fault("effect")
    story.at(2.0)
    number = story.attempt("b", acks=acks)
    story.at(5.0).fault("healed")
    return story.at(9.0).answer(number, 1)


def gap(story: Story, acks: str = "all", partition: int = 0) -> Gap:
    (only,) = [each for each in story.check().gaps if (each.acks, each.partition) == (acks, partition)]
    return only


def test_x6_a_gap_begins_when_a_record_is_tried_and_ends_with_the_next_acknowledgement() -> None:
    assert gap(outage()) == Gap("chaos", 0, "all", 2.0, 9.0, True, ("kill leader of 0",))


def test_x6_a_gap_begins_with_the_acknowledgement_before_if_others_waited_then() -> None:
    story = Story().at(1.0)
    first, second = story.attempt("a"), story.attempt("b")
    story.at(2.0).answer(first, 0).at(5.0).answer(second, 1)
    assert gap(story) == Gap("chaos", 0, "all", 2.0, 5.0, True)


def test_x6_idle_time_is_no_gap() -> None:
    story = Story().at(1.0).sent("a", 0).at(30.0).sent("b", 1)
    assert gap(story).seconds == pytest.approx(0.01)


def test_x6_a_refusal_ends_no_gap() -> None:
    story = Story().at(1.0).sent("a", None, "fail").at(3.0).sent("b", None, "info").at(4.0).sent("c", 0)
    assert (gap(story).began, gap(story).ended) == (1.0, 4.01)


def test_x6_a_gap_that_nothing_ended_reaches_to_what_was_heard_last() -> None:
    story = Story().at(1.0).sent("a", 0).at(2.0).sent("b", None, "fail").at(7.0).sent("c", None, "fail").at(20.0)
    assert gap(story.phase("heal")) == Gap("chaos", 0, "all", 2.0, 7.01, False)


def test_x6_a_send_of_a_client_that_was_thrown_away_keeps_no_gap_open() -> None:
    def story(crash: bool) -> Story:
        made = Story().at(1.0)
        made.attempt("x", process="q")
        if crash:
            made.crash("q")
        return made.at(2.0).sent("a", 0).at(9.0).sent("b", 1)

    assert gap(story(crash=True)).seconds == pytest.approx(1.01), "from its attempt to the next acknowledgement"
    assert gap(story(crash=False)).seconds == pytest.approx(7.0)


def test_x6_partitions_and_ack_levels_are_measured_each_by_itself() -> None:
    story = Story().at(1.0)
    waiting = story.attempt("a")
    for i in range(8):
        story.at(1.5 + i).sent(f"x{i}", i + 1, acks="1").sent(f"y{i}", i, partition=1)
    story.at(9.5).answer(waiting, 0).sent("z", acks="0")
    assert gap(story).seconds == pytest.approx(8.5)
    assert gap(story, "1").seconds < 0.02 and gap(story, partition=1).seconds < 0.02
    assert [each.acks for each in story.check().gaps if each.partition == 0] == ["1", "all"], "acks=0 has none"


def test_x6_a_fault_is_named_if_it_was_in_force_at_any_time_of_the_gap() -> None:
    story = Story().at(0.1).fault("begin", "early", 2).at(0.2).fault("healed", "early", 2)
    story.records += outage().records
    story.at(9.5).fault("begin", "late", 3)
    assert gap(story).faults == ("kill leader of 0",)


@pytest.mark.parametrize("at_most_s, kept", [(7.0, True), (6.9, False)])
def test_x6_unavailable_is_what_is_longer_than_promised(at_most_s: float, kept: bool) -> None:
    verdict = outage().check(Promise(available=(Availability(at_most_s),)))
    assert found(verdict) == ({} if kept else {"unavailable": 1}) and verdict.sound is kept
    promise = verdict.promises[-1]
    assert (promise.text, promise.kept, promise.measured, promise.limit) == (
        "longest wait for an acknowledgement in any partition",
        kept,
        "7.00 s (chaos-0, at 2.00 s)",
        f"at most {at_most_s:g} s",
    )
    if not kept:
        assert verdict.anomalies["unavailable"].examples[0].text == (
            "chaos-0 acknowledged no acks=all record from 2.000 s to 9.000 s (7.00 s; promised are 6.9 s), "
            "under kill leader of 0"
        )


def test_x6_without_a_promise_nothing_is_unavailable_and_the_gaps_are_there() -> None:
    verdict = outage().check()
    assert "unavailable" not in verdict.anomalies and verdict.stats["longest_gap_s"] == 7.0


def test_x6_a_gap_that_nothing_ended_lasts_as_long_as_the_load_though_its_client_has_given_up() -> None:
    def story() -> Story:
        made = Story().at(1.0).sent("a", 0).at(2.0)
        made.attempt("b", process="q")
        return made.at(3.0).crash("q").at(30.0).sent("x", 0, partition=1).at(40.0)

    assert gap(story().phase("final")) == Gap("chaos", 0, "all", 2.0, 40.0, False)
    assert gap(story()).seconds < 0.02, "nobody knows how long the load lasted"


@pytest.mark.parametrize(
    "promise, measured",
    [
        (Availability(9.0, None, "1"), "nothing was sent to any partition"),
        (Availability(9.0, (TopicPartition("chaos", 0), TopicPartition("chaos", 7))), "nothing was sent to chaos-7"),
    ],
)
def test_x6_a_promise_about_a_partition_that_got_no_record_is_not_kept(promise: Availability, measured: str) -> None:
    kept = outage().phase("end").check(Promise(available=(promise,))).promises[-1]
    assert (kept.kept, kept.measured) == (False, measured)
    cut_off = outage().check(Promise(available=(promise,)))
    assert cut_off.promises[-1].kept, "its records may have come later"


@pytest.mark.parametrize(
    "promise, kept",
    [
        (Availability(1.0, (TopicPartition("chaos", 0),)), False),
        (Availability(1.0, (TopicPartition("chaos", 1),)), True),
        (Availability(1.0, None, "all"), False),
        (Availability(0.0, ()), True),
    ],
)
def test_x6_a_promise_is_about_the_partitions_and_acks_it_names(promise: Availability, kept: bool) -> None:
    verdict = outage().sent("x", 0, partition=1).check(Promise(available=(promise,)))
    assert verdict.promises[-1].kept is kept and found(verdict) == ({} if kept else {"unavailable": 1})
