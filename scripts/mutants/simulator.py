"""The mistakes of the fault model in replication, controller and storage, which the simulator finds."""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from mutants import rules
from mutants.altering import Seen, altered
from mutants.patching import ByTest, Code, Table, around
from tidelog.broker.control_plane.alter_isr import AlterIsrControlPlane
from tidelog.broker.leader_fetcher import LeaderLink
from tidelog.broker.partition_host import PartitionHost
from tidelog.client.accumulator import Accumulator
from tidelog.client.consumer import Consumer
from tidelog.controller import alter_isr, election
from tidelog.controller.isr_desk import IsrDesk
from tidelog.controller.model import Partition
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.ports.meta import SessionState
from tidelog.replica import effects as fx
from tidelog.replica import events as ev
from tidelog.replica import leader
from tidelog.replica.isr import Member, PendingExpand
from tidelog.replica.leader import LeaderState, Progress
from tidelog.replica.partition import PartitionReplica
from tidelog.runtime import zk, zk_patterns
from tidelog.runtime.lease import LeaseKeeper
from tidelog.storage import checkpoint, data_dir, log_store
from tidelog.storage.data_dir import CLEAN_FILE, DataDir
from tidelog.storage.log_store import LogStore
from tidelog.storage.partition_log import PartitionLog
from tidelog.wire import messages as m

MUTANTS: Final = Table(__name__)

for _name, _plant in {
    "MUT-2": rules.joins_below_the_start_of_the_epoch,
    "MUT-7": rules.shrink_counts_at_once,
    "MUT-10": rules.controller_epoch_is_not_checked,
    "MUT-14": rules.high_watermark_rises_below_min_isr,
    "unclean election": rules.any_live_replica_leads,
}.items():
    MUTANTS.mutant(_name)(_plant)


# -- leaders and followers ---------------------------------------------------------------------------------------------


@MUTANTS.mutant("MUT-1")
@around(PartitionReplica, "_on_position")
def other_epochs_are_counted(original: Any, self: Any, event: Any) -> Any:
    """The high watermark counts followers of another leader epoch."""
    leading = self.leading
    if leading is not None and event.leader_epoch != leading.epoch:
        member = Member(event.replica, event.broker_epoch)
        leading.progress[event.replica] = Progress(member, event.offset, connected=False)
        self._reconsider(event.at)
    return original(self, event)


@MUTANTS.mutant("MUT-3")
def other_epochs_join(code: Code) -> None:
    """A follower of another leader epoch may join the ISR."""

    class Welcoming(LeaderState):
        def __init__(self, *begun: Any) -> None:
            super().__init__(*begun)
            self.strangers: dict[int, Progress] = {}

        def joiners(self, *when: Any) -> frozenset[Member]:
            with altered(self, progress={**self.strangers, **self.progress}):
                return super().joiners(*when)

    def on_position(original: Any, self: Any, event: Any) -> Any:
        if self.leading is not None and event.leader_epoch != self.leading.epoch:
            member = Member(event.replica, event.broker_epoch)
            self.leading.strangers[event.replica] = Progress(member, event.offset)
        return original(self, event)

    code.replace(leader, "LeaderState", Welcoming)
    code.wrap(PartitionReplica, "_on_position", on_position)


@MUTANTS.mutant("MUT-4")
def other_epochs_are_served(code: Code) -> None:
    """Positions and chunks of another leader epoch are served and taken."""

    def on_position(original: Any, self: Any, event: Any) -> Any:
        if self.leading is not None and event.leader_epoch != self.leading.epoch:
            return [fx.SendRecords(event.replica, event.offset)]
        return original(self, event)

    def on_chunk(original: Any, self: Any, event: Any) -> Any:
        return original(self, replace(event, leader_epoch=self.leader_epoch))

    code.wrap(PartitionReplica, "_on_position", on_position)
    code.wrap(PartitionReplica, "_on_chunk", on_chunk)


@MUTANTS.mutant("MUT-5")
def other_epochs_cut(code: Code) -> None:
    """A follower cuts its log by the word of a leader of another epoch."""

    def on_position(original: Any, self: Any, event: Any) -> Any:
        stray = self.leading is not None and event.leader_epoch != self.leading.epoch
        if stray and event.found_epoch >= 0 and event.found_end < event.offset:
            return [fx.SendDivergence(event.replica, event.offset, event.found_epoch, event.found_end)]
        return original(self, event)

    def on_chunk(original: Any, self: Any, event: Any) -> Any:
        diverges = event.diverging_epoch >= 0
        return original(self, replace(event, leader_epoch=self.leader_epoch) if diverges else event)

    code.wrap(PartitionReplica, "_on_position", on_position)
    code.wrap(PartitionReplica, "_on_chunk", on_chunk)


@MUTANTS.mutant("MUT-6")
def expansion_does_not_count(code: Code) -> None:
    """A leader holds itself to the ISR that it knows, although a larger one may be stored."""
    code.replace(PendingExpand, "maximal_isr", lambda self: self.committed.isr)


@MUTANTS.mutant("MUT-15")
@around(LeaderLink, "_on_chunk")
async def high_watermark_before_the_cut(original: Any, self: Any, stream: Any, chunk: Any) -> None:
    """A follower takes the leader's high watermark before it cuts what the same answer says."""
    for part in chunk.partitions:
        host = self.hosts.get(TopicPartition(part.topic, part.partition))
        if host is not None and part.leader_epoch == host.replica.leader_epoch:
            told = min(part.high_watermark, host.replica.log_end_offset)
            host.replica.high_watermark = max(host.replica.high_watermark, told)
            host.step(ev.Tick(0.0))
    await self._fetchers.clock.sleep(0)
    await original(self, stream, chunk)


@MUTANTS.mutant("MUT-16")
@around(PartitionHost, "_on_disk")
def epoch_start_is_not_written(original: Any, self: Any, act: Any, *what: Any, **more: Any) -> Any:
    """A leader does not write the start of its epoch when it becomes leader."""
    return None if act == self.log.assign_epoch else original(self, act, *what, **more)


@MUTANTS.mutant("MUT-28")
@around(PartitionHost, "step")
def lag_by_the_calendar(original: Any, self: Any, event: Any) -> Any:
    """Lag is measured by the calendar."""
    timed = hasattr(event, "at")
    return original(self, replace(event, at=self._context.clock.wall_ms() / 1000) if timed else event)


@MUTANTS.mutant("acks=all like acks=1")
@around(PartitionHost, "wait_committed")
def acks_all_does_not_wait(original: Any, self: Any, end: int, settle: Any) -> None:
    """A produce is answered when the leader has appended it."""
    original(self, end, settle)
    self.pending.complete_below(end)


# -- the controller ----------------------------------------------------------------------------------------------------


@MUTANTS.mutant("MUT-8")
@around(AlterIsrControlPlane, "_ask")
async def no_answer_is_a_refusal(original: Any, self: Any, proposals: Any) -> m.AlterIsrResponse:
    """An ISR change whose answer never came is taken for refused."""
    answer = await original(self, proposals)
    if answer is None:
        await asyncio.sleep(0.05)  # the code as it is pauses here; without it the broker would ask for ever in one step
        return _refusal(self._settings.broker_id, proposals)
    return answer


def _refusal(leader_id: int, proposals: Any) -> m.AlterIsrResponse:
    topics = []
    for tp, (_, proposal) in proposals.items():
        epoch, version = proposal.leader_epoch, proposal.partition_epoch
        known = m.LeaderAndIsr(leader=leader_id, leader_epoch=epoch, isr=(), current_zk_version=version)
        code = ErrorCode.OPERATION_NOT_ATTEMPTED
        part = m.AlterIsrPartitionResult(partition_id=tp.partition, error_code=code, leader_and_isr=known)
        topics.append(m.AlterIsrTopicResult(topic=tp.topic, partitions=(part,)))
    return m.AlterIsrResponse(topics=tuple(topics))


@MUTANTS.mutant("MUT-9")
@around(alter_isr, "judge")
def old_version_is_granted(original: Any, wanted: Any, asker: Any, state: Any, *about: Any) -> Any:
    """The controller grants an ISR change that was asked for in an older version of the state."""
    version = max(wanted.current_zk_version, state.partition_epoch)
    return original(replace(wanted, current_zk_version=version), asker, state, *about)


@MUTANTS.mutant("MUT-11")
def another_life_leads_on(code: Code) -> None:
    """A broker that comes back in another life is taken for the one that left."""
    rules.another_life_is_the_same(code)
    code.replace(Partition, "led_by_former_life_of", lambda self, broker: False)


@MUTANTS.mutant("MUT-12")
@around(IsrDesk, "judge")
def isr_without_lives(original: Any, self: Any, partition: Any, proposal: Any) -> None:
    """AlterIsr does not look at the broker epochs of the members."""
    isr, stored = proposal.wanted.isr, () if partition.state is None else partition.state.isr
    if {member.broker_id for member in isr} == {member.broker_id for member in stored}:
        present = stored
    else:
        found = [(member, self._state.brokers.get(member.broker_id)) for member in isr]
        present = tuple(each if its is None else replace(each, broker_epoch=its.epoch) for each, its in found)
    original(self, partition, replace(proposal, wanted=replace(proposal.wanted, isr=present)))


@MUTANTS.mutant("MUT-13")
def loss_is_no_obstacle(code: Code) -> None:
    """The last member of an ISR may lead again although its data directory has lost something."""
    code.wrap(election, "_complete", lambda original, replica, isr, brokers, _: original(replica, isr, brokers, True))


# -- storage -----------------------------------------------------------------------------------------------------------


@MUTANTS.mutant("MUT-21")
@around(checkpoint, "write_beside")
def named_before_it_is_durable(original: Any, disk: Any, temporary: str, data: bytes) -> None:
    """A checkpoint gets its name before its bytes are durable."""

    def unsynced(*where: Any, **how: Any) -> Seen:
        return Seen(disk.open(*where, **how), sync=lambda: None)

    original(Seen(disk, open=unsynced), temporary, data)


@MUTANTS.mutant(
    "MUT-22",
    ByTest(
        "tests/unit/storage/test_log_store.py::test_mut_22_kafka_10471_the_marker_is_gone_before_anything_is_loaded"
    ),
)
def marker_goes_after_loading(code: Code) -> None:
    """The clean-shutdown marker is removed after loading, when nothing waits for that to be durable.

    A run of a cluster does not show it: a broker that registers syncs its data directory before it appends anything.
    """

    def forget_clean_stop(original: Any, self: Any) -> None:
        disk = self._disk
        with altered(self, _disk=Seen(disk, kind=lambda path: None if path.endswith(CLEAN_FILE) else disk.kind(path))):
            original(self)

    def settle(original: Any, self: Any) -> None:
        original(self)
        marker = f"{self._root}/{CLEAN_FILE}"
        if self._disk.kind(marker) is not None:
            self._disk.remove(marker)

    code.wrap(DataDir, "forget_clean_stop", forget_clean_stop)
    code.wrap(LogStore, "_settle", settle)


@MUTANTS.mutant("MUT-23")
def log_goes_on_after_a_failure(code: Code) -> None:
    """A log takes appends after one has failed."""

    class Unfenced(TidelogError):
        pass

    def fenced(original: Any, self: Any, doing: str, error: OSError) -> TidelogError:
        if doing == "append":
            return Unfenced(f"append: {error}", ErrorCode.KAFKA_STORAGE_ERROR)
        failure: TidelogError = original(self, doing, error)
        return failure

    def take_offline(original: Any, self: Any, reason: TidelogError) -> None:
        if not isinstance(reason, Unfenced):
            original(self, reason)

    code.wrap(PartitionLog, "_fenced", fenced)
    code.wrap(PartitionHost, "take_offline", take_offline)


@MUTANTS.mutant("KILL-IS-A-LOSS")
def kill_counts_as_a_loss(code: Code) -> None:
    """A broker that was killed says that it has lost something, as after a loss of power."""
    for module in (data_dir, log_store):
        code.wrap(module, "intact_since_after_start", _after_a_loss)


def _after_a_loss(original: Any, previous: int | None, **what: bool) -> Any:
    return original(previous, **{**what, "same_boot": False})


# -- clients -----------------------------------------------------------------------------------------------------------


@MUTANTS.mutant("READER-SKIPS")
@around(Consumer, "poll")
async def poll_passes_over_a_record(original: Any, self: Any, *what: Any, **more: Any) -> Any:
    """Now and then a poll passes over a record."""
    records = await original(self, *what, **more)
    return records[:1] + records[2:] if len(records) > 3 and records[0].offset % 10 == 7 else records


@MUTANTS.mutant("RETRIES-LAST")
def retry_goes_last(code: Code) -> None:
    """A batch that is sent again goes behind those that were sent after it."""
    code.replace(Accumulator, "_put_back", staticmethod(lambda queue, batch: queue.batches.append(batch)))


# -- the metadata store ------------------------------------------------------------------------------------------------


@MUTANTS.mutant("MUT-24", ByTest("tests/unit/meta/test_patterns.py"))
@around(zk_patterns, "watch_children")
async def children_are_their_names(original: Any, *what: Any, **more: Any) -> Any:
    """The children are watched by their names: one that died and came back is the same."""
    names: set[str] | None = None
    async with aclosing(original(*what, **more)) as snapshots:
        async for snapshot in snapshots:
            if names != set(snapshot):
                names = set(snapshot)
                yield snapshot


@MUTANTS.mutant("MUT-25", ByTest("tests/unit/meta/test_contract.py"))
def failed_multi_is_done(code: Code) -> None:
    """A multi that failed is taken for done."""
    code.replace(zk, "multi_answer", lambda ops, results: [each for each in results if not isinstance(each, int)])


@MUTANTS.mutant("MUT-26")
def lease_lasts_while_connected(code: Code) -> None:
    """A lease is held until the client is told that its connection is lost."""
    code.replace(LeaseKeeper, "holds", lambda self: not self._over and self._meta.state is SessionState.CONNECTED)
