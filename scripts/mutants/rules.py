"""The known holes of the protocol, each opened again in the real code. docs/rules.md has the rules that close them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from mutants.altering import altered
from mutants.patching import ByTest, Code, Plant, Table, around
from tidelog.broker import fetch
from tidelog.broker.control_service import ControlService
from tidelog.broker.replica_manager import ReplicaManager
from tidelog.client.membership import Membership
from tidelog.controller import alter_isr, election, reassignment
from tidelog.controller.alter_isr import Hearing
from tidelog.controller.channels import BrokerChannel
from tidelog.controller.effects import Outcome
from tidelog.controller.machine import ControllerMachine
from tidelog.controller.racks import Racks
from tidelog.controller.shutdown import ShutdownDesk
from tidelog.controller.store import FencedStore
from tidelog.coordinator.group import Member
from tidelog.coordinator.machine import CoordinatorMachine
from tidelog.coordinator.members import Members
from tidelog.coordinator.model import Phase
from tidelog.coordinator.rebalance import Rebalancer
from tidelog.coordinator.store import FencedGroupStore
from tidelog.errors import ErrorCode
from tidelog.ids import NO_EPOCH, NO_LEADER, TopicPartition
from tidelog.ports.meta import Check
from tidelog.replica import effects as fx
from tidelog.replica.isr import Committed, PendingShrink
from tidelog.replica.leader import AppendMarks, LeaderState
from tidelog.replica.partition import PartitionReplica, Role
from tidelog.runtime import zk_patterns
from tidelog.storage import data_dir
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.producer_state import ProducerTable
from tidelog.wire import znodes
from tidelog.wire.znodes import Move

MUTANTS: Final = Table(__name__)

_ISR_CHANGES: Final = "controller/test_machine_isr"


def named(name: str, file: str, test: str) -> Callable[[Plant], Plant]:
    return MUTANTS.mutant(name, ByTest(f"tests/unit/{file}.py::test_{test}"))


def rule(name: str, file: str, test: str) -> Callable[[Plant], Plant]:
    """The mutant breaks this rule of docs/rules.md."""
    return named(name, file, test)


# -- histories that part, and what may be counted and elected ----------------------------------------------------------


@rule(
    "A follower never truncates to its high watermark",
    "replica/test_follower",
    "becoming_follower_fetches_in_the_new_epoch_and_truncates_nothing_by_itself",
)
@around(PartitionReplica, "_become_follower")
def follower_begins_with_a_cut(original: Any, self: Any, event: Any) -> list[Any]:
    """A replica that becomes a follower cuts its log to its own high watermark."""
    out = original(self, event)
    self._cut_to(self.high_watermark)
    return [fx.TruncateTo(self.high_watermark), *out]


@rule(
    "Diverging logs are cut where their leader epochs part",
    "replica/test_follower",
    "divergence_cuts_to_the_end_of_the_common_epoch",
)
@around(PartitionReplica, "_on_chunk")
def cut_to_the_high_watermark(original: Any, self: Any, event: Any) -> Any:
    """A diverging log is cut to its own high watermark, wherever the histories part."""
    return original(self, replace(event, own_epoch=NO_EPOCH, own_end=self.high_watermark))


@rule(
    "Truncation repeats until leader and follower share an epoch",
    "replica/test_follower",
    "an_epoch_unknown_here_cuts_to_the_end_of_the_next_smaller_one",
)
@around(PartitionReplica, "_on_chunk")
def cut_to_the_end_that_is_told(original: Any, self: Any, event: Any) -> Any:
    """A follower cuts to the end that it is told, although the epoch found is another one than it asked for."""
    return original(self, replace(event, own_end=event.diverging_end))


@rule(
    "Every replica fetch carries the current leader epoch",
    "replica/test_leader",
    "mut_04_positions_of_another_epoch_are_refused",
)
@around(PartitionReplica, "_on_position")
def older_positions_count(original: Any, self: Any, event: Any) -> Any:
    """A position of an earlier leader epoch counts."""
    return original(self, replace(event, leader_epoch=max(event.leader_epoch, self.leader_epoch)))


@rule(
    "A replica joins the ISR only past the start of the leader epoch",
    "replica/test_leader",
    "mut_02_joining_needs_the_start_of_this_epoch",
)
def joins_below_the_start_of_the_epoch(code: Code) -> None:
    """A follower may join the ISR below the start of the leader's epoch."""
    code.during(LeaderState, "_eligible", lambda self: {"epoch_start": 0})


@rule(
    "Every new leader epoch runs the truncation check again",
    "replica/test_follower",
    "the_same_leader_in_a_new_epoch_runs_the_check_again",
)
@around(PartitionReplica, "_become_follower")
def new_epoch_is_no_news(original: Any, self: Any, event: Any) -> Any:
    """A new epoch of the same leader is no news for its follower."""
    if self.role is not Role.FOLLOWER or event.leader != self.leader:
        return original(self, event)
    self.leader_epoch, self.partition_epoch = event.leader_epoch, event.partition_epoch
    return []


@rule(
    "A bounced broker is treated as a failure plus a startup",
    "controller/test_election",
    "a_bounced_leader_is_failure_plus_start",
)
def another_life_is_the_same(code: Code) -> None:
    """A broker that comes back in another life is taken for the one that left."""
    code.replace(election, "same_life", lambda member, brokers: member.broker_id in brokers)


@rule(
    "A checkpoint keeps the entries that an update does not name",
    "broker/test_control_service",
    "the_first_request_of_a_life_must_be_full",
)
@around(ControlService, "leader_and_isr")
async def life_begins_with_a_part(original: Any, self: Any, request: Any, context: Any) -> Any:
    """A broker begins its life with a partial list."""
    if request.full:
        return await original(self, request, context)
    with altered(self, ready=True):
        return await original(self, request, context)


@rule(
    "StopReplica is fenced by the leader epoch", "broker/test_control_service", "stop_replica_is_fenced_by_leader_epoch"
)
@around(ReplicaManager, "stop")
def late_stop_counts(original: Any, self: Any, tp: Any, topic_id: Any, leader_epoch: Any, delete: Any) -> Any:
    """A late StopReplica stops what was started since."""
    return original(self, tp, topic_id, NO_EPOCH, delete)


@rule(
    "A topic id separates topics that share a name",
    "broker/test_control_service",
    "a_topic_made_again_does_not_inherit_the_old_records",
)
@around(ReplicaManager, "_become")
def topic_inherits_records(original: Any, self: Any, decision: Any, *when: Any) -> Any:
    """A topic that is made again gets the records of the one before."""
    host = self.find(TopicPartition(decision.state.topic, decision.state.partition))
    if host is not None:
        host.topic_id = decision.state.topic_id
    return original(self, decision, *when)


@rule(
    "Every controller write checks the controller epoch",
    "controller/test_store",
    "mut_10_i12_a_raised_controller_epoch_fences_every_write",
)
@around(FencedStore, "__init__")
def controller_epoch_is_not_checked(
    original: Any, self: Any, meta: Any, clock: Any, epoch_version: int, *more: Any, **limits: Any
) -> None:
    """The controller's multis do not check the controller epoch."""
    original(self, meta, clock, -1, *more, **limits)


# -- changes of the ISR ------------------------------------------------------------------------------------------------


@rule("A deposed leader writes no ISR", _ISR_CHANGES, "an_election_in_flight_fences_the_old_leaders_proposal")
def deposed_leaders_isr_is_written(code: Code) -> None:
    """The ISR of a deposed leader is written whatever was decided since."""
    fences = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_UPDATE_VERSION)

    def judge(original: Any, *asked: Any) -> Any:
        answer = original(*asked)
        return None if answer in (*fences, ErrorCode.INELIGIBLE_REPLICA) else answer

    code.wrap(alter_isr, "judge", judge)


@rule(
    "A write of unknown outcome is read back before it is judged",
    "controller/test_machine_brokers",
    "an_unknown_outcome_that_was_applied_is_adopted",
)
@around(ControllerMachine, "_on_state_write")
def unknown_outcome_is_a_failure(original: Any, self: Any, group: Any, tp: Any, state: Any, outcome: Outcome) -> None:
    """A write of unknown outcome is taken for one that was not applied."""
    if outcome is Outcome.UNKNOWN:
        self._unblock(self._writer_of(tp))
    else:
        original(self, group, tp, state, outcome)


@rule(
    "A pending ISR change is retried and its age is measured",
    "broker/test_replica_manager",
    "how_long_a_change_has_waited_for_its_answer_is_measured",
)
def waiting_for_an_answer_is_not_seen(code: Code) -> None:
    """A leader that waits for the answer to its ISR change shows no time of waiting."""
    code.replace(LeaderState, "pending_s", lambda self, at: 0.0)


@rule(
    "A controlled shutdown counts the ISR change in flight",
    "controller/test_shutdown",
    "an_expansion_that_is_being_written_is_seen",
)
@around(ShutdownDesk, "_moves")
def expansion_under_way_is_not_seen(original: Any, broker_id: int, partition: Any) -> bool:
    """A controlled shutdown does not see the expansion that is being written."""
    state = partition.state
    members = () if state is None else [member.broker_id for member in state.isr]
    return broker_id in members and original(broker_id, partition)


@rule(
    "A shrink of the ISR counts only once it is confirmed",
    "replica/test_leader",
    "mut_07_a_shrink_counts_only_when_confirmed",
)
def shrink_counts_at_once(code: Code) -> None:
    """A leader holds itself to the smaller ISR that it has asked for."""
    code.replace(PendingShrink, "maximal_isr", lambda self: self.committed.isr - self.leaving)


@rule(
    "A repeated AlterIsr succeeds once its ISR is in force",
    _ISR_CHANGES,
    "a_repeated_request_is_success_once_the_first_is_written",
)
@around(alter_isr, "judge")
def repetition_is_too_old(original: Any, wanted: Any, asker: Any, state: Any, *about: Any) -> Any:
    """An AlterIsr that comes again is judged by its old version."""
    answer = original(wanted, asker, state, *about)
    old = wanted.current_zk_version < state.partition_epoch
    return ErrorCode.INVALID_UPDATE_VERSION if answer is ErrorCode.NONE and old else answer


@rule("A controller that is behind answers NOT_CONTROLLER", _ISR_CHANGES, "f05_8_checks_in_order")
@around(alter_isr, "judge")
def stale_controller_judges(original: Any, wanted: Any, asker: Any, state: Any, *about: Any) -> Any:
    """A controller that is behind judges a leader that is ahead of it."""
    epoch = min(wanted.leader_epoch, state.leader_epoch)
    version = min(wanted.current_zk_version, state.partition_epoch)
    return original(replace(wanted, leader_epoch=epoch, current_zk_version=version), asker, state, *about)


@rule(
    "An AlterIsr answer settles only its own proposal",
    "replica/test_leader",
    "an_answer_to_an_earlier_proposal_does_not_settle_the_pending_one",
)
@around(PartitionReplica, "_on_isr_answered")
def any_answer_settles(original: Any, self: Any, event: Any) -> Any:
    """The answer to an earlier proposal is taken for that of the pending one."""
    leading = self.leading
    if leading is not None and not isinstance(leading.isr, Committed):
        pending = fx.ProposeIsr(leading.epoch, leading.partition_epoch, leading.isr.proposed)
        event = replace(event, proposal=pending)
    return original(self, event)


@rule(
    "The ISR admits no broker that is dead or shutting down",
    "controller/test_shutdown",
    "who_leaves_is_not_let_back_in",
)
@around(alter_isr, "_eligible")
def leaving_broker_is_let_back_in(original: Any, member: Any, state: Any, brokers: Any, ineligible: Any) -> Any:
    """The controller lets a broker that shuts down back into the ISR."""
    return original(member, state, brokers, ())


@rule(
    "AlterIsr names the broker epoch of every ISR member",
    _ISR_CHANGES,
    "a_life_that_has_ended_is_refused_even_if_the_request_was_on_its_way",
)
@around(alter_isr, "_eligible")
def lives_of_members_do_not_count(original: Any, member: Any, state: Any, brokers: Any, ineligible: Any) -> Any:
    """The controller does not look at the broker epochs of an ISR's members."""
    broker = brokers.get(member.broker_id)
    present = member if broker is None else replace(member, broker_epoch=broker.epoch)
    return original(present, state, brokers, ineligible)


@rule("The controller stores no ISR that lacks the leader", _ISR_CHANGES, "f05_8_checks_in_order")
@around(alter_isr, "judge")
def isr_without_its_leader(original: Any, wanted: Any, asker: Any, state: Any, *about: Any) -> Any:
    """An ISR that is empty or lacks its leader is written."""
    answer = original(wanted, asker, state, *about)
    lacks = state.leader not in [member.broker_id for member in wanted.isr]
    return None if answer is ErrorCode.INVALID_REQUEST and asker == state.leader and lacks else answer


@rule(
    "Writes with acks=all are refused below min.insync.replicas",
    "replica/test_leader",
    "acks_all_is_refused_below_min_isr_and_acks_1_is_not",
)
def acks_all_below_min_isr(code: Code) -> None:
    """A produce with acks=all is taken below min ISR."""
    code.wrap(PartitionReplica, "check_produce", lambda original, self, claimed, acks: original(self, claimed, 1))


@rule(
    "The high watermark stands still below min.insync.replicas",
    "replica/test_leader",
    "mut_14_the_high_watermark_stands_still_below_min_isr",
)
def high_watermark_rises_below_min_isr(code: Code) -> None:
    """The high watermark rises below min ISR."""
    code.during(LeaderState, "committed_end", lambda self: {"min_isr": 0})


# -- elections, lives and losses ---------------------------------------------------------------------------------------


@rule(
    "An unclean election needs the consent of the topic",
    "controller/test_election",
    "a_live_replica_outside_the_isr_is_not_elected",
)
def any_live_replica_leads(code: Code) -> None:
    """Any live replica may lead where none that is in sync is there."""
    code.replace(election, "_complete", lambda replica, isr, brokers, only_copy: replica in brokers)


@rule(
    "An uncleanly elected leader reports back before its ISR grows",
    "replica/test_recovering",
    "nobody_is_proposed_before_the_report_is_answered",
)
def unclean_leader_goes_on(code: Code) -> None:
    """A leader that was elected uncleanly goes on as if nothing had happened."""
    code.during(LeaderState, "next_change", lambda self: {"recovering": False})


@rule("A last ISR member that lost power is not elected automatically", "storage/test_log_store", "intact_since_rule")
def loss_of_power_is_forgotten(code: Code) -> None:
    """A loss of power is forgotten with the next start."""
    code.replace(data_dir, "intact_since_after_start", lambda previous, **_: previous)


@rule(
    "A producer batch that is sent again is stored once",
    "storage/test_producer_state",
    "a_repeated_batch_is_found_with_its_offset",
)
def repeated_batch_is_appended(code: Code) -> None:
    """A batch that comes again is appended again."""
    code.wrap(ProducerTable, "check", lambda original, *batch: original(*batch) and None)


@rule(
    "Replicas of a partition are spread over the racks",
    "controller/test_placement",
    "every_first_part_of_the_replicas_is_in_as_many_racks_as_can_be",
)
def racks_do_not_count(code: Code) -> None:
    """The next replica goes to the next broker, whichever rack that is in."""
    code.replace(Racks, "comes_next", lambda self, chosen, broker_id: broker_id not in chosen)


@rule(
    "A new leader reports no end offset below its epoch start",
    "broker/test_fetch",
    "kip_207_offsets_are_not_available_until_the_high_watermark_reaches_the_epochs_start",
)
@around(fetch, "_find_offset")
def end_before_what_was_readable(original: Any, host: Any, *wanted: Any) -> Any:
    """A new leader names an end of the log that is before what was readable already."""
    if host.replica.leading is None:
        return original(host, *wanted)
    with altered(host.replica.leading, epoch_start=0):
        return original(host, *wanted)


@rule(
    "Follower lag is measured in time and is zero on an idle log",
    "replica/test_leader",
    "an_idle_partition_never_shrinks",
)
def followers_lag_behind_an_idle_log(code: Code) -> None:
    """A follower lags for as long as the log has not grown."""

    def laggards(self: Any, log_end: int, at: float) -> frozenset[Any]:
        grown_at = max((since for _, since in self.marks._marks), default=0.0)
        return frozenset(self._counted if grown_at + self._lag_max_s < at else ())

    code.replace(AppendMarks, "older_than", lambda self, age_s, at: True)
    code.replace(LeaderState, "laggards", laggards)


@rule(
    "A reassignment completes only when all targets are in sync",
    "controller/test_machine_reassignment",
    "one_target_in_the_isr_is_not_enough",
)
@around(reassignment, "ended")
def one_target_ends_a_move(original: Any, partition: Any, *about: Any) -> Any:
    """A move ends when one of its targets is in sync."""
    move, state = partition.move, partition.state
    members = () if state is None else [member.broker_id for member in state.isr]
    arrived = () if move is None else tuple(each for each in move.target if each in members)
    if not arrived:
        return original(partition, *about)
    with altered(partition, move=Move(move.old, arrived)):
        return original(partition, *about)


@rule(
    "A broker that is shutting down is not elected",
    "controller/test_shutdown",
    "who_leaves_is_not_elected_while_another_can_be",
)
@around(election, "settle")
def leaving_broker_is_elected(
    original: Any, replicas: Any, state: Any, brokers: Any, ineligible: Any, *about: Any, **more: Any
) -> Any:
    """A broker that shuts down stays in sync and is elected like every other."""
    return original(replicas, state, brokers, (), *about, **more)


@rule(
    "A follower high watermark never exceeds the end of its log",
    "replica/test_follower",
    "the_high_watermark_is_the_leaders_capped_at_the_own_end",
)
@around(PartitionReplica, "_on_follower_appended")
def high_watermark_beyond_the_own_end(original: Any, self: Any, event: Any) -> Any:
    """A follower takes the leader's high watermark beyond its own end."""
    out = original(self, event)
    if event.leader_epoch == self.leader_epoch:
        self.high_watermark = max(self.high_watermark, event.leader_high_watermark)
    return out


@rule(
    "A log opens with its checkpointed high watermark",
    "broker/test_replica_manager",
    "a_follower_starts_with_the_checkpointed_high_watermark",
)
@around(PartitionLog, "_load")
def log_is_opened_as_committed(original: Any, self: Any, opening: Any) -> None:
    """The high watermark begins at the end of the log."""
    original(self, opening)
    self.recorded_high_watermark = self.log_end_offset


@rule("A new leader keeps its own high watermark", "replica/test_leader", "a_new_leader_keeps_its_own_high_watermark")
@around(PartitionReplica, "_become_leader")
def new_leader_commits_its_log(original: Any, self: Any, event: Any) -> Any:
    """A new leader takes the end of its log for committed."""
    out = original(self, event)
    self.high_watermark = self.log_end_offset
    return out


@rule(
    "Control requests are repeated in order until answered",
    "controller/test_channels",
    "a_broken_call_is_repeated_and_what_follows_it_waits",
)
@around(BrokerChannel, "_deliver")
async def broken_call_drops_the_request(original: Any, self: Any, request: Any) -> bool:
    """A control request is dropped when its call breaks."""
    await original(self, request)
    return True


# -- the metadata store ------------------------------------------------------------------------------------------------


@rule("Leader and ISR and epoch live in one znode", "wire/test_znodes", "leader_isr_and_epoch_live_in_one_znode")
def state_without_its_epoch(code: Code) -> None:
    """The znode of leader and ISR does not hold their epoch."""
    code.wrap(znodes, "encode_state", lambda original, state: original(replace(state, leader_epoch=0)))


@rule(
    "An ephemeral znode counts only for the session that made it",
    "meta/test_patterns",
    "a_znode_of_an_unknown_session_is_waited_for",
)
@around(zk_patterns, "register")
async def foreign_registration_is_taken(original: Any, meta: Any, path: str, *what: Any, **more: Any) -> Any:
    """A registration that another session holds is taken for one's own."""
    found = await zk_patterns.find(meta, path)
    return await original(meta, path, *what, **more) if found is None else found[1]


@rule(
    "A watch only triggers a read that a timer repeats",
    "meta/test_patterns",
    "a_full_reconcile_comes_by_the_clock_too",
)
def only_the_watch_reads_again(code: Code) -> None:
    """Children are read again only when the watch fires."""
    code.wrap(zk_patterns, "watch_children", lambda original, meta, path, *, reconcile_s=None: original(meta, path))


# -- groups ------------------------------------------------------------------------------------------------------------


@rule(
    "A partition moves only after the lease of its owner has ended",
    "coordinator/test_members",
    "a_broken_stream_alone_moves_nothing_before_the_lease_is_out",
)
def dead_before_its_lease(code: Code) -> None:
    """A consumer is dead when its answer is late, though it may still fetch."""
    code.replace(Member, "dead_at", lambda self: self.answered_at + self.session_s * 2 / 3)


@rule(
    "Offsets count only from the owner in its generation",
    "coordinator/test_commits",
    "find_10_mut_17_offsets_count_from_the_owner_in_its_generation_only",
)
@around(Members, "_pinged")
def offsets_of_any_generation(original: Any, self: Any, group: Any, member: Any, number: int, response: Any) -> None:
    """Offsets count whichever generation they are of."""
    original(self, group, member, number, replace(response, generation=member.generation))


@rule(
    "Every multi of a coordinator checks the coordinator epoch",
    "coordinator/test_store",
    "a_deposed_coordinator_writes_nothing",
)
def coordinator_epoch_is_not_checked(code: Code) -> None:
    """A coordinator's writes do not check its epoch."""
    code.replace(FencedGroupStore, "_opening", lambda self: [Check(self._fence.path, -1)])


@rule(
    "A consumer that reconnects resumes its own registration",
    "coordinator/test_members",
    "the_same_consumer_comes_back_at_once_and_goes_on",
)
@around(Members, "_check_place")
def own_id_is_taken(original: Any, self: Any, request: Any, *place: Any) -> Any:
    """An id is taken as long as its registration is there, also for the consumer that registered it."""
    return original(self, replace(request, incarnation=~request.incarnation), *place)


@rule(
    "Owners and generation are stored before any fetcher starts",
    "coordinator/test_rebalance",
    "owners_and_generation_are_stored_before_anybody_is_started",
)
@around(Rebalancer, "_write")
def owners_are_stored_last(
    original: Any, self: Any, group: Any, offsets: Any, owners: Any, generation: int, phase: Phase
) -> Any:
    """Ownership is stored after its owners have been started."""
    owners = {} if phase is Phase.STARTING else group.attempt.owners
    return original(self, group, offsets, owners, generation, phase)


@rule(
    "A member that ignores a stop request loses its lease",
    "coordinator/test_rebalance",
    "coord_07_a_member_that_does_not_answer_stop_is_removed_when_its_lease_is_out_and_the_others_go_on",
)
def silent_member_is_kept_alive(code: Code) -> None:
    """A member that answers pings and no stop is kept for ever."""
    code.replace(Members, "_let_fall_silent", lambda self, key, member: None)


@rule(
    "An empty group expires after its retention",
    "coordinator/test_members",
    "an_empty_group_is_deleted_after_its_retention",
)
def empty_groups_stay(code: Code) -> None:
    """Groups without members are kept for ever."""
    code.replace(CoordinatorMachine, "_forget_old_groups", lambda self: None)


@rule(
    "Leaving a group is bounded by the session timeout",
    "client/test_membership",
    "leaving_is_bounded_by_a_session_for_a_member_that_owns_nothing",
)
@around(Membership, "_leave")
def leaving_takes_for_ever(original: Any, self: Any, *why: Any) -> None:
    """A consumer that leaves waits for the answer, however long."""
    original(self, *why)
    if self._leaving is not None:
        self._leaving.until = float("inf")


# -- what is in doubt --------------------------------------------------------------------------------------------------


@rule(
    "A partition without a live replica publishes no leader",
    "controller/test_election",
    "without_a_live_member_the_leader_is_none_and_the_isr_is_kept",
)
@around(election, "_next")
def dead_leader_is_named(original: Any, state: Any, leader: int, *about: Any) -> Any:
    """The last leader is named although it is dead."""
    return None if leader == NO_LEADER else original(state, leader, *about)


@rule(
    "A deposed leader fails the produce requests that wait on it",
    "broker/test_produce",
    "a_deposed_leader_answers_parked_produces_with_not_leader",
)
@around(PartitionReplica, "_leave_role")
def deposed_leader_acknowledges(original: Any, self: Any) -> list[Any]:
    """Records that wait at a leader for its followers are acknowledged when the leader is deposed."""
    return [fx.FailPending(ErrorCode.NONE) if isinstance(x, fx.FailPending) else x for x in original(self)]


@rule(
    "An ISR change of unknown outcome stays pending",
    "replica/test_leader",
    "a_member_whose_admission_is_in_doubt_counts_even_when_it_has_gone",
)
@around(PartitionReplica, "_on_isr_answered")
def change_in_doubt_is_taken_back(original: Any, self: Any, event: Any) -> Any:
    """An ISR change whose answer never came is taken back."""
    out = original(self, event)
    if out != [event.proposal]:
        return out
    self.leading.isr = self.leading.isr.committed
    return []


@rule(
    "A leader whose disk failed leads again only in a new epoch",
    "broker/test_revival",
    "a_copy_that_came_back_does_not_lead_in_the_epoch_it_led",
)
@around(ReplicaManager, "_check_led_before")
def leads_on_after_a_disk_error(original: Any, *asked: Any) -> None:
    """A copy that came back from a disk error leads in the epoch that it led before."""


@named("REPEATED", _ISR_CHANGES, "what_was_refused_once_is_not_granted_by_a_late_copy_of_the_request")
@around(Hearing, "refusal")
def request_is_judged_twice(original: Any, self: Any, *asked: Any) -> Any:
    """A request that was refused under a suspicion is granted when it comes again after that has passed."""
    self._newest.clear()
    return original(self, *asked)


@named("REPEATED-TERM", _ISR_CHANGES, "a_new_controller_hears_no_request_that_was_sent_to_another")
@around(Hearing, "refusal")
def request_of_another_term_is_heard(original: Any, self: Any, request: Any, epoch: int, brokers: Any) -> Any:
    """A new controller, which knows no numbers, judges what was sent to the one before it."""
    return original(self, replace(request, controller_epoch=max(request.controller_epoch, epoch)), epoch, brokers)


@named(
    "TOLD-FIRST",
    "controller/test_machine_brokers",
    "a_dead_leader_is_replaced_after_the_write_and_not_before",
)
@around(ControllerMachine, "_write")
def brokers_are_told_first(original: Any, self: Any, partition: Any, state: Any, *why: Any) -> None:
    """Brokers are told of a new leader when it is decided, whether the decision is stored or not."""
    before = partition.state
    original(self, partition, state, *why)
    if before is not None and before.leader_epoch != state.leader_epoch:
        self.state.set_state(partition, state)
        self._out.publish(partition)
