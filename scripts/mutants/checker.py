"""The checker of chaos with a rule gone or weakened: a check that cannot fail is found by one that does."""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any, Final

from mutants.altering import Seen
from mutants.patching import ByTest, Code, Plant, Table, around
from tidelog.chaos.checker import contents, groups, names, replicas, version_order
from tidelog.chaos.checker.availability import Waits
from tidelog.chaos.checker.check import Checker
from tidelog.chaos.checker.cycles import Operations
from tidelog.chaos.checker.findings import Findings
from tidelog.chaos.checker.graph import Graph
from tidelog.chaos.checker.groups import Groups
from tidelog.chaos.checker.intervals import Intervals
from tidelog.chaos.checker.sessions import Consumer, Polls
from tidelog.chaos.checker.tables import ACKED, NOBODY, Tables
from tidelog.chaos.checker.version_order import NOWHERE, VersionOrder
from tidelog.chaos.checker.watermarks import Highest, Watermarks
from tidelog.ids import NO_EPOCH

MUTANTS: Final = Table(__name__)


def rule(name: str, file: str, test: str) -> Callable[[Plant], Plant]:
    return MUTANTS.mutant(f"CHECK-{name}", ByTest(f"tests/unit/chaos/checker/test_{file}.py::test_{test}"))


def unreported(code: Code, rejects: Callable[..., bool]) -> None:
    """A finding does not count if `rejects`, which gets the rule and what the finding is about, says so."""

    def add(original: Any, self: Any, name: str, told: Any, *about: Any) -> None:
        if not rejects(name, *about):
            original(self, name, told, *about)

    code.wrap(Findings, "add", add)


# -- contents ----------------------------------------------------------------------------------------------------------


@rule("inconsistent-offsets", "contents", "inconsistent_offsets_two_readers_see_different_values_at_one_offset")
def first_reader_is_right(code: Code) -> None:
    """The first reader of an offset is right."""
    code.during(Tables, "_learn", lambda self: {"conflicts": {}})


@rule("acknowledged-offsets", "contents", "inconsistent_offsets_an_acknowledgement_counts_as_a_reader")
def acknowledgement_says_nothing(code: Code) -> None:
    """An acknowledged offset is no part of the log."""
    code.replace(VersionOrder, "_add_acknowledged", lambda self, tables: None)


@rule("duplicate", "contents", "duplicate_of_an_idempotent_producer")
@around(VersionOrder, "_rank")
def value_is_where_it_is_first(original: Any, self: Any) -> None:
    """A value counts where it appears first alone."""
    original(self)
    for v in self.picked:
        self.last[v] = self.first[v]


@rule("duplicate-shared", "contents", "duplicate_at_offsets_that_it_shares_with_another_value")
@around(VersionOrder, "_rank")
def shared_offset_has_one_value(original: Any, self: Any) -> None:
    """An offset with two values belongs to the first one."""
    original(self)
    last = {v: rank for rank, v in enumerate(self.picked)}
    for v in set().union(*self._conflicts.values()):
        self.last[v] = last.get(v, NOWHERE)


@rule("idempotence", "contents", "duplicate_of_an_idempotent_producer")
def idempotence_is_nothing(code: Code) -> None:
    """A duplicate is tolerated of an idempotent producer too."""
    code.wrap(contents, "check_offsets", lambda original, *what, idempotent: original(*what, idempotent=False))


@rule("G1a", "contents", "g1a_a_failed_value_is_read")
def failed_may_be_read(code: Code) -> None:
    """A value whose send failed may be read."""
    unreported(code, lambda name, *_: name == "G1a")


@rule("never-sent", "contents", "never_sent_a_value_of_another_partition")
def anything_may_be_read(code: Code) -> None:
    """A value of another partition is as good."""
    unreported(code, lambda name, *_: name == "never-sent")


@rule(
    "lost-write",
    "contents",
    "lost_jepsens_own_case_the_overwritten_one_of_two_values_at_an_offset_is_reported",
)
def bound_itself_is_not_lost(code: Code) -> None:
    """A value at the very bound, where the last one that was read is, is not lost."""

    def at_bound(name: str, *about: Any) -> bool:
        if name != "lost-write":
            return False
        _, order, v, witness = about
        return bool(order.last[v] == order.first[witness])

    unreported(code, at_bound)


@rule("lost-bound", "contents", "lost_the_bound_is_where_a_value_that_was_read_appears_first")
@around(contents, "check_lost_writes")
def bound_is_the_last_place(original: Any, tables: Any, order: Any, found: Any) -> None:
    """The bound is where a value that was read appears last."""
    original(tables, Seen(order, first=order.last), found)


@rule(
    "committed",
    "contents",
    "lost_jepsens_own_case_of_an_operation_in_doubt",
)
@around(version_order, "must_have_committed")
def doubt_excuses(original: Any, tables: Any) -> Any:
    """A send in doubt is never missed, whatever was read of its operation."""
    return original(Seen(tables, op=[NOBODY] * len(tables.op)))


@rule("unseen", "contents", "unseen_what_nobody_has_read_by_the_end_although_it_was_acknowledged")
def acknowledged_need_not_be_read(code: Code) -> None:
    """A value that was acknowledged need not be read by the end."""
    unreported(code, lambda name, *_: name == "unseen")


@rule(
    "X1-acked",
    "contents",
    "x1_a_value_that_was_read_and_acknowledged_and_then_cut_off_is_lost_although_jepsens_rules_see_nothing",
)
@around(contents, "check_final")
def read_once_is_safe(original: Any, tables: Any, order: Any, present: bytearray, found: Any) -> None:
    """A value that was read once is safe, as Jepsen's rules have it."""
    safe = (there or reader >= 0 for there, reader in zip(present, tables.read_by, strict=True))
    original(tables, order, bytearray(safe), found)


@rule("X1-read", "contents", "x1_a_value_in_doubt_that_was_read_must_stay")
@around(contents, "check_final")
def read_in_doubt_may_vanish(original: Any, tables: Any, order: Any, present: bytearray, found: Any) -> None:
    """A value in doubt that was read may vanish."""
    safe = (there or outcome != ACKED for there, outcome in zip(present, tables.outcome, strict=True))
    original(tables, order, bytearray(safe), found)


@rule("X1-equal", "contents", "x1_final_readers_must_see_the_same")
@around(contents, "_compare")
def shorter_reader_will_do(original: Any, tables: Any, longest: Any, other: Any, found: Any) -> None:
    """Final readers are compared as far as the shorter one came."""
    original(Seen(tables, crashed={other[0]}), longest, other, found)


@rule("X3-leader", "contents", "x3_any_other_loss_of_it_is_none_that_is_allowed")
def leader_need_not_go(code: Code) -> None:
    """A record of one copy may be lost although its leader stayed."""
    code.replace(Tables, "leader_changed_after", lambda self, v: self.epoch[v] != NO_EPOCH)


@rule("X3-copies", "contents", "x3_any_other_loss_of_it_is_none_that_is_allowed")
@around(version_order, "alone")
def copies_do_not_count(original: Any, tables: Any) -> Any:
    """Any acknowledged record may be lost with its leader."""
    return original(Seen(tables, one_copy=b"\1" * len(tables.one_copy)))


@rule("X3-read", "contents", "x3_any_other_loss_of_it_is_none_that_is_allowed")
@around(VersionOrder, "__init__")
def read_may_be_lost(original: Any, self: Any, tables: Any) -> None:
    """A record of one copy may be lost after it was read."""
    original(self, tables)
    self.excused[:] = self.alone


@rule("X3-place", "contents", "x3_what_one_replica_acknowledged_is_in_its_place_only_if_a_reader_found_it_there")
def place_is_kept(code: Code) -> None:
    """A record of one copy, its leader gone, keeps its place if it was read anywhere."""
    code.during(VersionOrder, "_add_acknowledged", lambda self: {"alone": self.excused})


@rule("replicated", "contents", "a_value_that_others_had_may_not_be_lost")
def watermark_says_nothing(code: Code) -> None:
    """A record of one copy may be lost although others had it."""
    code.replace(Tables, "was_replicated", lambda self, v: False)


@rule("torn-batch", "contents", "a_batch_in_doubt_is_in_the_log_as_a_whole")
def batches_may_be_torn(code: Code) -> None:
    """A part of a batch may be in the log."""
    unreported(code, lambda name, *_: name == "torn-batch")


@rule("wrong-offset", "contents", "what_one_replica_acknowledged_is_where_it_said")
def offset_may_be_any(code: Code) -> None:
    """A value that one replica acknowledged may be anywhere."""
    unreported(code, lambda name, *_: name == "wrong-offset")


@rule("hole", "contents", "the_final_read_finds_every_offset")
def holes_are_well(code: Code) -> None:
    """The final read may find an offset without a record."""
    unreported(code, lambda name, *_: name == "hole")


@rule("X3-heal", "contents", "x3_a_leader_that_changed_after_the_heal_excuses_nothing")
def late_change_excuses(code: Code) -> None:
    """A leader that changes after the heal excuses losses before it."""
    code.during(Tables, "leader_changed_after", lambda self: {"epoch_healed": None})


@rule("tolerance", "contents", "x3_what_nothing_promises_away_is_bad_even_of_one_copy")
@around(names, "tolerated")
def loss_is_allowed_everywhere(original: Any, name: Any, promise: Any) -> Any:
    """An allowed loss is allowed where nothing may be lost."""
    return name in names._IF_ONE_COPY_MAY_BE_LOST or original(name, promise)


@rule("X2", "replicas", "x2_a_replica_with_other_bytes")
@around(replicas, "_between")
def length_is_enough(original: Any, *where: Any) -> list[Any]:
    """Replicas are equal if they are as long."""
    return [each._replace(digest="") for each in original(*where)]


@rule("replica-torn", "replicas", "every_offset_is_there_once_in_each_replica")
def offsets_may_lack(code: Code) -> None:
    """Replicas that lack the same offsets are whole."""
    code.replace(replicas, "_torn", lambda replica, high: None)


@rule("replica-twice", "replicas", "a_batch_that_one_replica_has_twice_or_elsewhere")
@around(replicas, "_between")
def order_does_not_count(original: Any, *where: Any) -> list[Any]:
    """A batch that is there twice is there, and order is nothing."""
    return sorted(set(original(*where)))


@rule("X2-watermark", "replicas", "x2_above_the_high_watermark_they_may_differ")
def equal_above_the_watermark(code: Code) -> None:
    """Replicas must be equal above the high watermark too."""
    code.wrap(replicas, "_between", lambda original, replica, low, high: original(replica, low, replica.log_end))


@rule("cut-off", "contents", "a_history_cut_off_in_the_middle_is_checked_up_to_there_and_says_so")
def cut_off_is_whole(code: Code) -> None:
    """A history that was cut off is whole."""
    code.wrap(Checker, "verdict", lambda original, self, held: replace(original(self, held), complete=True))


# -- sessions and cycles -----------------------------------------------------------------------------------------------


@rule("int-poll", "sessions", "int_poll_skip_one_poll_passes_over_a_value")
def poll_is_one_step(code: Code) -> None:
    """The records of one poll are not looked at."""
    code.replace(Polls, "_jumps_within", lambda self, *_: None)


@rule("int-poll-gap", "sessions", "int_poll_skip_a_gap_of_offsets_is_no_value")
@around(Polls, "check")
def gap_is_a_value(original: Any, self: Any, order: Any, found: Any) -> None:
    """A gap of offsets is a value."""
    original(self, Seen(order, rank=lambda offset: offset), found)


@rule("int-poll-rebalance", "sessions", "int_rules_exempt_what_is_in_the_rebalance_log_of_the_operation")
@around(Polls, "_jumps_within")
def rebalance_excuses_nothing(original: Any, self: Any, record: Any, poll: int, consumer: Any, *what: Any) -> None:
    """The rebalance log of an operation excuses nothing."""
    original(self, record, poll, Seen(consumer, changed_at=-1.0), *what)


@rule("int-nonmonotonic-poll", "sessions", "int_nonmonotonic_poll_one_poll_goes_back_or_repeats")
def repetition_is_none(code: Code) -> None:
    """A record that is read twice in one poll is read once."""
    unreported(code, lambda name, *about: name.endswith("nonmonotonic-poll") and about[1] < 1)


@rule("poll-skip", "sessions", "poll_skip_between_two_polls_of_a_process")
def poll_begins_anywhere(code: Code) -> None:
    """A consumer may begin each poll where it likes."""
    code.replace(Polls, "_jump_to", lambda self, *_: None)


@rule("nonmonotonic-poll", "sessions", "nonmonotonic_poll_between_two_polls_of_a_process")
@around(Polls, "_jump_to")
def consumer_goes_back(original: Any, self: Any, record: Any, poll: int, consumer: Any, first: int) -> None:
    """A consumer may go back between two polls."""
    if consumer.last is not None and first > consumer.last:
        original(self, record, poll, consumer, first)


@rule("poll-assigned", "sessions", "poll_skip_between_two_polls_of_a_process")
def every_consumer_is_a_member(code: Code) -> None:
    """A consumer with assigned partitions is forgiven as a member of a group is."""
    code.wrap(Polls, "polled", lambda original, self, record, poll: original(self, Seen(record, group="any"), poll))


@rule("poll-kept", "sessions", "poll_rules_an_assignment_that_keeps_the_key_is_no_excuse")
@around(Polls, "ownership")
def kept_key_excuses(original: Any, self: Any, record: Any) -> None:
    """An assignment that keeps the key excuses what comes after it."""
    self._consumers.setdefault(record.process, Consumer()).last = None
    original(self, record)


@rule("unread", "sessions", "consumer_unread_it_comes_to_what_was_acknowledged[2]")
def consumer_may_starve(code: Code) -> None:
    """A consumer without a group may stop anywhere."""
    code.wrap(Polls, "check_alone", lambda original, self, *what, ended: original(self, *what, ended=False))


@rule("unread-head", "sessions", "consumer_unread_it_begins_at_the_log_start[1-True]")
@around(Polls, "check_alone")
def consumer_begins_anywhere(
    original: Any, self: Any, order: Any, present: bytearray, found: Any, *, ended: bool
) -> None:
    """A consumer without a group may begin anywhere."""
    original(self, Seen(order, offsets=[inf], picked=[]), present, found, ended=ended)


@rule("nonmonotonic-send", "sessions", "nonmonotonic_send_a_producer_is_passed_by_its_own_later_value")
def sends_land_in_any_order(code: Code) -> None:
    """A producer's values may land in any order."""
    unreported(code, lambda name, *_: name.startswith("nonmonotonic-send"))


@rule("int-nonmonotonic-send", "sessions", "int_nonmonotonic_send_two_sends_of_one_operation_land_in_reverse")
def operation_lands_in_any_order(code: Code) -> None:
    """The sends of one operation may land in any order."""
    unreported(code, lambda name, *_: name == "int-nonmonotonic-send")


@rule("int-send-skip", "sessions", "int_send_skip_others_come_between_and_that_is_tolerated")
def others_between_are_not_seen(code: Code) -> None:
    """Others between two sends of one operation are not seen."""
    unreported(code, lambda name, *_: name == "int-send-skip")


@rule("precommitted-read", "sessions", "precommitted_read_an_operation_reads_its_own_send")
def own_send_may_be_read(code: Code) -> None:
    """An operation may read its own send."""
    unreported(code, lambda name, *_: name == "precommitted-read")


@rule("G0", "cycles", "g0_two_operations_write_between_each_other")
def neighbours_have_no_order(code: Code) -> None:
    """Neighbours in the log have no order."""
    code.replace(Operations, "_neighbours", lambda self, order: [NOBODY] * len(self.tables.values))


@rule("G1c", "cycles", "g1c_two_operations_read_from_each_other")
def readers_have_no_order(code: Code) -> None:
    """Readers have no order."""
    code.replace(Operations, "wr", lambda self, node: set())


@rule("realtime", "cycles", "g1c_realtime_something_is_read_before_it_is_sent")
def time_orders_nothing(code: Code) -> None:
    """Time orders nothing."""
    code.during(Graph, "left_by_peeling", lambda self: {"begins": [-inf] * len(self.begins)})


@rule("process", "cycles", "g1c_process_a_client_reads_what_it_sends_later")
def processes_have_no_order(code: Code) -> None:
    """Each operation is a process of its own."""
    code.replace(Operations, "process", lambda self, node: str(node))


# -- watermarks, groups and availability -------------------------------------------------------------------------------


@rule("X4-epoch", "watermarks", "x4_a_watermark_that_falls_within_an_epoch")
def watermark_falls(code: Code) -> None:
    """A high watermark may fall within an epoch."""
    code.during(Watermarks, "watermark", lambda self: {"_reported": {}})


@rule("watermark-ahead", "watermarks", "a_watermark_behind_the_end_of_the_log")
def watermark_is_anywhere(code: Code) -> None:
    """A high watermark may be behind the end of the log."""
    unreported(code, lambda name, *_: name == "watermark-ahead")


@rule("X4-read", "watermarks", "x4_a_leader_that_has_acknowledged_is_not_below_what_was_read")
def later_leader_is_below(code: Code) -> None:
    """A later leader may be below what was read."""
    code.during(Watermarks, "watermark", lambda self: {"_read": Highest()})


@rule("X4-taking-over", "watermarks", "x4_a_new_leader_may_be_behind_until_it_has_taken_over")
@around(Watermarks, "_bound")
def leader_is_bound_at_once(original: Any, self: Any, epoch: int, asked: float) -> Any:
    """A leader is held to what was read before it has taken over."""
    until = original(self, epoch, asked)
    return self._heard_of[epoch] if until is None else until


@rule("X4-cut-off", "watermarks", "x4_a_leader_that_is_cut_off_knows_nothing_of_what_its_successor_serves")
@around(Watermarks, "_bound")
def leader_knows_its_successor(original: Any, self: Any, epoch: int, asked: float) -> Any:
    """A leader that is cut off is held to what its successor serves."""
    return None if original(self, epoch, asked) is None else asked


@rule("X5-owners", "groups", "x5_two_owners_in_one_generation")
def two_may_own(code: Code) -> None:
    """A partition may have two owners."""
    unreported(code, lambda name, *_: name == "group-two-owners")


@rule("committer", "groups", "a_commit_is_that_of_the_owner")
def anyone_may_commit(code: Code) -> None:
    """A member that commits owns the partition."""
    code.replace(groups, "_owner_at", lambda group, term, process: process)


@rule("read-work", "groups", "a_member_has_processed_no_more_than_it_has_read")
def work_is_as_told(code: Code) -> None:
    """A member has processed what it says."""
    code.replace(Groups, "polled", lambda self, record: None)


@rule("commits-kept", "groups", "a_group_whose_commits_are_all_refused")
def commits_may_be_gone(code: Code) -> None:
    """Committed offsets may be gone at last."""
    unreported(code, lambda name, *_: name == "group-commit-lost")


@rule("work-in-doubt", "groups", "a_value_in_doubt_is_processed_too")
@around(Groups, "check")
def doubt_need_not_be_processed(original: Any, self: Any, order: Any, present: bytearray, *, ended: bool) -> None:
    """A group may pass over what was not acknowledged."""
    acked = (there and outcome == ACKED for there, outcome in zip(present, self._tables.outcome, strict=True))
    original(self, order, bytearray(acked), ended=ended)


@rule("X5-commit-fell", "groups", "x5_a_commit_that_falls_within_a_generation")
def commit_goes_back(code: Code) -> None:
    """A commit may go back."""
    unreported(code, lambda name, *_: name == "group-commit-fell")


@rule("X5-commit-terms", "groups", "x5_a_commit_of_an_older_generation_whose_answer_comes_late_is_none_that_fell")
@around(Groups, "_check_commits")
def commits_in_order_of_answers(original: Any, self: Any, name: str, mine: Any) -> None:
    """Commits are compared in the order in which their answers came."""
    arrived = {(turn, turn): commits for turn, commits in enumerate(mine.commits.values())}
    original(self, name, Seen(mine, commits=arrived))


@rule("X5-commit-ahead", "groups", "x5_a_commit_beyond_what_was_processed_whatever_becomes_of_it")
def commit_runs_ahead(code: Code) -> None:
    """A commit may run ahead of what was processed."""
    unreported(code, lambda name, *_: name == "group-commit-ahead")


@rule("X5-skipped", "groups", "x5_a_group_passes_over_values")
def below_the_end_is_processed(code: Code) -> None:
    """A group has processed whatever is below its last offset."""
    code.wrap(Intervals, "holes", lambda original, self, start, end: original(self, max(start, self.end), end))


@rule("X5-unprocessed", "groups", "x5_a_group_that_does_not_come_to_the_end")
def end_is_never_there(code: Code) -> None:
    """A group need not come to the end."""
    code.wrap(Groups, "_check_skipped", lambda original, self, *what, ended: original(self, *what, ended=False))


@rule("X5-repeats", "groups", "x5_a_member_repeats_itself_without_a_rebalance")
@around(Groups, "_process")
def member_repeats_itself(original: Any, self: Any, record: Any, mine: Any, start: int, end: int) -> None:
    """A member may repeat itself."""
    tenure = mine.tenures.setdefault(record.process, mine.begin())
    original(self, record, mine, min(max(start, tenure.next), end), end)


@rule("X5-in-hand", "groups", "x5_a_new_owner_repeats_no_more_than_the_one_before_had_in_hand")
def owner_repeats_everything(code: Code) -> None:
    """A new owner may repeat as much as it likes."""
    code.during(Groups, "_again", lambda self: {"_in_hand_max": None})


@rule("X6-gap", "availability", "x6_a_refusal_ends_no_gap")
@around(Waits, "send")
def gap_begins_late(original: Any, self: Any, v: int, t: float) -> None:
    """A gap begins with the last attempt before its end."""
    original(self, v, t)
    self._since[self._tables.acks[v]] = t


@rule("X6-open", "availability", "x6_a_gap_that_nothing_ended_reaches_to_what_was_heard_last")
def open_gap_is_none(code: Code) -> None:
    """A gap that nothing ended is none."""
    code.during(Waits, "_gap", lambda self: {"_since": [inf] * len(self._since)})


@rule("X6-promise", "availability", "x6_unavailable_is_what_is_longer_than_promised")
def no_wait_is_too_long(code: Code) -> None:
    """A partition is never unavailable for too long."""
    unreported(code, lambda name, *_: name == "unavailable")
