"""Mistakes at the edges of groups and clients: members that come back, topics of an earlier life, clocks and commits."""

from dataclasses import replace
from typing import Any, Final

from mutants.altering import altered
from mutants.patching import ByTest, Code, Table, around
from tidelog.agent.files import FileHandler
from tidelog.agent.worker import Worker
from tidelog.client import changes, membership, numbering, offsets
from tidelog.client.fetch_state import FetchState
from tidelog.client.membership import Membership
from tidelog.client.numbering import Numbering
from tidelog.client.producer import Producer
from tidelog.controller import app, broker_desk, growth
from tidelog.controller.broker_desk import BrokerDesk
from tidelog.controller.machine import ControllerMachine
from tidelog.controller.model import ClusterState, Topic
from tidelog.controller.term import Term as ControllerTerm
from tidelog.coordinator import machine, members, store
from tidelog.coordinator.commits import Commits
from tidelog.coordinator.desk import Desk
from tidelog.coordinator.group import Member
from tidelog.coordinator.machine import CoordinatorMachine
from tidelog.coordinator.members import Members
from tidelog.coordinator.rebalance import Rebalancer
from tidelog.coordinator.term import Term
from tidelog.coordinator.topics import TopicWatcher
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.pipeline import admission
from tidelog.runtime.clock import RetentionClock
from tidelog.wire import limits

MUTANTS: Final = Table(__name__)

_TOPICS: Final = "tests/unit/coordinator/test_topics_watcher.py::"
_BY_TIME: Final = "tests/unit/client/test_offsets.py::"
_SIZES: Final = "tests/unit/client/test_message_sizes.py::"
_LIVES: Final = "tests/unit/coordinator/test_topic_lives.py::"
_STREAM: Final = "tests/unit/pipeline/test_stream_reader.py::"


@MUTANTS.mutant("UNCUT-REQUEST", ByTest("tests/unit/client/test_parts.py::test_offsets_of_many_partitions"))
@around(limits, "parts")
def request_names_everything(_: Any, kind: Any, items: Any) -> Any:
    """A client names all partitions of a leader in one request, however many there are."""
    return iter([tuple(items)] if items else [])


@MUTANTS.mutant(
    "STALE-LEAVE", ByTest("tests/unit/client/test_membership.py::test_a_leave_takes_back_nothing_of_another_member")
)
@around(membership, "_not_behind")
def leave_stores_what_it_had(_: Any, offsets: Any, _start: Any) -> Any:
    """A member that leaves stores the offsets of a former generation, whatever was stored since."""
    return tuple(offsets)


@MUTANTS.mutant("DAMAGED-TOPIC-IN-A-CLUSTER")
@MUTANTS.mutant("DAMAGED-TOPIC", ByTest(f"{_TOPICS}test_a_damaged_topic_stays_as_it_was_read_last"))
@around(TopicWatcher, "_read")
async def damaged_topic_is_gone(original: Any, self: Any) -> None:
    """A coordinator takes a topic whose znode cannot be read for deleted."""
    await original(self)
    self._topics = {name: info for name, info in self._topics.items() if name not in self._damaged}
    for listener in self._listeners:
        listener(self._topics)


@MUTANTS.mutant(
    "UNKNOWN-TOPIC",
    ByTest("tests/unit/coordinator/test_failover.py::test_nothing_of_a_topic_that_cannot_be_read_is_dropped"),
)
@around(machine, "_believed")
def unknown_topic_has_no_partitions(_: Any, topics: Any, __: Any) -> Any:
    """A new coordinator drops what is stored of a topic that it cannot read."""
    return dict(topics)


@MUTANTS.mutant(
    "UNREPAIRED", ByTest("tests/unit/coordinator/test_term.py::test_a_group_that_is_repaired_is_served_again")
)
@around(Term, "_watch_damage")
async def repaired_group_is_not_read(*_: Any) -> None:
    """A group that could not be read is refused until another term begins, also when it has been repaired."""


@MUTANTS.mutant(
    "EMPTY-HEAD",
    ByTest("tests/unit/coordinator/test_store.py::test_a_damaged_group_is_set_aside_and_the_others_are_read"),
)
@around(store, "_is_unwritten")
def empty_head_was_never_written(_: Any, data: bytes, __: Any) -> bool:
    """A group whose head has been emptied has no members and begins at generation 0."""
    return not data


@MUTANTS.mutant(
    "OLD-GENERATION",
    ByTest("tests/unit/coordinator/test_failover.py::test_a_member_that_joins_again_is_told_newer_generations"),
)
@around(Members, "_resume")
def generation_may_be_an_old_one(original: Any, self: Any, group: Any, member: Any) -> None:
    """A member that returns is started in the stored generation, though later ones have been sent."""
    with altered(group, used=group.generation):
        original(self, group, member)


@MUTANTS.mutant(
    "CLOCK-AHEAD", ByTest("tests/unit/coordinator/test_term.py::test_a_clock_that_is_set_ahead_deletes_no_group")
)
@around(RetentionClock, "read")
def wall_clock_is_believed(_: Any, self: Any, wall_ms: float, now: float) -> float:
    """Retention follows the wall clock wherever it jumps."""
    return wall_ms


@MUTANTS.mutant(
    "CLOCK-ELSEWHERE",
    ByTest("tests/unit/coordinator/test_members.py::test_a_group_is_seen_empty_before_a_clock_counts"),
)
def clock_of_another_is_believed(code: Code) -> None:
    """A coordinator deletes a group that is old by its clock, however short a time it has seen it empty."""
    code.replace(machine, "SEEN_EMPTY_S", 0.0)


@MUTANTS.mutant(
    "ANY-INCARNATION",
    ByTest("tests/unit/coordinator/test_incarnations.py::test_a_replaced_member_that_goes_on_is_refused_for_good"),
)
@around(Members, "_check_place")
def incarnations_have_no_order(original: Any, self: Any, request: Any, *place: Any) -> Any:
    """The static member that registers last has the id, also one that was replaced."""
    return original(self, replace(request, admission=0), *place)


@MUTANTS.mutant(
    "UNSTORED-INCARNATION",
    ByTest("tests/unit/coordinator/test_incarnations.py::test_the_store_names_an_incarnation_before_it_starts"),
)
@around(Members, "admit")
def incarnation_starts_unstored(_: Any, self: Any, group: Any, member: Any) -> None:
    """An incarnation that takes the place of another one starts before the store names it."""
    self._admitted(group, member)


@MUTANTS.mutant(
    "EARLY-NAME",
    ByTest("tests/unit/coordinator/test_incarnations.py::test_a_new_coordinator_awaits_the_lease_of_the_older_one"),
)
@around(Member, "stored")
def store_names_the_newer_one_early(original: Any, self: Any) -> Any:
    """The store names an incarnation while the lease of the one before it runs."""
    with altered(self, before=None):
        return original(self)


@MUTANTS.mutant(
    "LATE-REFUSAL", ByTest("tests/unit/client/test_membership.py::test_a_paused_member_learns_that_it_was_replaced")
)
@around(membership, "_is_refusal")
def late_refusal_is_not_read(*_: Any) -> bool:
    """A member whose lease is out does not read the reason of its refusal."""
    return False


@MUTANTS.mutant("LATEST-ANEW", ByTest("tests/unit/agent/test_app.py::test_an_idle_agent_keeps_the_place_of_latest"))
@around(Worker, "_note_placed")
def place_of_latest_is_not_kept(*_: Any) -> bool:
    """An agent commits nothing of a partition before it has handled a record of it."""
    return False


@MUTANTS.mutant("DELETED-RECORD", ByTest(f"{_BY_TIME}test_a_deleted_record_is_never_found"))
@around(offsets, "_look")
def deleted_records_are_found(original: Any, tp: Any, records: Any, _: int, wanted_ms: int) -> Any:
    """A look-up by time finds the records of a batch that are deleted, too."""
    return original(tp, records, 0, wanted_ms)


@MUTANTS.mutant("UNKNOWN-REFUSAL", ByTest(f"{_SIZES}test_a_record_that_was_not_received_was_not_written"))
@around(Producer, "_request_refused")
def refused_request_may_have_been_written(_: Any, self: Any, batches: list[Any], error: Any) -> None:
    """A request that the broker did not receive because of its size counts as one without an answer."""
    for batch in batches:
        self._retry_or_fail(batch, TransportError("RESOURCE_EXHAUSTED", str(error)))


@MUTANTS.mutant("LOST-NEIGHBOURS", ByTest(f"{_SIZES}test_records_around_one_that_is_too_large_are_written_once"))
@around(Numbering, "break_at")
def all_is_behind_the_gap(original: Any, self: Any, _: Any) -> None:
    """A batch that was sent before one that is missing is not sent again."""
    original(self, ())


@MUTANTS.mutant("SHARED-ANSWER", ByTest(f"{_SIZES}test_a_batch_too_large_to_fetch_fails_its_partition_alone"))
@around(FetchState, "too_large")
def large_answer_is_an_error_of_all(_: Any, self: Any, asks: list[Any], error: Any) -> None:
    """An answer that is too large is an error of every partition in it."""
    for each in asks:
        self.broken(each, TidelogError(str(error)))


@MUTANTS.mutant("FOREIGN-OFFSET", ByTest(f"{_LIVES}test_a_topic_made_anew_unseen_is_read_from_its_start[0-True]"))
@around(Desk, "is_foreign")
def foreign_offset_counts(*_: Any) -> bool:
    """An offset counts in whichever topic has the name of the one that it was committed in."""
    return False


@MUTANTS.mutant("LEFT-OFFSETS", ByTest(f"{_LIVES}test_the_next_coordinator_deletes_offsets_of_gone_topics"))
@around(CoordinatorMachine, "_load")
def offsets_of_gone_topics_stay(original: Any, self: Any, stored: Any) -> Any:
    """A new coordinator leaves what is stored of topics that are gone in the store."""
    with altered(self._desk, out=[]):
        return original(self, stored)


@MUTANTS.mutant("LEFT-OWNERS", ByTest(f"{_LIVES}test_the_next_coordinator_deletes_owners_of_gone_topics"))
@around(CoordinatorMachine, "_erase")
def owners_in_gone_topics_stay(original: Any, self: Any, group: Any, starts: Any, gone: Any) -> None:
    """A new coordinator leaves the owners in topics that are gone in the store."""
    if not gone:
        original(self, group, starts, gone)


@MUTANTS.mutant(
    "DEAD-OWNER",
    ByTest("tests/unit/coordinator/test_failover.py::test_what_was_stored_for_a_member_that_has_died_is_given_out"),
)
@around(Rebalancer, "is_outdated")
def owner_that_is_no_member_counts(original: Any, self: Any, group: Any) -> Any:
    """After a failover a partition is left to an owner that is no member of the group."""
    with altered(group, owned={}):
        return original(self, group)


@MUTANTS.mutant("OLD-POSITION", ByTest(f"{_LIVES}test_a_position_in_an_earlier_topic_is_not_stored"))
@around(CoordinatorMachine, "_forget_stale")
def position_in_a_gone_topic_counts(original: Any, self: Any, group: Any, *what: Any) -> None:
    """A member goes on where it was in a topic that has been made anew."""
    before = {member.consumer_id: (set(member.void), member.assigned) for member in group.members.values()}
    original(self, group, *what)
    for member in group.members.values():
        member.void, member.assigned = before[member.consumer_id]


@MUTANTS.mutant(
    "SAME-NAME",
    ByTest("tests/unit/client/test_membership.py::test_a_start_of_another_topic_of_the_name_begins_anew"),
)
@around(Membership, "_is_another_topic")
def name_is_the_topic(*_: Any) -> bool:
    """A member goes on with a partition of another topic of the name."""
    return False


@MUTANTS.mutant(
    "UNGIVEN-TOPIC",
    ByTest("tests/unit/client/test_fetch_state.py::test_a_partition_is_read_of_the_topic_that_it_was_added_with"),
)
@around(FetchState, "add")
def topic_is_whichever_has_the_name(original: Any, self: Any, tp: Any, *_: Any) -> None:
    """A member reads a new topic of the name before its coordinator has given that to it."""
    original(self, tp)


@MUTANTS.mutant(
    "LATE-PARTITION",
    ByTest("tests/unit/coordinator/test_new_partitions.py::test_an_added_partition_is_read_from_its_start"),
)
@around(Rebalancer, "_first_records")
def policy_decides_of_new_partitions(*_: Any) -> dict[Any, Any]:
    """The reset policy decides where reading begins, also in a partition that is newer than the group."""
    return {}


@MUTANTS.mutant(
    "UNDATED-TOPIC",
    ByTest("tests/unit/coordinator/test_new_partitions.py::test_an_old_topic_that_is_subscribed_later"),
)
@around(Desk, "newest_topic")
def topics_have_no_age(*_: Any) -> int:
    """Every topic counts as newer than the group."""
    return 0


@MUTANTS.mutant("UNNAMED-START", ByTest(f"{_STREAM}test_a_topic_that_was_created_anew_is_known_by_its_id"))
@around(admission, "topic_ids_of")
def checkpoint_names_no_topic_ids(*_: Any) -> dict[str, bytes]:
    """A stream goes on in whichever topic has the name of the one in its checkpoint."""
    return {}


@MUTANTS.mutant(
    "REPLACED-FILE",
    ByTest("tests/unit/agent/test_handlers.py::test_file_replaces_no_other_records_of_the_same_offsets"),
)
@around(FileHandler, "_free_name")
def file_of_the_name_is_replaced(_: Any, self: Any, stem: str, __: bytes) -> str:
    """A file takes the place of one with the same offsets of an earlier topic of the name."""
    return f"{stem}.{self._suffix}"


@MUTANTS.mutant(
    "MISSED-FIRST",
    ByTest("tests/unit/coordinator/test_failover.py::test_a_group_whose_members_all_miss_its_first_rebalance"),
)
@around(members, "_missed_its_first_rebalance")
def no_rebalance_for_a_late_member(*_: Any) -> bool:
    """A member whose stream was broken during its first rebalance waits for another one that may never come."""
    return False


@MUTANTS.mutant(
    "TAKEN-FOR-GOOD",
    ByTest("tests/unit/client/test_group_consumer.py::test_a_consumer_that_crashed_joins_under_its_name"),
)
@around(Membership, "_refused")
def taken_name_ends_the_consumer(original: Any, self: Any, *answer: Any) -> None:
    """A consumer whose id another one has when it registers never asks for it again."""
    with altered(self, _admission=self._admission or 1):
        original(self, *answer)


@MUTANTS.mutant(
    "COPIED-OFFSETS",
    ByTest("tests/unit/coordinator/test_large_groups.py::test_each_offset_is_looked_at_for_its_owner_alone"),
)
@around(Commits, "newest")
def offsets_are_copied_for_each_member(original: Any, self: Any, group: Any) -> Any:
    """A member that returns is started with a copy of all offsets of its group."""
    return dict(original(self, group))


@MUTANTS.mutant(
    "DEPOSED-IS-UNDONE",
    ByTest("tests/unit/controller/test_shell.py::test_a_deposed_controller_says_what_may_be_done"),
)
@around(ControllerTerm, "ask")
async def deposed_controller_has_done_nothing(original: Any, self: Any, event: Any, **_: Any) -> Any:
    """A controller that is deposed says of requests that it has begun with that nothing was done."""
    return await original(self, event)


@MUTANTS.mutant(
    "DEPOSED-DELETES-NOTHING",
    ByTest("tests/unit/coordinator/test_term.py::test_a_deposed_coordinator_says_what_may_be_deleted"),
)
@around(Term, "ask")
async def deposed_coordinator_has_done_nothing(original: Any, self: Any, event: Any, **_: Any) -> Any:
    """A coordinator that is deposed says of deletions that it has begun with that nothing was done."""
    return await original(self, event)


@MUTANTS.mutant(
    "OWN-WORK-IN-THE-WAY",
    ByTest("tests/unit/client/test_answers_lost.py::test_changes_over_a_change_of_controllers"),
)
@around(changes, "_done_if")
def own_work_is_an_error(_: Any, __: bool, item: Any) -> Any:
    """A change that finds itself done by a try before it, whose answer was lost, ends with an error."""
    return item


@MUTANTS.mutant(
    "ANY-TOPIC-OF-THE-NAME",
    ByTest("tests/unit/client/test_answers_lost.py::test_a_try_that_was_never_sent_leaves_no_doubt"),
)
def unsent_try_may_be_done(code: Code) -> None:
    """A topic that another client has created counts as created by a request that no broker has got."""
    code.replace(changes, "_UNSENT", ())


_PLANS: Final = "tests/unit/controller/test_large_plans.py::"


@MUTANTS.mutant("PLAN-IN-ONE-WRITE", ByTest(f"{_PLANS}test_a_new_broker_gets_its_share_of_2000_topics"))
def plan_is_one_part(code: Code) -> None:
    """The whole plan for a broker that came is one write, however large it is."""
    code.replace(broker_desk, "PART", 1_000_000)


@MUTANTS.mutant("FULL-TOPIC", ByTest(f"{_PLANS}test_a_topic_of_too_many_moves_keeps_no_other_waiting"))
@around(BrokerDesk, "done")
def full_topic_ends_the_plan(original: Any, self: Any, event: Any, code: Any, message: str) -> None:
    """A topic that can hold no more moves ends the plan for all topics."""
    original(self, event, code, f"{message}!")


@MUTANTS.mutant("UNFINISHED-PLAN", ByTest(f"{_PLANS}test_a_drain_of_2000_topics_outlives_its_controller"))
@around(BrokerDesk, "go_on")
def plan_ends_with_its_controller(*_: Any) -> None:
    """A controller leaves a plan of which the one before it has written a part as it is."""


@MUTANTS.mutant("WHOLE-PLAN-AGAIN", ByTest(f"{_PLANS}test_a_plan_outlives_what_does_not_concern_it"))
@around(BrokerDesk, "_can_move")
def any_change_needs_another_plan(original: Any, self: Any, job: Any, *moved: Any) -> bool:
    """Everything is planned anew when a topic has come, grown or gone since the plan was made."""
    now = {each.tp: each.target for each in self._state.partitions() if not self._is_going(each)}
    job.skipped = job.skipped or now.keys() != job.current.keys()
    can: bool = original(self, job, *moved)
    return can


@MUTANTS.mutant(
    "HOPELESS-PLANS",
    ByTest("tests/unit/controller/test_broker_desk.py::test_an_interrupted_plan_is_completed_when_it_can_be"),
)
@around(BrokerDesk, "_end")
def plan_that_fails_is_made_at_once_again(original: Any, self: Any, *answer: Any) -> None:
    """A plan of an earlier controller that cannot be made is made again at each event."""
    original(self, *answer)
    self._failed_with = None


_UNREAD: Final = "tests/unit/controller/test_unread_znodes.py::"


@MUTANTS.mutant("UNREAD-IS-EMPTY", ByTest(f"{_UNREAD}test_settings_that_cannot_be_read_stay_as_they_are"))
@around(Topic, "published_to")
def unknown_settings_are_the_defaults(_: Any, self: Any, __: Any) -> Any:
    """A controller tells brokers that a topic whose settings it cannot read has none of its own."""
    return self.published()


@MUTANTS.mutant("UNREAD-IS-UNSAID", ByTest(f"{_UNREAD}test_a_broker_that_knows_no_settings_deletes_nothing"))
@around(Topic, "published_to")
def new_broker_is_told_no_settings(_: Any, self: Any, __: Any) -> Any:
    """A broker that has just started is told nothing of a topic whose settings cannot be read, and takes the defaults."""
    return self.published() if self.unread is None else None


@MUTANTS.mutant("UNREAD-IS-WRITTEN", ByTest(f"{_UNREAD}test_a_placement_that_cannot_be_read_is_not_changed"))
@around(ClusterState, "check_read")
def unknown_settings_are_changed(*_: Any) -> None:
    """A controller changes settings that it cannot read, as if there were none."""


@MUTANTS.mutant("REPAIRED-UNNOTICED", ByTest(f"{_UNREAD}test_settings_that_cannot_be_read_stay_as_they_are"))
@around(ControllerTerm, "_watch_unread")
async def repaired_settings_wait_for_the_next_controller(*_: Any) -> None:
    """Settings that are repaired are read by the next controller only."""


@MUTANTS.mutant("EPOCHS-RISE", ByTest(f"{_UNREAD}test_terms_that_fail_come_ever_less_often"))
def terms_fail_twice_a_second(code: Code) -> None:
    """A controller that cannot begin stands for election again at once, and the epoch grows each time."""
    code.replace(app, "STAND_AGAIN_MAX_S", app.STAND_AGAIN_S)


_FOREIGN: Final = "tests/unit/coordinator/test_foreign_members.py::"


@MUTANTS.mutant("ASSIGNOR-OF-THE-FIRST", ByTest(f"{_FOREIGN}test_a_member_alone_chooses_the_assignor"))
@around(Members, "_connect")
def assignor_stays_with_the_member(original: Any, self: Any, event: Any, group: Any, *of: Any, **how: Any) -> None:
    """A static member that starts again alone in its group has the assignor that it had before, whatever it asks for."""
    before = group.assignor
    original(self, event, group, *of, **how)
    if of[0].before is not None:
        group.assignor = before


@MUTANTS.mutant("REFUSED-IS-STARTED", ByTest(f"{_FOREIGN}test_a_member_that_cannot_start_has_not_started"))
@around(Rebalancer, "started")
def start_that_failed_counts(original: Any, self: Any, group: Any, member: Any, response: Any) -> None:
    """A member that answers a Start with an error counts as started."""
    original(self, group, member, replace(response, error_code=ErrorCode.NONE))


@MUTANTS.mutant("REFUSED-IS-STOPPED", ByTest(f"{_FOREIGN}test_a_member_that_cannot_stop_has_not_stopped"))
@around(Rebalancer, "stopped")
def stop_that_failed_counts(original: Any, self: Any, group: Any, member: Any, response: Any, number: int) -> None:
    """A partition that a member could not stop is given to another one."""
    original(self, group, member, replace(response, error_code=ErrorCode.NONE), number)


@MUTANTS.mutant("UNASKED-OFFSETS", ByTest(f"{_FOREIGN}test_only_members_with_auto_commit_report_offsets"))
@around(Commits, "report")
def offsets_are_stored_unasked(original: Any, self: Any, group: Any, member: Any, *report: Any) -> None:
    """Offsets of a member that commits by itself are stored from its pings, too."""
    with altered(member, request=replace(member.request, auto_commit=True)):
        original(self, group, member, *report)


_MEMBERS: Final = "tests/unit/coordinator/test_members.py::"


@MUTANTS.mutant("SPARED-FOR-EVER", ByTest(f"{_MEMBERS}test_the_dead_are_noticed_although_time_stands_still"))
@around(Members, "paused")
def each_pause_spares_the_dead(original: Any, self: Any, seconds: float) -> None:
    """A member that is dead gets time to speak after each pause of a process that stands still again and again."""
    for group in self._desk.groups.values():
        for member in group.members.values():
            member.spared = False
    original(self, seconds)


@MUTANTS.mutant("UNREAD-AFTER-A-PAUSE", ByTest(f"{_MEMBERS}test_an_answer_that_came_in_a_pause_has_time_to_be_read"))
@around(Members, "paused")
def pause_spares_no_member(original: Any, self: Any, seconds: float) -> None:
    """A lease that is nearly over ends before an answer is read that came while the process stood still."""
    for group in self._desk.groups.values():
        for member in group.members.values():
            member.spared = True
    original(self, seconds)


_TOPICS_BY_HAND: Final = "tests/unit/controller/test_machine_topics.py::"


@MUTANTS.mutant("REMOVED-IN-PART", ByTest(f"{_TOPICS_BY_HAND}test_settings_that_go_or_come_by_hand_keep_no_topic"))
@around(ControllerMachine, "_on_removal_examined")
def removal_that_conflicts_is_done(_: Any, self: Any, group: Any, __: bool) -> None:
    """A topic whose settings were deleted by hand counts as deleted, while its znodes stay."""
    self._topic_gone(group.name)


@MUTANTS.mutant("ORPHANED-SETTINGS", ByTest(f"{_TOPICS_BY_HAND}test_settings_without_a_topic_are_in_no_topics_way"))
@around(ControllerMachine, "_on_topic_write")
def orphaned_settings_stay(original: Any, self: Any, group: Any, *outcome: Any) -> None:
    """Settings of no topic keep a topic of the name from being created."""
    original(self, replace(group, replaces_configs=True), *outcome)


@MUTANTS.mutant(
    "FULL-OF-PARTITIONS",
    ByTest("tests/unit/controller/test_machine_growth.py::test_a_topic_that_moves_grows_no_further_than_it_may"),
)
def topic_grows_until_nothing_ends(code: Code) -> None:
    """A topic whose partitions move grows until the end of a move has no room beside it."""
    code.replace(growth, "can_be_ended", lambda _: True)


@MUTANTS.mutant(
    "KNOWN-FOR-EVER",
    ByTest("tests/unit/client/test_idempotent_producer.py::test_after_a_while_the_leader_may_have_forgotten"),
)
def producer_counts_as_known(code: Code) -> None:
    """A producer sends several batches at once to a leader that may have forgotten it."""
    code.replace(numbering, "REMEMBERED_S", float("inf"))


@MUTANTS.mutant(
    "STARTS-AT-ONCE",
    ByTest("tests/unit/coordinator/test_large_groups.py::test_a_large_group_is_started_in_several_steps"),
)
@around(Rebalancer, "start_more")
def group_is_started_in_one_step(original: Any, self: Any, group: Any) -> None:
    """All members of a group are started in one step, however many they are."""
    original(self, group)
    while group.attempt is not None and group.attempt.to_start:
        original(self, group)


@MUTANTS.mutant(
    "ONCE-UNKNOWN", ByTest("tests/unit/client/test_consumer.py::test_a_topic_that_is_known_again_is_read_on")
)
@around(FetchState, "found_again")
def unknown_topic_stays_unknown(*_: Any) -> None:
    """A reader for which a topic was unknown for a while never reads it again."""
