"""Mistakes where the system meets what it does not control: callers that go away, disks that fail, clocks and clients."""

import asyncio
from dataclasses import replace
from typing import Any, Final

from mutants.altering import altered
from mutants.patching import ByTest, Code, Table, around
from tidelog import config
from tidelog.broker import leader_fetcher, partition_host, pending, registration, replica_manager, retention, service
from tidelog.broker.fetch import FetchHandler
from tidelog.broker.follower_session import FollowerSession
from tidelog.broker.past_guard import PastGuard
from tidelog.broker.replica_manager import ReplicaManager
from tidelog.broker.reviver import Reviver
from tidelog.broker.stray_keeper import StrayKeeper
from tidelog.controller import configs, election, elections
from tidelog.controller import machine as controller_machine
from tidelog.controller.model import Broker, ClusterState
from tidelog.controller.survey import SurveyDesk
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ports.meta import SessionClosed, SetData
from tidelog.replica.leader import MARKS_MAX, AppendMarks
from tidelog.replica.partition import PartitionReplica
from tidelog.runtime import rpc_server
from tidelog.sizes import Carriage
from tidelog.storage import producer_snapshot, recovery, topic_marker, unmarked
from tidelog.storage.log_store import LogStore
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.producer_state import ProducerTable
from tidelog.storage.segment import Segment
from tidelog.storage.store_past import StorePast
from tidelog.storage.strays import Strays
from tidelog.wire.batch import BatchHeader
from tidelog.wire.limits import ListCounter

MUTANTS: Final = Table(__name__)

_PRODUCE: Final = "tests/unit/broker/test_produce.py::"
_REGISTRATION: Final = "tests/unit/broker/test_registration.py::"
_MANAGER: Final = "tests/unit/broker/test_replica_manager.py::"
_UNCLEAN: Final = "tests/unit/broker/test_unclean_cuts.py::"
_LEADER: Final = "tests/unit/replica/test_leader.py::"
_PAST: Final = "tests/unit/broker/test_past_guard.py::"


@MUTANTS.mutant("LATE-ANSWER", ByTest(f"{_PRODUCE}test_a_cancelled_request_takes_no_effect_with_it"))
@around(pending, "resolve")
def cancelled_request_is_answered(_: Any, answer: "asyncio.Future[Any]", result: Any) -> None:
    """A request whose caller has gone is answered all the same."""
    answer.set_result(result)


@MUTANTS.mutant(
    "UNGUARDED-READ",
    ByTest("tests/unit/broker/test_log_retention.py::test_a_segment_that_retention_cannot_read"),
)
@around(PartitionLog, "guarded")
def read_error_ends_the_task(original: Any, self: Any, doing: str, step: Any) -> Any:
    """An error of a read leaves the log as it is and ends the task that read."""
    return step() if doing == "read" else original(self, doing, step)


@MUTANTS.mutant(
    "FAILED-TRY", ByTest("tests/unit/broker/test_revival.py::test_a_folder_that_cannot_be_listed_ends_no_revivals")
)
@around(Reviver, "_reopen")
async def failed_try_ends_all(original: Any, *asked: Any, **named: Any) -> Any:
    """A failed try to open a log again ends the task that tries."""
    try:
        return await original(*asked, **named)
    except OSError as error:
        raise RuntimeError from error


@MUTANTS.mutant(
    "SAME-EPOCH",
    ByTest(
        "tests/unit/controller/test_machine_brokers.py::test_a_last_replica_leads_in_a_new_epoch_when_its_disk_works"
    ),
)
@around(election, "renewed")
def leader_keeps_its_epoch(*_: Any) -> None:
    """A leader whose disk failed and works again goes on in its epoch."""


@MUTANTS.mutant(
    "LOST-START", ByTest("tests/unit/storage/test_log_start.py::test_a_lost_checkpoint_of_starts_costs_no_record")
)
@around(LogStore, "_open_log")
def lost_start_is_zero(original: Any, self: Any, key: Any, **how: Any) -> Any:
    """A log begins at 0 when the checkpoint of starts is lost."""
    with altered(self.marks.starts, complete=True):
        return original(self, key, **how)


@MUTANTS.mutant(
    "LOST-MARKER", ByTest("tests/unit/storage/test_log_store.py::test_a_lost_marker_of_a_topic_is_made_again")
)
@around(unmarked, "settle")
def lost_marker_stays_lost(*_: Any, **__: Any) -> unmarked.Settled:
    """A log whose topic marker is gone is no log."""
    return unmarked.Settled(None, [])


@MUTANTS.mutant(
    "UNNAMED-RECORDS", ByTest("tests/unit/storage/test_log_store.py::test_records_without_a_marker_are_not_deleted")
)
@around(topic_marker, "_size_bytes")
def records_without_a_name_go(*_: Any) -> int:
    """A folder without a topic marker is emptied, whatever it holds."""
    return 0


@MUTANTS.mutant(
    "LATE-ORDER", ByTest("tests/unit/storage/test_log_store.py::test_records_whose_marker_went_with_the_power_go_too")
)
@around(unmarked, "_after_power_loss")
def unnamed_records_await_an_order(*_: Any, **__: Any) -> list[str]:
    """A folder whose marker went with the power stays as it is until an order comes, in whichever life that is."""
    return []


@MUTANTS.mutant(
    "MARKER-WENT-WITH-THE-POWER",
    ByTest("tests/unit/storage/test_log_store.py::test_synced_records_without_a_marker_are_kept"),
)
@around(unmarked, "_after_power_loss")
def every_marker_went_with_the_power(original: Any, *args: Any, **_: Any) -> Any:
    """After a loss of power a folder without a marker is emptied, whatever was synced there."""
    return original(*args, was_synced=False)


@MUTANTS.mutant(
    "UNTOLD-FOLDER", ByTest("tests/unit/storage/test_log_store.py::test_records_without_a_marker_are_not_deleted")
)
@around(LogStore, "create")
def folder_in_the_way_is_not_told(original: Any, self: Any, tp: Any, topic_id: bytes) -> Any:
    """A log that cannot be made counts as one that works when the controller asks, so that it repeats its order at once."""
    try:
        return original(self, tp, topic_id)
    except TidelogError:
        self.failed.pop(tp, None)
        raise


@MUTANTS.mutant(
    "UNCOUNTED-ITEMS",
    ByTest("tests/unit/wire/test_limits.py::test_the_items_of_all_inner_lists_count_together"),
)
@around(ListCounter, "check")
def request_holds_any_number(*_: Any) -> None:
    """A request is decoded whatever number of items it holds."""


@MUTANTS.mutant(
    "UNSIZED-ANSWER", ByTest("tests/unit/net/test_grpc_net.py::test_an_answer_that_is_too_large_is_one_error")
)
@around(rpc_server, "_method_handler")
def answer_has_any_size(original: Any, route: Any, _: int, *others: Any) -> Any:
    """An answer is given to gRPC whatever its size."""
    return original(route, 1 << 40, *others)


@MUTANTS.mutant(
    "OPEN-DOORS", ByTest("tests/unit/broker/test_listeners.py::test_a_client_hears_of_its_own_listener_only")
)
@around(service, "_as_seen_at")
def every_listener_is_told(_: Any, listener: str, broker: Any) -> Any:
    """A client is told the epochs of brokers, and the addresses by which brokers reach each other."""
    return broker


@MUTANTS.mutant("SECOND-SELF", ByTest(f"{_REGISTRATION}test_a_second_process_ends_and_names_the_first"))
@around(registration, "look")
async def every_former_self_is_dead(*_: Any) -> registration.Presence:
    """A process that starts takes it for granted that an earlier one with its data directory is dead."""
    return registration.Presence.GONE


@MUTANTS.mutant("PAUSED-SELF", ByTest(f"{_REGISTRATION}test_a_paused_process_is_not_taken_for_dead"))
@around(registration, "look")
async def silence_is_death(original: Any, *asked: Any) -> registration.Presence:
    """An earlier process that does not answer is dead."""
    found: registration.Presence = await original(*asked)
    return registration.Presence.GONE if found is registration.Presence.UNKNOWN else found


@MUTANTS.mutant("SECOND-SELF-IN-A-CLUSTER")
@around(registration, "look")
async def every_former_self_is_dead_in_a_cluster(*_: Any) -> registration.Presence:
    """A process that starts in a cluster takes it for granted that an earlier one with its data directory is dead."""
    return registration.Presence.GONE


@MUTANTS.mutant("PAUSED-SELF-IN-A-CLUSTER")
@around(registration, "look")
async def silence_is_death_in_a_cluster(original: Any, *asked: Any) -> registration.Presence:
    """In a cluster an earlier process that does not answer is dead."""
    found: registration.Presence = await original(*asked)
    return registration.Presence.GONE if found is registration.Presence.UNKNOWN else found


@MUTANTS.mutant("TAKEN-BACK", ByTest(f"{_REGISTRATION}test_a_process_whose_registration_is_taken_ends"))
@around(registration.Registration, "_is_dead")
async def registration_is_taken_back(original: Any, self: Any, *asked: Any) -> bool:
    """A process whose registration was taken looks at the one that has it as if its own session had expired."""
    with altered(self, _session_id=0):
        found: bool = await original(self, *asked)
    return found


@MUTANTS.mutant("OLDER-IS-TAKEN", ByTest(f"{_REGISTRATION}test_a_former_life_in_an_older_copy_has_taken_nothing"))
@around(registration.Registration, "_is_dead")
async def older_registration_counts_as_taken(original: Any, self: Any, *asked: Any) -> bool:
    """When ZooKeeper comes back with older data, a broker mistakes its own former life for another process."""
    with altered(self, broker_epoch=-1):
        found: bool = await original(self, *asked)
    return found


@MUTANTS.mutant("DELETED-REGISTRATION")
@around(registration.Registration, "_keep")
async def deleted_registration_stays_deleted(_: Any, __: Any, keeper: Any) -> None:
    """A broker whose registration was deleted or changed does not register again while its session lives."""
    try:
        await keeper.run()
    except SessionClosed:
        return


@MUTANTS.mutant("HALF-APPEND", ByTest("tests/unit/storage/test_log_model.py::test_a_failed_append_does_not_come_back"))
@around(Segment, "take_back")
def failed_append_may_come_back(_: Any, self: Any) -> None:
    """A loss of power brings back what a failed append left in the file."""
    self.file().truncate(self.size_bytes)


@MUTANTS.mutant("OUT-OF-ORDER", ByTest("tests/unit/storage/test_damage.py::test_write_back_out_of_order_is_cut"))
@around(recovery, "why_damaged")
def later_batches_prove_damage(original: Any, offset: int, opening: Any, *, valid_follows: bool, **named: Any) -> Any:
    """A whole batch behind a bad one is damage after a loss of power, too."""
    if valid_follows:
        return "valid batches follow"
    return original(offset, opening, valid_follows=valid_follows, **named)


@MUTANTS.mutant(
    "LOST-TOMBSTONES",
    ByTest("tests/unit/broker/test_dropped_tombstones.py::test_a_follower_begins_anew_once_if_marks_are_lost"),
)
@around(LogStore, "_open_log")
def lost_mark_is_zero(original: Any, self: Any, key: Any, **how: Any) -> Any:
    """No tombstone counts as dropped when the file that tells of them is lost."""
    with altered(self.marks, dropped_is_lost=False):
        return original(self, key, **how)


@MUTANTS.mutant(
    "UNTOLD-LOSS",
    ByTest("tests/unit/broker/test_discard_damage.py::test_a_loss_that_the_controller_cannot_know_of_is_not_cut"),
)
@around(ReplicaManager, "discard_damage")
def unknown_loss_is_cut(original: Any, self: Any, tp: Any, end: int) -> None:
    """A damaged log is cut on an operator's word although the controller may count on what goes."""
    with altered(self._logs, intact_since=1):
        original(self, tp, end)


_FOREIGN: Final = "tests/unit/broker/test_foreign_batches.py::"


@MUTANTS.mutant("FOREIGN-BATCH", ByTest(f"{_FOREIGN}test_a_leader_refuses_another_batch"))
@around(ProducerTable, "check")
def sequences_make_a_repetition(original: Any, self: Any, header: Any, sent_crc: int) -> Any:
    """A batch with the sequences of a stored one is that one, whatever it holds."""
    try:
        return original(self, header, sent_crc)
    except TidelogError as error:
        if error.code is not ErrorCode.INVALID_RECORD:
            raise
        return self.facts()[0].batches[-1]


@MUTANTS.mutant("FOREIGN-FOLLOWED", ByTest(f"{_FOREIGN}test_the_next_leader_refuses_another_batch"))
@around(PartitionLog, "sent_crcs")
def followers_hear_no_crc(*_: Any) -> None:
    """A leader does not tell its followers what its producers have sent."""


@MUTANTS.mutant("FOREIGN-SAVED", ByTest(f"{_FOREIGN}test_a_restart_from_a_snapshot_refuses_another_batch"))
@around(producer_snapshot, "_seen")
def snapshot_without_crcs(original: Any, text: str) -> Any:
    """The snapshot of a log's producers keeps no CRC."""
    return original(text.rpartition(",")[0])


@MUTANTS.mutant(
    "FOREIGN-UNMARKED",
    ByTest(f"{_FOREIGN}TestRelease020::test_a_leader_of_it_sends_batches_that_are_not_told_apart"),
)
@around(LogStore, "appending_unmarked")
def unmarked_batches_are_believed(*_: Any) -> None:
    """A restart takes the batches of a leader of release 0.2.0 for what their producers sent."""


@MUTANTS.mutant("LOOK-BEHIND", ByTest("tests/unit/broker/test_fetch.py::test_a_look_up_by_time_goes_on_behind_a_batch"))
@around(PartitionLog, "offset_for_timestamp")
def look_up_begins_anew(original: Any, self: Any, timestamp_ms: int, end_offset: int, *_: int) -> Any:
    """A look-up by time begins at the log's start, whatever it has looked through."""
    return original(self, timestamp_ms, end_offset)


_OVERSIZED: Final = "tests/unit/broker/test_oversized_batches.py::"


@MUTANTS.mutant(
    "UNRELATED-SIZES",
    ByTest("tests/unit/test_config.py::test_a_broker_with_sizes_that_contradict_does_not_start"),
)
@around(config, "contradictions")
def sizes_are_not_compared(*_: Any) -> list[str]:
    """A broker starts with a fetch_max_bytes that a batch or a chunk does not fit into."""
    return []


@MUTANTS.mutant(
    "LARGE-TOPIC",
    ByTest("tests/unit/controller/test_machine_configs.py::test_a_topic_takes_no_batch_that_a_broker_cannot_carry"),
)
@around(ClusterState, "check_sizes")
def topic_takes_any_batch(*_: Any) -> None:
    """A topic may allow batches that some broker cannot carry."""


@MUTANTS.mutant("LARGE-APPEND", ByTest(f"{_PRODUCE}test_a_batch_that_a_replica_cannot_take_is_refused"))
@around(Carriage, "check")
def leader_appends_any_batch(*_: Any) -> None:
    """A leader appends a batch that its followers cannot take."""


@MUTANTS.mutant("LARGE-CHUNK", ByTest(f"{_OVERSIZED}test_only_its_partition_waits_behind_an_oversized_batch"))
@around(Carriage, "to")
def leader_sends_any_batch(*_: Any) -> int:
    """A leader sends batches of any size on the stream that all partitions share."""
    return 1 << 31


@MUTANTS.mutant("HELD-FOR-EVER", ByTest(f"{_OVERSIZED}test_a_partition_goes_on_when_the_large_batch_is_deleted"))
@around(FollowerSession, "flush_high_watermarks")
def held_back_for_ever(original: Any, self: Any) -> None:
    """A partition that was held back stays so when the batch is gone."""
    with altered(self, held_back={}):
        original(self)


@MUTANTS.mutant("ALL-POSITIONS", ByTest(f"{_OVERSIZED}test_a_follower_of_many_partitions_states_them_in_parts"))
@around(leader_fetcher, "_cut")
def positions_go_at_once(_: Any, positions: list[Any]) -> tuple[list[Any], list[Any]]:
    """A follower states all its positions in one request."""
    return positions, []


@MUTANTS.mutant("LARGE-ANSWER", ByTest(f"{_OVERSIZED}test_a_reader_gets_an_error_for_a_batch_too_large_to_send"))
@around(FetchHandler, "_read")
def answer_of_any_size(original: Any, self: Any, *asked: Any, **named: Any) -> Any:
    """A leader answers a reader with a first batch of any size."""
    with altered(self, _max_bytes=1 << 31):
        return original(self, *asked, **named)


_TIMES: Final = "tests/unit/broker/test_timestamps.py::"


@MUTANTS.mutant("FAR-AHEAD", ByTest(f"{_TIMES}test_a_batch_too_far_from_the_clock_is_refused"))
@around(partition_host, "check_times")
def any_time_is_taken(*_: Any) -> None:
    """A leader takes any timestamp."""


@MUTANTS.mutant("AHEAD-FOR-EVER", ByTest(f"{_TIMES}test_a_time_ahead_of_the_clock_keeps_no_segment"))
@around(retention, "age_timestamp")
def time_ahead_keeps_a_segment(_: Any, max_timestamp: int, *__: float) -> int:
    """A timestamp ahead of the clock keeps its segment until then."""
    return max_timestamp


@MUTANTS.mutant("APPEND-TIME", ByTest(f"{_TIMES}test_compaction_keeps_the_time_of_the_append"))
@around(BatchHeader, "is_append_time")
def append_time_is_not_seen(*_: Any) -> bool:
    """Compaction goes by the timestamps in the records also where the leader has given them another one."""
    return False


@MUTANTS.mutant(
    "EARLY-SETTING",
    ByTest("tests/unit/controller/test_machine_configs.py::test_a_setting_of_this_release_waits_for_the_last_broker"),
)
@around(configs, "check_features")
def setting_waits_for_no_broker(*_: Any) -> None:
    """A topic gets a setting that some broker does not know."""


@MUTANTS.mutant("FORGETS-LEADING", ByTest(f"{_MANAGER}test_a_leader_set_aside_leads_only_in_a_new_epoch"))
@around(ReplicaManager, "_check_led_before")
def leads_again_in_its_epoch(*_: Any) -> None:
    """A leader that was set aside goes on in the epoch that it led."""


@MUTANTS.mutant(
    "UNCONFIRMED", ByTest("tests/unit/broker/test_stray_keeper.py::test_zookeeper_confirms_what_is_deleted")
)
@around(StrayKeeper, "_judge")
async def stray_goes_unconfirmed(_: Any, self: Any, stray: Any) -> None:
    """A stray is deleted when its time is over, whatever ZooKeeper says."""
    self._manager.delete_stray(stray)


@MUTANTS.mutant("CUT-GOES", ByTest(f"{_UNCLEAN}test_records_that_an_unclean_election_cuts_can_be_read"))
@around(Strays, "begin_cut")
def what_is_cut_goes(*_: Any) -> None:
    """A log is cut below its high watermark, and nothing is set aside."""


@MUTANTS.mutant("RESET-GOES", ByTest(f"{_UNCLEAN}test_a_leader_that_has_deleted_its_start_cuts_them_all"))
@around(FollowerSession, "_tell_log_start")
def divergence_below_the_start_is_not_told(original: Any, self: Any, host: Any, offset: int, *_: Any) -> None:
    """A follower below its leader's log start does not hear that the leader never had its records."""
    original(self, host, offset)


@MUTANTS.mutant(
    "BROKEN-CUT", ByTest("tests/unit/storage/test_cuts.py::test_a_crash_in_the_middle_of_a_cut_loses_nothing")
)
@around(Strays, "cuts")
def broken_cut_is_not_known(*_: Any) -> list[Any]:
    """After a crash in the middle of a cut nothing tells that what is left of it was committed."""
    return []


@MUTANTS.mutant(
    "LOWERED", ByTest("tests/unit/broker/test_revival.py::test_a_cut_that_a_full_disk_refuses_is_set_aside_later")
)
@around(ReplicaManager, "high_watermarks")
def high_watermark_of_a_refused_cut(_: Any, self: Any) -> Any:
    """A checkpoint takes the high watermark of a copy whose cut the disk has refused."""
    return {host.tp: host.replica.high_watermark for host in self}


@MUTANTS.mutant("WHOLE-ORDER", ByTest(f"{_MANAGER}test_a_bug_in_an_order_costs_its_partition"))
@around(replica_manager, "contained_step")
def bug_costs_the_whole_order(_: Any, name: str, step: Any) -> Any:
    """A bug in one partition's order ends the order of all."""
    return step()


@MUTANTS.mutant(
    "EARLY-DELETION",
    ByTest("tests/unit/broker/test_log_retention.py::test_an_answered_deletion_outlives_the_leader"),
)
@around(ReplicaManager, "wait_start_durable")
def deletion_is_answered_early(_: Any, __: Any, ___: Any, ____: int, settle: Any) -> None:
    """A deletion of records is answered before it is on disk."""
    settle(ErrorCode.NONE)


@MUTANTS.mutant(
    "OTHER-DISK",
    ByTest("tests/unit/controller/test_election.py::test_an_only_copy_on_another_disk_needs_consent"),
)
@around(Broker, "had")
def every_disk_is_the_same(*_: Any) -> bool:
    """A data directory holds what the one before it in this broker held."""
    return True


@MUTANTS.mutant("DISK-UNRECORDED", ByTest(f"{_REGISTRATION}test_another_data_directory_is_recorded_with_its_epoch"))
@around(registration.Registration, "_record_directory")
async def first_directory_stays_recorded(original: Any, self: Any) -> Any:
    """A broker records its first data directory, and none after it."""
    return [each for each in await original(self) if not isinstance(each, SetData)]


@MUTANTS.mutant(
    "FIRST-LIVE",
    ByTest("tests/unit/controller/test_unclean_choice.py::test_an_empty_replica_does_not_lead_beside_a_full_one"),
)
@around(elections, "largest")
def first_live_replica_leads(_original: Any, candidates: Any, _ends: Any) -> Any:
    """An unclean election takes the first live replica, whatever it holds."""
    return candidates[0]


@MUTANTS.mutant(
    "UNASKED-CONSENT",
    ByTest("tests/unit/controller/test_unclean_choice.py::test_a_topic_that_consents_gets_the_same_choice"),
)
@around(controller_machine, "largest")
def first_live_replica_leads_by_consent(_original: Any, candidates: Any, _ends: Any) -> Any:
    """In a topic that consents, an unclean election takes the first live replica, whatever it holds."""
    return candidates[0]


@MUTANTS.mutant(
    "LATE-ANSWER-IN-A-CLUSTER",
    ByTest("tests/unit/broker/test_cancelled_handlers.py::test_a_cancelled_produce_request_loses_no_record"),
)
@around(pending, "resolve")
def cancelled_handler_is_answered(_: Any, answer: "asyncio.Future[Any]", result: Any) -> None:
    """A handler that was cancelled is answered all the same, by the partition whose records are committed meanwhile."""
    answer.set_result(result)


@MUTANTS.mutant(
    "MISROUTED", ByTest("tests/unit/net/test_grpc_net.py::test_a_call_that_reached_another_broker_connects_anew")
)
@around(rpc_server._Misrouted, "service")
def call_for_another_is_served(*_: Any) -> None:
    """A broker serves calls that are meant for another one, which had its IP address before."""


@MUTANTS.mutant("OLDER-STORE-IN-A-CLUSTER")
@MUTANTS.mutant("OLDER-STORE", ByTest(f"{_PAST}test_after_a_restore_nothing_is_deleted"))
@around(PastGuard, "_tell")
def older_store_is_believed(*_: Any) -> None:
    """A ZooKeeper from an older copy is taken for the one that was there before."""


@MUTANTS.mutant("BARE-LEADER", ByTest(f"{_PAST}test_a_replica_that_moved_away_does_not_lead_empty"))
@around(ReplicaManager, "_lacks_all")
def replica_that_moved_away_leads(*_: Any) -> bool:
    """A replica whose log was deleted leads because an older copy of ZooKeeper names it as in sync."""
    return False


@MUTANTS.mutant("UNKNOWN-PAST", ByTest(f"{_PAST}test_a_damaged_checkpoint_is_another_past"))
@around(StorePast, "_read")
def damaged_past_is_none(original: Any, self: Any) -> None:
    """A damaged file of what was seen of ZooKeeper is read as empty."""
    original(self)
    self.problem = None


@MUTANTS.mutant("STRAYS-GO-IN-A-CLUSTER")
@MUTANTS.mutant("STRAYS-GO", ByTest(f"{_MANAGER}test_a_log_that_a_list_leaves_out_comes_back"))
@around(LogStore, "set_aside")
def unlisted_log_is_deleted(_: Any, self: Any, tp: Any, high_watermark: int) -> None:
    """A log that the controller does not list is deleted at once."""
    self.delete(tp)


@MUTANTS.mutant("OLDER-EPOCH")
def older_epoch_costs_the_whole_order(code: Code) -> None:
    """A leader epoch below that of the log raises a bug, which ends the order of all partitions."""
    code.replace(replica_manager, "_older_epoch", lambda host, leader_epoch: ValueError(f"{host.tp} {leader_epoch}"))
    code.replace(replica_manager, "contained_step", lambda name, step: step())


@MUTANTS.mutant(
    "IN-SYNC-WAITS",
    ByTest("tests/unit/controller/test_unclean_choice.py::test_a_replica_in_sync_that_returns_ends_the_question"),
)
@around(SurveyDesk, "asking")
def replica_in_sync_waits_for_answers(*_: Any) -> list[Any]:
    """In a topic that consents, a replica in sync that is back leads only when all others have said how far their logs go."""
    return []


@MUTANTS.mutant("FIRST-LIVE-IN-A-CLUSTER")
def first_live_replica_leads_a_cluster(code: Code) -> None:
    """Both kinds of unclean elections take the first live replica, whatever it holds."""
    for module in (elections, controller_machine):
        code.wrap(module, "largest", lambda _original, candidates, _ends: next(iter(candidates), None))


@MUTANTS.mutant(
    "LATE-WITNESS",
    ByTest("tests/unit/broker/test_past_guard.py::test_a_registration_is_kept_before_the_first_checkpoint"),
)
@around(StorePast, "save")
def registration_awaits_a_checkpoint(*_: Any) -> None:
    """A broker that dies within seconds of its registration knows nothing of it in its next life."""


@MUTANTS.mutant("YOUNGER-MARK", ByTest(f"{_LEADER}test_lag_is_never_hidden_where_marks_are_merged"))
@around(AppendMarks, "add")
def merged_mark_is_the_younger(original: Any, self: Any, end: int, at: float) -> None:
    """Two appends that are remembered as one keep the time of the younger."""
    second = self._marks[1][1] if len(self._marks) == MARKS_MAX else None
    original(self, end, at)
    if second is not None and self._marks[0][1] < second < self._marks[1][1]:
        self._marks[0] = (self._marks[0][0], second)


@MUTANTS.mutant("OTHER-STATE", ByTest(f"{_LEADER}test_an_answer_about_another_state_settles_nothing"))
@around(PartitionReplica, "_on_isr_answered")
def answer_about_another_state_settles(original: Any, self: Any, event: Any) -> Any:
    """A granted ISR change counts, whatever state the controller speaks of."""
    if self.leading is None or event.code is not ErrorCode.NONE:
        return original(self, event)
    newest = max(event.partition_epoch, self.leading.partition_epoch)
    return original(self, replace(event, leader_epoch=self.leading.epoch, partition_epoch=newest))


@MUTANTS.mutant("FORMER-LIFE", ByTest(f"{_LEADER}test_a_former_life_that_is_gone_says_nothing_of_this_one"))
@around(PartitionReplica, "_on_follower_gone")
def any_life_is_gone(original: Any, self: Any, event: Any) -> Any:
    """A follower is gone when any of its lives is."""
    known = None if self.leading is None else self.leading.progress.get(event.replica)
    return original(self, event if known is None else replace(event, broker_epoch=known.member.broker_epoch))
