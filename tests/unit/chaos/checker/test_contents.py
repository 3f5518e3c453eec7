"""What is in the log and what should be: each rule on a history that breaks it, and on the nearest one that does not."""

import pytest

from helpers.histories import Story, found, rows
from helpers.requirements import requirement
from tidelog.chaos.checker.promise import Promise
from tidelog.chaos.checker.routing import Nonsense
from tidelog.chaos.history import Sent

IDEMPOTENT = Promise(idempotent=True)


def test_a_history_without_a_fault_is_sound_and_every_rule_about_contents_was_judged() -> None:
    verdict = Story().log("a", "b", "c").watermark(3).poll(*rows("a", "b", "c")).end(rows("a", "b", "c")).check()
    assert found(verdict) == {} and verdict.sound and verdict.kept and verdict.exit_code == 0 and verdict.notes == ()
    assert set(verdict.anomalies) >= {
        *("inconsistent-offsets", "duplicate", "G1a", "never-sent", "lost-write", "unseen", "lost-acked"),
        *("allowed-loss", "final-incomplete", "final-differs", "replicas-differ", "watermark-fell"),
    }


def test_inconsistent_offsets_two_readers_see_different_values_at_one_offset() -> None:
    story = Story().sent("a", 0).sent("b", None, "info").poll((0, "a")).poll((0, "b"), process="d")
    verdict = story.check()
    assert found(verdict) == {"inconsistent-offsets": 1}
    example = verdict.anomalies["inconsistent-offsets"].examples[0]
    assert example.text == "chaos-0: offset 0 is 'a' (read by c at 0.050 s) and 'b' (read by d at 0.060 s)"
    assert (example.topic, example.partition, example.t, example.operations) == ("chaos", 0, 0.06, (1, 2, 3, 4))
    assert not verdict.sound


def test_inconsistent_offsets_an_acknowledgement_counts_as_a_reader() -> None:
    story = Story().sent("a", 0).sent("b", None, "info").poll((0, "b"))
    assert found(story.check())["inconsistent-offsets"] == 1


def test_inconsistent_offsets_the_same_offset_of_another_partition_is_another_one() -> None:
    story = Story().sent("a", 0).sent("b", 0, partition=1).poll((0, "a")).poll((0, "b"), partition=1)
    assert found(story.check()) == {}


def test_inconsistent_offsets_the_offset_of_a_send_that_is_in_doubt_counts_only_if_it_was_read() -> None:
    story = Story().sent("a", 0, "info").sent("b", 0).poll((0, "b"))
    assert found(story.check()) == {}
    assert found(story.poll((1, "a")).check(IDEMPOTENT)) == {"inconsistent-offsets": 1, "duplicate": 1}


def test_duplicate_of_an_idempotent_producer() -> None:
    verdict = Story().sent("a", 0).poll((0, "a"), (1, "a")).end(rows("a", "a")).check(IDEMPOTENT)
    assert found(verdict) == {"duplicate": 1} and not verdict.sound and not verdict.kept
    assert verdict.anomalies["duplicate"].examples[0].text == "chaos-0: 'a' (sent by p at 0.010 s) is at offsets 0, 1"


@pytest.mark.parametrize("acks, promise", [("all", Promise()), ("1", IDEMPOTENT), ("0", IDEMPOTENT)])
def test_duplicate_of_a_producer_that_is_not_idempotent_is_tolerated(acks: str, promise: Promise) -> None:
    verdict = Story().sent("a", 0, acks=acks).poll((0, "a"), (1, "a")).end(rows("a", "a")).check(promise)
    assert found(verdict) == {"duplicate (not idempotent)": 1} and verdict.sound and verdict.kept


def test_duplicate_a_value_acknowledged_at_another_offset_than_it_is_read_at() -> None:
    assert found(Story().sent("a", 0).poll((3, "a")).check(IDEMPOTENT)) == {"duplicate": 1}


def test_duplicate_at_offsets_that_it_shares_with_another_value() -> None:
    story = Story().sent("a", 0).sent("b", 1).poll(*rows("a", "b")).poll((1, "a"), process="d")
    assert found(story.check(IDEMPOTENT)) == {"inconsistent-offsets": 1, "duplicate": 1}


def test_duplicate_the_same_value_read_twice_at_its_offset_is_none() -> None:
    assert found(Story().sent("a", 0).poll((0, "a")).poll((0, "a"), process="d").check(IDEMPOTENT)) == {}


def test_g1a_a_failed_value_is_read() -> None:
    verdict = Story().sent("a", None, "fail").poll((0, "a")).check()
    assert found(verdict) == {"G1a": 1}
    assert "failed, and was read by c at 0.030 s" in verdict.anomalies["G1a"].examples[0].text


def test_g1a_before_the_failure_is_known_too() -> None:
    story = Story()
    number = story.attempt("a")
    assert found(story.poll((0, "a")).answer(number, None, "fail").check()) == {"G1a": 1}


@requirement("Connection resets never duplicate a record of an idempotent producer")
@pytest.mark.parametrize("outcome", ["ok", "info", None])
def test_g1a_what_did_not_certainly_fail_may_be_read(outcome: str | None) -> None:
    story = Story()
    number = story.attempt("a")
    if outcome is not None:
        story.answer(number, None, outcome)
    assert found(story.poll((0, "a")).check()) == {}


def test_never_sent_a_value_that_came_from_nowhere() -> None:
    assert found(Story().sent("a", 0).poll((0, "a"), (1, "?")).check()) == {"never-sent": 1}


def test_never_sent_a_value_of_another_partition() -> None:
    story = Story().sent("a", 0).poll((0, "a")).poll((0, "a"), partition=1)
    assert found(story.check()) == {"never-sent": 1}


def test_never_sent_a_value_of_another_partition_that_was_read_there_before_it_was_sent_here() -> None:
    story = Story().poll((0, "a"), partition=1).sent("a", 0).poll((0, "a"))
    assert found(story.check()) == {"never-sent": 1}


def test_never_sent_a_value_that_was_read_in_two_partitions_before_it_was_sent_to_the_second() -> None:
    story = Story().poll((0, "a"), partition=1).poll((0, "a")).sent("a", 0).poll((0, "a"))
    assert found(story.check()) == {"never-sent": 1, "G1c-realtime": 1, "nonmonotonic-poll": 1}


def test_lost_jepsens_own_case_what_is_below_a_value_that_was_read_is_lost_and_what_is_above_it_is_not() -> None:
    story = Story().sent("a", 0).sent("b", 1).sent("c", None, "info").sent("d", 3).poll((2, "c"))
    verdict = story.check()
    assert found(verdict) == {"lost-write": 2}
    assert [example.text for example in verdict.anomalies["lost-write"].examples] == [
        f"chaos-0: '{value}' (sent by p at {t} s) is at offset {offset} and was never read, "
        "although 'c' at offset 2 was, by c at 0.090 s"
        for value, t, offset in (("a", "0.010", 0), ("b", "0.030", 1))
    ]
    assert verdict.anomalies["lost-write"].examples[0].operations == (1, 5)


def test_lost_jepsens_own_case_the_overwritten_one_of_two_values_at_an_offset_is_reported() -> None:
    story = Story().sent("a", 0).sent("b", 0).poll((0, "b"))
    assert found(story.check()) == {"inconsistent-offsets": 1, "lost-write": 1}
    story = Story().sent("b", 0).sent("a", 0).poll((0, "b"))
    assert found(story.check()) == {"inconsistent-offsets": 1, "lost-write": 1}


def test_lost_jepsens_own_case_of_an_operation_in_doubt() -> None:
    def story() -> Story:
        made = Story().sent("a", 0, "info", op=1).sent("x", 1, "info", process="q", op=1)
        return made.sent("b", 2).sent("y", 3).poll((2, "b"))

    assert found(story().check()) == {}
    assert found(story().poll((1, "x"), (2, "b"), process="d").check()) == {"lost-write": 1}
    assert found(story().poll((3, "y")).check()) == {}, "neither was read: it may have failed"


def test_lost_the_bound_is_where_a_value_that_was_read_appears_first() -> None:
    story = Story().log("a", "b").poll((0, "a")).poll((2, "a"), process="d")
    assert found(story.check()) == {"duplicate (not idempotent)": 1}
    assert found(Story().log("a", "b").poll((0, "a")).check()) == {}


def test_lost_what_is_below_the_log_start_was_taken_by_retention() -> None:
    def story() -> Story:
        return Story().log("a", "b").poll((1, "b"))

    gone = {"lost-write": 1, "unseen": 1, "lost-acked": 1}
    assert found(story().watermark(2, log_start=1).end([(1, "b")]).check(Promise(records_expire=True))) == {}
    assert found(story().end([(1, "b")]).check(Promise(records_expire=True))) == gone


def test_lost_where_nothing_expires_a_log_start_that_rises_excuses_nothing() -> None:
    story = Story().log("a", "b").poll((1, "b")).watermark(2, log_start=1)
    assert found(story.end([(1, "b")]).check()) == {"lost-write": 1, "unseen": 1, "lost-acked": 1, "hole": 1}


def test_lost_a_failed_send_is_not_missed() -> None:
    assert found(Story().sent("a", None, "fail").sent("b", 0).poll((0, "b")).end(rows("b")).check()) == {}


def test_unseen_what_nobody_has_read_by_the_end_although_it_was_acknowledged() -> None:
    story = Story().log("a", "b").poll((0, "a"))
    verdict = story.end(rows("a")).check()
    assert found(verdict) == {"unseen": 1, "lost-acked": 1}, "above the bound it is not `lost-write`"
    assert verdict.promises[0].measured == "1 of 2" and not verdict.promises[0].kept
    assert verdict.stats["unseen_over_time"] == [[1.0, 1]]


def test_unseen_is_not_judged_before_the_end() -> None:
    verdict = Story().log("a", "b").poll((0, "a")).check()
    assert found(verdict) == {} and "unseen" not in verdict.anomalies


@requirement("Connection resets never duplicate a record of an idempotent producer")
@pytest.mark.parametrize("outcome", ["info", "fail"])
def test_unseen_what_was_not_acknowledged_may_stay_away(outcome: str) -> None:
    assert found(Story().sent("a", 0).sent("b", None, outcome).end(rows("a")).check()) == {}


def test_unseen_an_acknowledgement_without_an_offset_is_one() -> None:
    assert found(Story().sent("a").end(()).check()) == {"unseen": 1}
    assert found(Story().sent("a").end(rows("a")).check()) == {}


def test_unseen_a_record_that_wanted_no_acknowledgement_has_none() -> None:
    assert found(Story().sent("a", acks="0").end(()).check()) == {}


@requirement("A random mix of faults loses no record acknowledged by all")
def test_x1_a_value_that_was_read_and_acknowledged_and_then_cut_off_is_lost_although_jepsens_rules_see_nothing() -> (
    None
):
    verdict = Story().log("a", "b").poll(*rows("a", "b")).end(rows("a")).check()
    assert found(verdict) == {"lost-acked": 1}
    assert verdict.anomalies["lost-acked"].examples[0].text == (
        "chaos-0: 'b' (sent by p at 0.030 s), offset 1, acknowledged at 0.040 s and read by c at 0.050 s, "
        "is not in the final read"
    )


def test_x1_a_value_in_doubt_that_was_read_must_stay() -> None:
    story = Story().sent("a", 0).sent("b", None, "info").poll(*rows("a", "b"))
    assert found(story.end(rows("a")).check()) == {"final-incomplete": 1}


def test_x1_a_partition_that_nobody_could_read_in_the_end_has_lost_everything() -> None:
    story = Story().log("a").log("x", "y", partition=1).poll(*rows("x", "y"), partition=1)
    assert found(story.end(rows("a")).check()) == {"lost-acked": 2}


def test_x1_final_readers_must_see_the_same() -> None:
    story = Story().log("a", "b").phase("final").poll(*rows("a", "b"), process="f1", final=True)
    verdict = story.poll((0, "a"), process="f2", final=True).phase("end").check()
    assert found(verdict) == {"final-differs": 1}
    text = verdict.anomalies["final-differs"].examples[0].text
    assert text == "chaos-0: as record number 1 f1 saw 'b' at offset 1 and f2 saw nothing"


def test_x1_final_readers_may_not_see_other_values_or_offsets() -> None:
    def both(first: list[tuple[int, str]], second: list[tuple[int, str]]) -> dict[str, int]:
        story = Story().log("a", "b").phase("final").poll(*first, process="f1", final=True)
        return found(story.poll(*second, process="f2", final=True).phase("end").check())

    assert both(rows("a", "b"), rows("a", "b")) == {}
    assert both(rows("a", "b"), [(0, "b"), (1, "a")])["final-differs"] == 1
    assert both(rows("a", "b"), [(0, "a"), (2, "b")])["final-differs"] == 1


@pytest.mark.parametrize(
    "log, holes", [([(0, "a"), (2, "c")], 1), ([(1, "b"), (2, "c")], 1), (rows("a", "b", "c"), 0), ((), 0)]
)
def test_the_final_read_finds_every_offset(log: list[tuple[int, str]], holes: int) -> None:
    story = Story().sent("a", None, "info").sent("b", None, "info").sent("c", None, "info")
    verdict = story.end(log).check()
    assert found(verdict) == ({"hole": holes} if holes else {}) and verdict.sound is not holes
    if log and log[0][0]:
        assert found(story.check(Promise(records_expire=True))) == {}, "retention took it"


@pytest.mark.parametrize(
    "log, torn",
    [
        (rows("a", "b", "c", "d"), False),
        (rows("a", "d"), False),
        (rows("a", "b", "d"), True),
        (rows("a", "c", "d"), True),
        (rows("a", "c", "b", "d"), True),
        (rows("a", "b", "d", "c"), True),
    ],
)
def test_a_batch_in_doubt_is_in_the_log_as_a_whole(log: list[tuple[int, str]], torn: bool) -> None:
    """Records b and c were one batch."""
    story = Story().sent("a", 0).sent("b", None, "info", batch=1).sent("c", None, "info", batch=1)
    story.sent("d", None, "info", process="q", batch=1)
    verdict = story.end(log).check()
    assert found(verdict).get("torn-batch", 0) == torn and (verdict.exit_code == 1) is torn
    if torn and len(log) == 3:
        assert verdict.anomalies["torn-batch"].examples[0].text == (
            "chaos-0: of a batch of 2 records, the first of them 'b' (sent by p at 0.030 s), 1 are in the log, at 1"
        )


def test_x1_a_reader_that_was_thrown_away_counts_as_far_as_it_came() -> None:
    def reader(*its: tuple[int, str]) -> Story:
        story = Story().log("a", "b").phase("final").poll(*its, process="f1", final=True).crash("f1")
        for name in ("f1.2", "f2"):
            story.poll(*rows("a", "b"), process=name, final=True)
        return story.phase("end")

    assert found(reader((0, "a")).check()) == {}
    assert found(reader((0, "b")).check())["final-differs"] == 1


@pytest.mark.parametrize("readers, notes", [(2, 0), (1, 1)])
def test_x1_wants_two_readers(readers: int, notes: int) -> None:
    verdict = Story().log("a").watermark(1).end(rows("a"), readers=readers).check()
    assert len(verdict.notes) == notes and verdict.sound


def test_x1_final_readers_that_find_nothing_have_read_all_the_same() -> None:
    """A log that was consumed and is gone altogether: every other rule is content."""
    story = Story().log("a", "b").poll(*rows("a", "b")).phase("final")
    for reader in ("final-1", "final-2"):
        story.owns(0, process=reader, final=True)
    story.watermark(2)
    verdict = story.phase("end").check()
    assert found(verdict) == {"lost-acked": 2} and not verdict.kept and verdict.notes == ()


def test_x1_without_a_final_read_says_so() -> None:
    verdict = Story().log("a").poll((0, "a")).end().check()
    assert "there was no final read: what is in the log at last is not judged (X1)" in verdict.notes
    assert "lost-acked" not in verdict.anomalies and verdict.sound


def test_x1_a_run_in_which_nothing_was_sent_has_nothing_to_miss() -> None:
    assert found(Story().watermark(0).phase("final").phase("end").check()) == {}


def one_copy(acks: str = "1", isr: int | None = None, epoch_after: int = 5, read: bool = False) -> Story:
    """`b` is acknowledged in epoch 4 and gone in the end."""
    story = Story().sent("a", 0, epoch=4, isr=3).sent("b", 1, acks=acks, epoch=4, isr=isr)
    if read:
        story.poll((1, "b"))
    return story.sent("c", 1 if not read else 2, epoch=epoch_after, isr=3).end([(0, "a"), (1 if not read else 2, "c")])


@requirement("A random mix of faults loses no record acknowledged by all")
def test_x3_a_value_of_one_copy_may_be_lost_when_its_leader_changed_and_nobody_read_it() -> None:
    verdict = one_copy().check(Promise(lost="one-copy"))
    assert found(verdict) == {"allowed-loss": 1} and verdict.sound and verdict.kept
    assert "acknowledged by one replica" in verdict.anomalies["allowed-loss"].examples[0].text
    assert found(one_copy("all", isr=1).check(Promise(lost="one-copy"))) == {"allowed-loss": 1}


def test_x3_what_nothing_promises_away_is_bad_even_of_one_copy() -> None:
    verdict = one_copy().check()
    assert found(verdict) == {"allowed-loss": 1} and not verdict.sound and not verdict.kept


@pytest.mark.parametrize("isr, excused", [(None, False), (2, False), (1, True)])
def test_a_value_that_others_had_may_not_be_lost(isr: int | None, excused: bool) -> None:
    """A leader that is not alone in the ISR told of a high watermark behind it."""
    story = Story().sent("a", 0, epoch=4, isr=3).sent("b", 1, acks="1", epoch=4).watermark(2, epoch=4, isr=isr)
    story.sent("c", 1, epoch=5, isr=3).end([(0, "a"), (1, "c")])
    verdict = story.check(Promise(lost="one-copy"))
    assert verdict.sound is excused
    assert found(verdict) == (
        {"allowed-loss": 1} if excused else {"inconsistent-offsets": 1, "lost-write": 1, "unseen": 1, "lost-acked": 1}
    )


def test_a_watermark_below_a_value_says_nothing_of_it() -> None:
    story = (
        Story().sent("a", 0, epoch=4, isr=3).sent("b", 1, acks="1", epoch=4).watermark(1, epoch=4).watermark(2, epoch=5)
    )
    verdict = story.sent("c", 1, epoch=5, isr=3).end([(0, "a"), (1, "c")]).check(Promise(lost="one-copy"))
    assert found(verdict) == {"allowed-loss": 1} and verdict.sound


@requirement("A random mix of faults loses no record acknowledged by all")
@pytest.mark.parametrize(
    "story",
    [one_copy("all", isr=2), one_copy(epoch_after=4), one_copy(read=True)],
    ids=["isr 2", "same leader", "read"],
)
def test_x3_any_other_loss_of_it_is_none_that_is_allowed(story: Story) -> None:
    verdict = story.check(Promise(lost="one-copy"))
    assert "allowed-loss" not in found(verdict) and found(verdict)["lost-acked"] == 1 and not verdict.sound


@pytest.mark.parametrize("where", [1, 3], ids=["elsewhere", "there"])
def test_x3_what_one_replica_acknowledged_is_in_its_place_only_if_a_reader_found_it_there(where: int) -> None:
    """Its first attempt is in the log; the acknowledgement was of a later one, which is gone with its leader."""
    story = Story().sent("a", 0, epoch=4).sent("x", 2, process="q", epoch=4).sent("b", 3, acks="1", epoch=4)
    story.poll((0, "a"), (where, "b"))
    left = [(0, "a"), (1, "b"), (2, "x"), (3, "c")]
    verdict = story.sent("c", 3, epoch=5, isr=3).end(left).check(Promise(lost="one-copy"))
    assert ("inconsistent-offsets" in found(verdict)) is (where == 3)
    assert verdict.sound is (where == 1)


@pytest.mark.parametrize("where", [1, 3, 5])
@pytest.mark.parametrize("attempts", [None, 1, 2])
def test_what_one_replica_acknowledged_is_where_it_said(where: int, attempts: int | None) -> None:
    log = [(n, f"x{n}") for n in range(6) if n != where]
    story = Story()
    for n, value in log:
        story.sent(value, n, process="q", epoch=4 if n < 3 else 5)
    story.sent("b", 3, acks="1", epoch=4, attempts=attempts)
    verdict = story.end(sorted([*log, (where, "b")])).check(Promise(lost="one-copy"))
    bad = where == 5 or (where == 1 and attempts == 1)
    assert found(verdict).get("wrong-offset", 0) == bad
    if bad:
        text = f"was acknowledged at offset 3, and is at offset {where}"
        assert text in verdict.anomalies["wrong-offset"].examples[0].text and not verdict.sound


def test_x3_a_record_that_was_read_somewhere_is_lost_when_no_place_has_it_any_more() -> None:
    story = Story().sent("a", 0, epoch=4).sent("b", 3, acks="1", epoch=4).poll((0, "a"), (1, "b"))
    verdict = story.sent("c", 3, epoch=5, isr=3).end([(0, "a"), (3, "c")]).check(Promise(lost="one-copy"))
    assert found(verdict)["lost-acked"] == 1 and not verdict.sound


def test_x3_a_leader_that_is_cut_off_goes_on_acknowledging_after_its_successor_has_begun() -> None:
    story = Story().sent("a", 0, epoch=4).watermark(1, epoch=5).sent("b", 1, acks="1", epoch=4).sent("c", 1, epoch=5)
    verdict = story.end([(0, "a"), (1, "c")]).check(Promise(lost="one-copy"))
    assert found(verdict) == {"allowed-loss": 1} and verdict.sound


def test_x3_a_leader_that_changed_after_the_heal_excuses_nothing() -> None:
    story = Story().sent("b", 0, acks="1", epoch=4).phase("final").watermark(0, epoch=5)
    assert found(story.phase("end").check(Promise(lost="one-copy"))) == {"unseen": 1}


def test_x3_the_epoch_of_an_acknowledgement_is_the_latest_that_was_known_if_it_has_none() -> None:
    def story(*before: int) -> Story:
        made = Story()
        for epoch in before:
            made.watermark(0, epoch)
        return made.sent("b", 0, acks="1").watermark(0, epoch=5).end(())

    assert found(story(4).check()) == {"allowed-loss": 1}
    assert found(story(4, 5).check()) == {"unseen": 1}
    assert found(story().check()) == {"unseen": 1}, "nobody knows whether the leader changed"


def test_where_everything_may_be_lost_loss_is_tolerated_and_readers_that_disagree_are_not() -> None:
    promise = Promise(lost="allowed")
    story = Story().log("a", "b").poll(*rows("a", "b")).sent("c", 1).poll((1, "c"), process="d")
    verdict = story.end(rows("a", "c")).check(promise)
    assert found(verdict) == {"inconsistent-offsets": 1, "lost-acked": 1} and verdict.sound
    story = Story().log("a").phase("final").poll((0, "a"), process="f1", final=True)
    assert not story.poll((1, "a"), process="f2", final=True).phase("end").check(promise).sound


@pytest.mark.parametrize(
    "again, why",
    [
        (lambda story: story.sent("a"), "the value 'a' is sent a second time"),
        (
            lambda story: story.sent("b", op=1).sent("c", partition=1, op=1),
            "operation 1 is about chaos-0 and about chaos-1, and there are no transactions",
        ),
        (lambda story: story.answer(1), "id 1 is completed, and no send with it is open"),
    ],
)
def test_an_impossible_history_is_refused(again, why: str) -> None:
    with pytest.raises(Nonsense, match=why):
        again(Story().sent("a", 0)).check()


def test_an_id_that_two_open_sends_share_is_refused() -> None:
    story = Story()
    story.attempt("a")
    story._ids = 0
    story.attempt("b")
    with pytest.raises(Nonsense, match="the id 1 is in use"):
        story.check()


def test_a_history_cut_off_in_the_middle_is_checked_up_to_there_and_says_so() -> None:
    story = Story().sent("a", 0).sent("b", 1)
    story.attempt("c")
    verdict = story.poll((1, "b")).check()
    assert found(verdict) == {"lost-write": 1} and not verdict.complete and verdict.exit_code == 1
    assert "does not reach to the end of the run, but to 0.060 s" in verdict.notes[0]
    sound = Story().sent("a", 0).check()
    assert sound.sound and not sound.complete and sound.exit_code == 3


def test_an_end_with_records_behind_it_is_none() -> None:
    verdict = Story().sent("a", 0).end(rows("a")).sent("b", 1).check()
    assert verdict.sound and not verdict.complete and verdict.exit_code == 3


def test_the_worst_lag_is_from_when_an_offset_stopped_being_the_tail_to_when_a_poll_that_ends_there_began() -> None:
    story = Story().at(1.0).sent("a", 0).at(2.0).sent("b", 1)
    assert story.at(5.0).poll((0, "a"), began=4.5).check().stats["worst_lag_s"] == pytest.approx(4.5 - 2.01)
    assert Story().log("a", "b").at(5.0).poll(*rows("a", "b")).check().stats["worst_lag_s"] == 0


def test_the_sums() -> None:
    story = Story().sent("a", 0).sent("b", None, "info").sent("c", None, "fail").poll((0, "a"))
    story.attempt("d")
    stats = story.check().stats
    assert {name: stats[name] for name in ("sends", "ok", "fail", "info", "polls", "records_read", "partitions")} == {
        **{"sends": 4, "ok": 1, "fail": 1, "info": 2, "polls": 1, "records_read": 1, "partitions": 1}
    }
    assert isinstance(story.records[1], Sent)
