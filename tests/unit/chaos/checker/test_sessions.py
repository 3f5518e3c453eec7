"""The order in which one client saw, and one client sent: each rule broken, and kept on the nearest history that looks alike."""

import pytest

from helpers.histories import Story, found, rows
from tidelog.chaos.checker.promise import Promise

IDEMPOTENT = Promise(idempotent=True)
LOG = ("a", "b", "c", "d")


def whole() -> Story:
    """Four values that another reader has seen."""
    return Story().log(*LOG).poll(*rows(*LOG), process="other")


def test_int_poll_skip_one_poll_passes_over_a_value() -> None:
    verdict = whole().poll((0, "a"), (2, "c")).check()
    assert found(verdict) == {"int-poll-skip": 1} and not verdict.sound
    text = verdict.anomalies["int-poll-skip"].examples[0].text
    assert text == "chaos-0: c read offset 2 after offset 0, passing over 1 values, at 0.100 s"


def test_int_poll_skip_a_gap_of_offsets_is_no_value() -> None:
    story = Story().sent("a", 0).sent("b", 7).sent("c", 9)
    assert found(story.poll((0, "a"), (7, "b"), (9, "c")).check()) == {}


def test_int_poll_skip_a_value_that_only_an_acknowledgement_tells_of_is_passed_over_too() -> None:
    assert found(Story().log("a", "b", "c").poll((0, "a"), (2, "c")).check()) == {"int-poll-skip": 1, "lost-write": 1}


@pytest.mark.parametrize("second", [(1, "b"), (0, "a")])
def test_int_nonmonotonic_poll_one_poll_goes_back_or_repeats(second: tuple[int, str]) -> None:
    verdict = whole().poll((0, "a"), (1, "b"), second).check()
    assert found(verdict) == {"int-nonmonotonic-poll": 1} and not verdict.sound


@pytest.mark.parametrize("kind", ["assigned", "revoked", "lost"])
def test_int_rules_exempt_what_is_in_the_rebalance_log_of_the_operation(kind: str) -> None:
    def story(began: float) -> Story:
        made = whole().at(0.5).owns(0, kind=kind)
        return made.at(0.6).poll((0, "a"), (2, "c"), (1, "b"), began=began)

    assert found(story(0.4).check()) == {}
    assert found(story(0.55).check()) == {"int-poll-skip": 1, "int-nonmonotonic-poll": 1}


def test_int_rules_another_key_of_the_rebalance_log_exempts_nothing() -> None:
    story = whole().at(0.5).owns(1, kind="revoked").at(0.6).poll((0, "a"), (2, "c"), began=0.4)
    assert found(story.check()) == {"int-poll-skip": 1}


def test_poll_skip_between_two_polls_of_a_process() -> None:
    verdict = whole().poll((0, "a")).poll((2, "c")).check()
    assert found(verdict) == {"poll-skip": 1} and not verdict.sound


def test_poll_skip_other_processes_and_keys_are_others() -> None:
    story = whole().sent("x", 0, partition=1).sent("y", 1, partition=1)
    story.poll((0, "a")).poll((2, "c"), process="d").poll((0, "x"), (1, "y"), partition=1).poll((1, "b"), (2, "c"))
    assert found(story.check()) == {}


@pytest.mark.parametrize("second", [(0, "a"), (1, "b")])
def test_nonmonotonic_poll_between_two_polls_of_a_process(second: tuple[int, str]) -> None:
    verdict = whole().poll((0, "a"), (1, "b")).poll(second).check()
    assert found(verdict) == {"nonmonotonic-poll": 1} and not verdict.sound


def test_poll_rules_tolerate_a_member_of_a_group_and_still_count_it() -> None:
    verdict = whole().poll((0, "a"), group="g").poll((2, "c"), group="g").poll((1, "b"), group="g").check()
    assert found(verdict) == {"poll-skip (subscribed)": 1, "nonmonotonic-poll (subscribed)": 1} and verdict.sound


def test_poll_rules_forget_a_key_that_was_dropped_between() -> None:
    story = whole().owns(0, 1).poll((0, "a")).owns(1).owns(0, 1).poll((2, "c"))
    assert found(story.check()) == {}
    assert found(whole().poll((0, "a")).owns(0, kind="revoked").poll((2, "c")).check()) == {}
    assert found(whole().poll((0, "a")).owns(0, kind="lost").poll((2, "c")).check()) == {}


def test_poll_rules_an_assignment_that_keeps_the_key_is_no_excuse() -> None:
    assert found(whole().poll((0, "a")).owns(0, 1).poll((2, "c")).check()) == {"poll-skip": 1}
    assert found(whole().poll((0, "a")).owns(1, kind="revoked").poll((2, "c")).check()) == {"poll-skip": 1}


def test_polls_of_one_operation_are_compared_within_it() -> None:
    story = whole().poll((0, "a"), op=1).poll((2, "c"), op=1)
    assert found(story.check()) == {"int-poll-skip": 1}
    assert found(whole().poll((0, "a"), op=1).poll((2, "c"), op=2).check()) == {"poll-skip": 1}


def test_nonmonotonic_send_a_producer_is_passed_by_its_own_later_value() -> None:
    verdict = Story().sent("a", 1).sent("b", 0).poll((0, "b"), (1, "a")).check()
    assert found(verdict) == {"nonmonotonic-send": 1, "G0-process": 1} and not verdict.sound
    assert verdict.anomalies["nonmonotonic-send"].examples[0].text == (
        "chaos-0: 'b' (sent by p at 0.030 s) is at offset 0; 'a' (sent by p at 0.010 s), the one before it, is at offset 1"
    )


def test_nonmonotonic_send_counts_the_order_of_attempts_not_of_answers() -> None:
    story = Story()
    first, second = story.attempt("a"), story.attempt("b")
    story.answer(second, 1).answer(first, 0)
    assert found(story.check()) == {}


def test_nonmonotonic_send_of_two_processes_is_none() -> None:
    assert found(Story().sent("a", 1).sent("b", 0, process="q").check()) == {"G0-realtime": 1}


def test_nonmonotonic_send_in_two_partitions_is_none() -> None:
    assert found(Story().sent("a", 1).sent("b", 0, partition=1).check()) == {}


@pytest.mark.parametrize(
    "acks, promise, name",
    [
        ("all", Promise(), "nonmonotonic-send (unknown)"),
        ("1", IDEMPOTENT, "nonmonotonic-send (unknown)"),
        ("all", IDEMPOTENT, "nonmonotonic-send"),
    ],
)
def test_nonmonotonic_send_of_one_in_doubt_is_tolerated_without_idempotence_alone(
    acks: str, promise: Promise, name: str
) -> None:
    story = Story().sent("a", None, "info", acks=acks).sent("b", 0, acks=acks).poll((0, "b"), (1, "a"))
    verdict = story.check(promise)
    assert found(verdict) == {name: 1} and verdict.sound is (name != "nonmonotonic-send")


def test_nonmonotonic_send_one_in_doubt_advances_the_state() -> None:
    story = Story().sent("a", None, "info").sent("b", None, "info").sent("c", 1).poll((0, "a"), (1, "c"), (2, "b"))
    assert found(story.check()) == {"nonmonotonic-send (unknown)": 1}


def test_nonmonotonic_send_one_that_failed_or_was_never_seen_does_not() -> None:
    assert found(Story().sent("a", 5, "fail").sent("b", 0).check()) == {}
    assert found(Story().sent("a", None, "info").sent("b", 0).check()) == {}


def test_int_nonmonotonic_send_two_sends_of_one_operation_land_in_reverse() -> None:
    verdict = Story().sent("a", 1, op=1).sent("b", 0, op=1).check()
    assert found(verdict) == {"int-nonmonotonic-send": 1} and not verdict.sound


def test_int_send_skip_others_come_between_and_that_is_tolerated() -> None:
    verdict = Story().sent("x", 1, process="q").sent("a", 0, op=1).sent("b", 2, op=1).check()
    assert found(verdict)["int-send-skip"] == 1 and verdict.sound


def test_int_send_rules_neighbours_in_order_are_well_and_gaps_are_nothing() -> None:
    assert found(Story().sent("a", 0, op=1).sent("b", 5, op=1).check()) == {}


def test_the_first_send_of_an_operation_is_compared_with_the_last_of_the_one_before() -> None:
    story = Story().sent("a", 0, op=1).sent("b", 2, op=1).sent("c", 1, op=2).sent("d", 3, op=2)
    assert found(story.check()) == {"int-send-skip": 2, "nonmonotonic-send": 1, "G0": 1}


def test_precommitted_read_an_operation_reads_its_own_send() -> None:
    story = Story().sent("a", 0, op=1, process="t")
    verdict = story.poll((0, "a"), op=1, process="t").check()
    assert found(verdict) == {"precommitted-read": 1} and not verdict.sound
    assert verdict.anomalies["precommitted-read"].examples[0].text == "chaos-0: operation 1 read its own 'a' at 0.030 s"


def test_precommitted_read_of_another_operations_send_is_none() -> None:
    assert found(Story().sent("a", 0, op=1, process="t").poll((0, "a"), op=2, process="t").check()) == {}


def test_offsets_are_compared_where_a_value_has_several() -> None:
    story = Story().sent("a", 0).sent("b", 2).poll((0, "a"), (1, "a"), (2, "b"))
    assert found(story.check(IDEMPOTENT)) == {"duplicate": 1}


def test_nonmonotonic_send_is_tolerated_where_all_may_be_lost() -> None:
    """A log that lost its end is written anew from there."""
    story = Story().sent("a", 0).sent("b", 1).sent("c", 0).poll((0, "c"))
    promise = Promise("allowed", idempotent=True)
    assert found(story.check(promise))["nonmonotonic-send"] == 1
    assert not story.check(promise).anomalies["nonmonotonic-send"].bad
    assert story.check(IDEMPOTENT).anomalies["nonmonotonic-send"].bad


THREE = rows("a", "b", "c")


@pytest.mark.parametrize("first, bad", [(0, False), (1, True)])
def test_consumer_unread_it_begins_at_the_log_start(first: int, bad: bool) -> None:
    verdict = Story().log("a", "b", "c").poll(*THREE, process="other").owns(0).poll(*THREE[first:]).check()
    assert found(verdict) == ({"consumer-unread": 1} if bad else {}) and verdict.sound is not bad
    if bad:
        assert verdict.anomalies["consumer-unread"].examples[0].text == (
            "chaos-0: c began to read at offset 1, and the log at offset 0"
        )


def test_consumer_unread_what_retention_took_is_not_missed() -> None:
    story = Story().log("a", "b", "c").watermark(3, log_start=1).owns(0).poll(*THREE[1:])
    assert found(story.check(Promise(records_expire=True))) == {}


@pytest.mark.parametrize("read", [0, 2, 3])
def test_consumer_unread_it_comes_to_what_was_acknowledged(read: int) -> None:
    story = Story().log("a", "b", "c").owns(0)
    if read:
        story.poll(*THREE[:read])
    assert found(story.check()) == {}, "it may still come to the rest"
    verdict = story.end(THREE).check()
    assert found(verdict) == ({} if read == 3 else {"consumer-unread": 1})
    if read != 3:
        assert f"c had read up to offset {read - 1} at the end, and offset 2 was acknowledged" in (
            verdict.anomalies["consumer-unread"].examples[0].text
        )


def test_consumer_unread_what_is_in_doubt_may_have_come_late() -> None:
    story = Story().log("a", "b").sent("c", None, "info").owns(0).poll(*THREE[:2])
    assert found(story.end(THREE).check()) == {}


def test_consumer_unread_a_life_that_ended_owes_nothing_more() -> None:
    story = (
        Story()
        .log("a", "b", "c")
        .owns(0)
        .poll(*THREE[:1])
        .crash("c")
        .owns(0, process="c.2")
        .poll(*THREE, process="c.2")
    )
    assert found(story.end(THREE).check()) == {}


@pytest.mark.parametrize("group, final", [("g", False), (None, True)])
def test_consumer_unread_is_about_consumers_without_a_group(group: str | None, final: bool) -> None:
    story = Story().log("a", "b", "c").owns(0, group=group, final=final).poll(*THREE[1:2], group=group)
    assert "consumer-unread" not in found(story.end(THREE).check())
