"""All partitions of one broker: failures stay where they happen, ticks judge leaders, checkpoints keep what they must."""

import asyncio
import errno
import logging
import sys

import pytest

from helpers.batches import batch
from helpers.broker import TOPIC_ID, BrokerBench, member
from helpers.brokers import brokers
from helpers.requirements import requirement
from tidelog.broker.snapshots import longest_stalls
from tidelog.config import BrokerSettings
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import DELETED_TOPIC_EPOCH, TopicPartition
from tidelog.replica import events as ev
from tidelog.replica.effects import ProposeIsr
from tidelog.storage.partition_log import PartitionLog
from tidelog.testing.clock import SimClock
from tidelog.testing.disk import Crash, SimDisk
from tidelog.testing.loop import SimProcess
from tidelog.topic_config import TopicConfig
from tidelog.wire import messages as m
from tidelog.wire.batch import validate_produce

TICK_S, LAG_S, CHECKPOINT_S = 0.5, 10.0, 5.0
HW_FILE = "/data/replication-offset-checkpoint"
ALONE = TopicConfig(min_insync_replicas=1)
OTHER_ID = b"\xcc" * 16


def tp(topic: str) -> TopicPartition:
    return TopicPartition(topic, 0)


def append(bench: BrokerBench, topic: str = "events", count: int = 1) -> None:
    for _ in range(count):
        bench.manager.host(topic, 0).append(validate_produce(batch(b"record"), batch_bytes_max=1 << 20), -1, acks=1)


def position(bench: BrokerBench, offset: int, leader_epoch: int = 3) -> ev.FollowerPosition:
    """Of broker 2, whose history is the leader's."""
    last = leader_epoch if offset else -1
    return ev.FollowerPosition(2, member(2).broker_epoch, leader_epoch, offset, last, last, 1 << 40, bench.clock.now())


def killed(bench: BrokerBench) -> BrokerBench:
    """The same data directory in the next life of its process."""
    bench.disk.crash(Crash.PROCESS)
    return BrokerBench(bench.disk)


# -- disks -----------------------------------------------------------------------------------------------------------


@requirement("A full or failed disk fails over only the partitions on it")
@requirement("A disk error takes one partition of one broker offline")
@pytest.mark.parametrize("operation", ["append", "pread"])
async def test_a_disk_error_takes_one_partition_offline(operation: str) -> None:
    bench = BrokerBench()
    for topic in ("good", "bad"):
        bench.told(topic=topic, isr=(1, 2), replicas=(1, 2))
    append(bench, "bad")
    bad = bench.manager.host("bad", 0)
    parked: list[ErrorCode] = []
    bad.wait_committed(1, parked.append)
    bench.disk.fail(operation, errno.EIO, path="bad-0")
    bad.log._tail.clear()  # so that a read asks the disk
    with pytest.raises(TidelogError) as failed:
        if operation == "append":
            append(bench, "bad")
        else:
            bad.read(0, 1 << 20, 1, min_one=True)
    assert failed.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert bad.offline is not None and not bad.is_leader
    assert parked == [ErrorCode.NOT_LEADER_OR_FOLLOWER]  # another copy may answer it, this one never will
    assert bench.told(topic="bad", leader_epoch=4) is ErrorCode.KAFKA_STORAGE_ERROR  # so the controller hears of it
    append(bench, "good")
    assert bench.told(topic="good", leader_epoch=4) is ErrorCode.NONE


def test_a_failed_partition_leaves_the_decisions_beside_it_alone() -> None:
    bench = BrokerBench()
    bench.told(topic="bad")
    bench.manager.host("bad", 0).take_offline(TidelogError("broken", ErrorCode.KAFKA_STORAGE_ERROR))
    assert [bench.told(topic=t, leader_epoch=5) for t in ("a", "bad", "b")] == [
        ErrorCode.NONE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NONE,
    ]


@requirement("A flipped bit is never served or replicated")
async def test_a_damaged_log_opens_offline_and_is_not_served() -> None:
    bench = BrokerBench()
    for topic in ("good", "bad"):
        bench.told(topic=topic)
        append(bench, topic, count=5)
    bench.logs.checkpoint(bench.manager.high_watermarks())
    bench.disk.flip_bit("/data/bad-0/00000000000000000000.log", 90)
    bench = killed(bench)
    assert bench.told(topic="bad", leader=2, leader_epoch=4) is ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.told(topic="bad", leader_epoch=5) is ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.fetchers.following == {}
    assert bench.told(topic="good", leader_epoch=4) is ErrorCode.NONE
    assert (await bench.get(0, topic="bad")).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await bench.get(0, topic="good")).error_code is ErrorCode.NONE


def test_a_deletion_that_the_disk_refuses_is_answered_and_stops_no_other() -> None:
    bench = BrokerBench()
    bench.told(topic="bad")
    bench.told(topic="good")
    bench.disk.fail("rename", errno.EIO, path="bad-0")
    assert bench.manager.stop(tp("bad"), TOPIC_ID, -2, delete=True) is ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.manager.stop(tp("good"), TOPIC_ID, -2, delete=True) is ErrorCode.NONE
    assert bench.manager.stop(tp("bad"), TOPIC_ID, -2, delete=True) is ErrorCode.NONE
    assert bench.disk.kind("/data/bad-0") is None


@requirement("A topic id separates topics that share a name")
def test_a_late_deletion_of_an_earlier_topic_spares_the_log_that_is_not_open_yet() -> None:
    bench = BrokerBench()
    bench.told()
    bench = killed(bench)
    assert bench.manager.stop(tp("events"), OTHER_ID, -2, delete=True) is ErrorCode.INCONSISTENT_TOPIC_ID
    assert bench.logs.get(tp("events")) is not None
    assert bench.manager.stop(tp("events"), TOPIC_ID, -2, delete=True) is ErrorCode.NONE
    assert bench.logs.get(tp("events")) is None


@requirement("A broker away while its topic is recreated serves no old record")
@pytest.mark.parametrize("how", ["healthy", "damaged", "unreadable"])
async def test_a_broker_that_was_down_during_delete_and_recreate(how: str) -> None:
    """Its old replica is neither served nor mixed with the new topic's, whatever state it is in."""

    bench = BrokerBench()
    bench.told(leader_epoch=7)
    append(bench, count=5)
    bench.logs.checkpoint(bench.manager.high_watermarks())
    old = bench.disk.read("/data/events-0/00000000000000000000.log")
    bench.disk.crash(Crash.PROCESS)
    if how == "damaged":
        bench.disk.flip_bit("/data/events-0/00000000000000000000.log", 90)
    elif how == "unreadable":
        bench.disk.fail("pread", errno.EIO, path="events-0")
    bench = BrokerBench(bench.disk)
    assert (how == "unreadable") == (tp("events") in bench.logs.failed)
    # Before it is told what it holds, it serves nothing.
    assert (await bench.get(0)).error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert bench.told(leader_epoch=0, partition_epoch=0, topic_id=OTHER_ID) is ErrorCode.NONE
    assert (bench.host.log.log_end_offset, bench.host.replica.high_watermark) == (0, 0)
    assert (await bench.send(batch(b"new"), acks=1)).base_offset == 0
    got = await bench.get(0, topic_id=OTHER_ID)
    assert b"new" in got.records and b"record" not in got.records
    assert (await bench.get(0, topic_id=TOPIC_ID)).error_code is ErrorCode.UNKNOWN_TOPIC_ID
    # Renamed first: it stays until the deletion is confirmed, and until the next checkpoint has forgotten it.
    aside, remains = (f"/data/events-0.{TOPIC_ID.hex()}{suffix}" for suffix in ("-stray", "-delete"))
    if how == "healthy":
        assert bench.disk.read(f"{aside}/00000000000000000000.log") == old
    assert bench.manager.stop(tp("events"), TOPIC_ID, DELETED_TOPIC_EPOCH, delete=True) is ErrorCode.NONE
    assert bench.disk.kind(aside) is None and not bench.manager.strays
    bench.logs.purge()
    assert bench.disk.kind(remains) is not None
    bench.logs.checkpoint(bench.manager.high_watermarks())
    bench.logs.purge()
    assert bench.disk.kind(remains) is None
    bench = killed(bench)
    assert bench.told(leader_epoch=1, partition_epoch=1, topic_id=OTHER_ID) is ErrorCode.NONE
    assert bench.host.log.log_end_offset == 1


@requirement("A topic id separates topics that share a name")
def test_a_stray_that_could_not_be_opened_goes_too() -> None:
    bench = BrokerBench()
    for topic in ("gone", "here"):
        bench.told(topic=topic)
        append(bench, topic)
    bench.disk.crash(Crash.PROCESS)
    for topic in ("gone-0", "here-0"):
        bench.disk.fail("pread", errno.EIO, path=topic)
    bench = BrokerBench(bench.disk)
    assert set(bench.logs.failed) == {tp("gone"), tp("here")}
    assert bench.manager.stop(tp("here"), OTHER_ID, -2, delete=True) is ErrorCode.INCONSISTENT_TOPIC_ID
    bench.manager.set_strays_aside(frozenset({(tp("here"), TOPIC_ID)}))
    assert set(bench.logs.failed) == {tp("here")}
    assert bench.disk.kind("/data/gone-0") is None and bench.disk.kind("/data/here-0") is not None


@requirement("A topic id separates topics that share a name")
@pytest.mark.parametrize("restarts", [False, True], ids=["same life", "next life"])
async def test_a_log_that_a_list_leaves_out_comes_back(restarts: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A forged list, or one made from a store that has lost something, deletes nothing."""
    bench = BrokerBench()
    bench.told(leader_epoch=3)
    append(bench, count=2)
    bench.host.log.flush()
    bench.host.move_log_start(1)
    append(bench)
    bench.manager.set_strays_aside(frozenset())
    (stray,) = bench.manager.strays
    assert stray.folder == f"/data/events-0.{TOPIC_ID.hex()}-stray" and stray.folder in caplog.text
    assert bench.manager.find(tp("events")) is None and bench.logs.get(tp("events")) is None
    for _ in range(2):
        bench.logs.checkpoint(bench.manager.high_watermarks())
        bench.logs.purge()
    if restarts:
        bench = killed(bench)
        assert [each.key for each in bench.manager.strays] == [stray.key]
        assert not any("and with it records" in note for note in bench.logs.notes), "it is not lost"
    assert bench.told(leader_epoch=4, partition_epoch=9) is ErrorCode.NONE
    log = bench.host.log
    assert (log.log_start_offset, log.log_end_offset, log.damage) == (1, 3, None)
    assert not bench.manager.strays and bench.disk.kind(stray.folder) is None


def test_a_leader_set_aside_leads_only_in_a_new_epoch() -> None:
    """It has forgotten what it asked of the controller in the epoch that it led."""
    bench = BrokerBench()
    bench.told(leader_epoch=3)
    append(bench)
    bench.manager.set_strays_aside(frozenset())
    assert bench.told(leader_epoch=3, partition_epoch=9) is ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.told(leader_epoch=4, partition_epoch=10) is ErrorCode.NONE


def test_a_log_without_records_is_no_stray() -> None:
    bench = BrokerBench()
    bench.told()
    bench.manager.set_strays_aside(frozenset())
    assert not bench.manager.strays and bench.disk.kind("/data/events-0") is None


def test_a_long_name_of_a_stray_is_known_from_its_marks() -> None:
    bench, name = BrokerBench(), "t" * 249
    bench.told(topic=name)
    append(bench, name)
    bench.logs.checkpoint({})
    bench.manager.set_strays_aside(frozenset())
    bench = killed(bench)
    assert [(each.key.topic, each.named) for each in bench.manager.strays] == [(name, True)]
    bench.told(topic=name, leader_epoch=4)
    assert bench.manager.host(name, 0).log.log_end_offset == 1


# -- decisions -------------------------------------------------------------------------------------------------------


def test_an_order_of_an_older_epoch_costs_its_partition() -> None:
    """The controller's state may come from an older copy of ZooKeeper: the log has newer epochs than it."""
    bench = BrokerBench()
    for topic in ("a", "b"):
        bench.told(topic=topic, leader_epoch=5)
        append(bench, topic)
    bench = killed(bench)
    decisions = [bench.decision(topic=topic, leader_epoch=epoch) for topic, epoch in (("a", 2), ("b", 6))]
    results = bench.manager.become(decisions, {})
    assert [each.error_code for each in results] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    assert [each.topic for each in bench.manager.failed()] == ["a"]
    offline = bench.manager.host("a", 0).offline
    assert offline is not None and "leader_epoch 2 is older than 5" in offline.message
    append(bench, "b")


def test_a_bug_in_an_order_costs_its_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = BrokerBench()
    bench.told(topic="a", leader_epoch=5)
    assign = PartitionLog.assign_epoch

    def fails(log: PartitionLog, *asked: int) -> None:
        if log.key.topic == "a":
            raise LookupError("a bug")
        assign(log, *asked)

    monkeypatch.setattr(PartitionLog, "assign_epoch", fails)
    results = bench.manager.become([bench.decision(topic=topic, leader_epoch=6) for topic in ("a", "b")], {})
    assert [each.error_code for each in results] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    assert [each.topic for each in bench.manager.failed()] == ["a"] and bench.manager.bugs == 1
    append(bench, "b")


@requirement("A stalled log sync moves leadership to another replica")
@pytest.mark.parametrize("crash", [Crash.PROCESS, Crash.DROP_UNSYNCED])
async def test_kafka_7415_new_epochs_are_written_before_the_answer_and_durable_soon_after(crash: Crash) -> None:
    bench = BrokerBench(clock=SimClock())

    for topic in ("a", "b"):
        bench.told(topic=topic)
        append(bench, topic)
        bench.manager.host(topic, 0).log.flush()
    bench.logs.checkpoint({})
    bench.disk.slow("sync", 30.0)
    bench.told(topic="a", leader_epoch=8)
    bench.told(topic="b", leader_epoch=9)
    if crash is Crash.DROP_UNSYNCED:
        await asyncio.sleep(40.0)
    assert bench.disk.stalled_s == 0.0, "the event loop waits for no device"

    bench.disk.crash(crash)
    bench = BrokerBench(bench.disk)
    histories = {where.topic: [tuple(e) for e in log.epochs.entries] for where, log in bench.logs.logs.items()}
    assert histories == {"a": [(3, 0), (8, 1)], "b": [(3, 0), (9, 1)]}


def test_a_proposal_and_its_answer_find_their_partition() -> None:
    bench = BrokerBench()
    bench.told(isr=(1, 2), replicas=(1, 2, 3), config=ALONE)
    host = bench.host
    host.step(ev.FollowerPosition(3, member(3).broker_epoch, 3, 0, -1, -1, 0, bench.clock.now()))
    ((where, proposal),) = bench.plane.proposals
    assert where == tp("events") and {x.broker_id for x in proposal.isr} == {1, 2, 3}
    state = m.LeaderAndIsr(
        leader=1,
        leader_epoch=3,
        current_zk_version=8,
        isr=tuple(m.IsrMember(broker_id=x.broker_id, broker_epoch=x.broker_epoch) for x in proposal.isr),
    )
    bench.manager.isr_answered(where, TOPIC_ID, proposal, ErrorCode.NONE, state)
    assert host.replica.isr is not None and len(host.replica.isr.committed.isr) == 3
    assert host.replica.partition_epoch == 8
    assert bench.metrics.isr_expands._value.get() == 1
    # Answers for what is gone, or without a state, harm nobody.
    bench.manager.isr_answered(tp("nowhere"), TOPIC_ID, proposal, ErrorCode.NONE, state)
    bench.manager.isr_answered(where, TOPIC_ID, proposal, ErrorCode.UNKNOWN_SERVER_ERROR, None)
    assert bench.metrics.isr_update_failures._value.get() == 1


@requirement("A topic id separates topics that share a name")
def test_an_answer_for_an_earlier_topic_of_the_name_is_dropped() -> None:
    bench = BrokerBench()
    bench.told(isr=(1, 2), replicas=(1, 2, 3), config=ALONE)
    position = ev.FollowerPosition(3, member(3).broker_epoch, 3, 0, -1, -1, 0, bench.clock.now())
    bench.host.step(position)
    ((where, proposal),) = bench.plane.proposals
    bench.told(isr=(1, 2), replicas=(1, 2, 3), config=ALONE, topic_id=b"\xbb" * 16)
    bench.host.step(position)
    before = bench.host.replica.isr
    state = m.LeaderAndIsr(leader=1, leader_epoch=3, current_zk_version=8, isr=tuple(member(i) for i in (1, 2, 3)))
    bench.manager.isr_answered(where, TOPIC_ID, proposal, ErrorCode.NONE, state)
    assert bench.host.replica.isr == before and bench.host.replica.partition_epoch == 7
    bench.manager.isr_answered(where, b"\xbb" * 16, proposal, ErrorCode.NONE, state)
    assert bench.host.replica.partition_epoch == 8


@requirement("A pending ISR change is retried and its age is measured")
def test_how_long_a_change_has_waited_for_its_answer_is_measured() -> None:
    bench = BrokerBench()
    bench.told(isr=(1, 2), replicas=(1, 2, 3), config=ALONE)
    leading = bench.host.replica.leading
    assert leading is not None and leading.pending_s(100.0) == 0.0
    bench.host.step(ev.FollowerPosition(3, member(3).broker_epoch, 3, 0, -1, -1, 0, at=40.0))
    assert leading.pending_s(100.0) == 60.0
    ((where, proposal),) = bench.plane.proposals
    # An answer that settles nothing does not begin the wait anew.
    bench.manager.isr_answered(where, TOPIC_ID, proposal, ErrorCode.REQUEST_TIMED_OUT, None)
    assert leading.pending_s(100.0) == 60.0


def test_who_is_no_longer_live_is_not_proposed() -> None:
    bench = BrokerBench()
    bench.told(isr=(1,), replicas=(1, 2), config=ALONE)
    bench.manager.live_changed({1: 101})
    bench.host.step(position(bench, 0))
    assert bench.plane.proposals == []
    bench.manager.live_changed({1: 101, 2: 201})
    assert len(bench.plane.proposals) == 1


# -- time ------------------------------------------------------------------------------------------------------------


class Timed:
    """A broker on the simulated clock, with its ticks running."""

    def __init__(self) -> None:
        self.bench = BrokerBench(clock=SimClock())
        self.process = SimProcess("broker-1")
        self.process.start("lag", self.bench.manager.run_ticks())

    @property
    def shrinks(self) -> list[ProposeIsr]:
        return [proposal for _, proposal in self.bench.plane.proposals]


@requirement("A follower paused beyond the lag limit rejoins after catch-up")
@requirement("A follower that lags too long is dropped and writes go on")
@requirement("Follower lag is measured in time and is zero on an idle log")
@requirement("A slow follower leaves the ISR after the lag limit")
async def test_a_follower_that_lags_is_proposed_out_of_the_isr() -> None:
    timed = Timed()
    timed.bench.told(isr=(1, 2), replicas=(1, 2))
    await asyncio.sleep(3 * LAG_S)
    assert timed.shrinks == [], "an idle partition has no lag"
    append(timed.bench)
    await asyncio.sleep(LAG_S - 1)
    assert timed.shrinks == []
    await asyncio.sleep(1 + 2 * TICK_S)
    assert [{x.broker_id for x in p.isr} for p in timed.shrinks] == [{1}]


@requirement("A leader paused within its session drops no follower")
@requirement("A broker at its limits refuses requests and loses nothing")
@pytest.mark.parametrize("pause_s", [LAG_S / 2, 2 * LAG_S])
async def test_a_pause_of_our_own_is_nobody_elses_lag(pause_s: float) -> None:
    timed = Timed()
    timed.bench.told(isr=(1, 2), replicas=(1, 2))
    append(timed.bench)
    await asyncio.sleep(1.0)
    timed.process.pause()
    await asyncio.sleep(pause_s)
    timed.process.resume()
    await asyncio.sleep(TICK_S)
    assert timed.shrinks == []
    await asyncio.sleep(LAG_S - 3 * TICK_S)
    assert timed.shrinks == [], "they have the whole limit again"
    await asyncio.sleep(5 * TICK_S)
    assert len(timed.shrinks) == 1


async def test_ticks_are_for_leaders() -> None:
    timed = Timed()
    timed.bench.told(leader=2, isr=(1, 2), replicas=(1, 2))
    await asyncio.sleep(3 * LAG_S)
    assert timed.shrinks == []
    timed.bench.told(leader=1, leader_epoch=4, partition_epoch=9, isr=(1, 2), replicas=(1, 2))
    append(timed.bench)
    timed.bench.told(leader=2, leader_epoch=5, partition_epoch=10, isr=(1, 2), replicas=(1, 2))
    await asyncio.sleep(3 * LAG_S)
    assert timed.shrinks == []
    assert not timed.process.supervisor.failures


# -- checkpoints -----------------------------------------------------------------------------------------------------


@requirement("Every replica saves its high watermark from time to time")
@requirement("A checkpoint file holds the high watermark of every replica")
async def test_the_file_holds_leaders_and_followers_at_each_interval() -> None:
    cluster = await brokers(3)
    await cluster.create("events")
    for total in (1, 2, 3):
        await cluster.append("events", 0, batch(b"v"))
        await cluster.wait(2 * CHECKPOINT_S + 1)
        for broker in (1, 2, 3):
            (entry,) = (line for line in cluster.node(broker).disk.read(HW_FILE).splitlines() if b"events 0 " in line)
            assert entry.endswith(b" %d" % total), (broker, entry)


@requirement("Logs are synced to disk at intervals")
@requirement("Checkpoints and flushes come at configured intervals")
@pytest.mark.parametrize(("checkpoint_s", "flush_s"), [(2, 20), (20, 2)])
async def test_checkpoints_and_flushes_come_at_intervals_of_their_own(checkpoint_s: int, flush_s: int) -> None:
    cluster = await brokers(
        1, high_watermark_checkpoint_interval_ms=checkpoint_s * 1000, log_flush_interval_ms=flush_s * 1000
    )
    await cluster.create("events")
    await cluster.append("events", 0, batch(b"v"))
    disk, log = cluster.node(1).disk, cluster.host("events").log

    def kept() -> tuple[bool, bool]:
        """Returns two answers: the high watermark is in the file, the log is flushed."""
        entries = disk.read(HW_FILE).splitlines() if disk.kind(HW_FILE) else []
        return any(b"events 0 " in entry and entry.endswith(b" 1") for entry in entries), log.flushed

    await cluster.wait(10.0)
    assert kept() == (checkpoint_s == 2, flush_s == 2)
    await cluster.wait(15.0)
    assert kept() == (True, True)


@requirement("Checkpoints and flushes come at configured intervals")
def test_checkpoints_come_each_5_s_and_flushes_each_60_s() -> None:
    intervals = BrokerSettings.high_watermark_checkpoint_interval_ms, BrokerSettings.log_flush_interval_ms
    assert intervals == (5_000, 60_000)


@requirement("Every replica saves its high watermark from time to time")
@requirement("A checkpoint file holds the high watermark of every replica")
@requirement("A checkpoint keeps the entries that an update does not name")
async def test_a_checkpoint_carries_over_what_this_life_has_not_opened() -> None:
    bench = BrokerBench(clock=SimClock())
    for topic, count in (("a", 3), ("b", 2)):
        bench.told(topic=topic)
        append(bench, topic, count)
    bench.logs.checkpoint(bench.manager.high_watermarks())
    bench.disk.crash(Crash.PROCESS)
    bench = BrokerBench(bench.disk, clock=SimClock())
    bench.told(topic="a", leader_epoch=4)
    append(bench, "a", 2)
    process = SimProcess("broker-1")
    process.start("checkpoints", bench.manager.run_checkpoints())
    await asyncio.sleep(CHECKPOINT_S + 1)
    process.kill()
    bench.disk.crash(Crash.PROCESS)
    logs = BrokerBench(bench.disk).logs
    marks = {where.topic: log.recorded_high_watermark for where, log in logs.logs.items()}
    assert marks == {"a": 5, "b": 2}


@requirement("Every replica saves its high watermark from time to time")
@requirement("A checkpoint file holds the high watermark of every replica")
@requirement("A started replica recovers and takes the lower high watermark")
@requirement("A log opens with its checkpointed high watermark")
@requirement("A restarted broker returns to its stored roles")
def test_a_follower_starts_with_the_checkpointed_high_watermark() -> None:
    bench = BrokerBench()
    bench.told(isr=(1, 2), replicas=(1, 2))
    append(bench, count=4)
    bench.host.step(position(bench, 3))
    assert bench.host.replica.high_watermark == 3
    bench.logs.checkpoint(bench.manager.high_watermarks())
    bench = killed(bench)
    assert bench.fetchers.following == {}, "it follows no leader until the controller has spoken"
    bench.told(leader=2, leader_epoch=4, isr=(1, 2), replicas=(1, 2))
    assert bench.fetchers.following == {tp("events"): 2}
    assert (bench.host.replica.high_watermark, bench.host.replica.log_end_offset) == (3, 4)
    assert bench.fetchers.following == {tp("events"): 2}


async def test_a_checkpoint_that_fails_is_tried_again_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    bench = BrokerBench(clock=SimClock())
    bench.told()
    append(bench)
    process = SimProcess("broker-1")
    process.start("checkpoints", bench.manager.run_checkpoints())
    bench.disk.fail("append", errno.ENOSPC, path="checkpoint")
    with caplog.at_level(logging.ERROR):
        await asyncio.sleep(CHECKPOINT_S + 1)
    assert "checkpoint failed" in caplog.text
    assert not process.supervisor.failures
    await asyncio.sleep(CHECKPOINT_S)
    assert b"events 0" in bench.disk.read(HW_FILE)
    append(bench)


async def test_deleted_logs_are_purged_after_a_checkpoint() -> None:
    bench = BrokerBench(disk=SimDisk(), clock=SimClock())
    bench.told()
    append(bench)
    process = SimProcess("broker-1")
    process.start("checkpoints", bench.manager.run_checkpoints())
    bench.manager.stop(tp("events"), TOPIC_ID, -2, delete=True)
    assert any(e.name.endswith("-delete") for e in bench.disk.list_dir("/data"))
    await asyncio.sleep(2 * CHECKPOINT_S + 1)
    assert not any(e.name.endswith("-delete") for e in bench.disk.list_dir("/data"))


async def test_kafka_7415_leaders_whose_new_epoch_is_not_durable_lead_nothing_and_the_others_go_on() -> None:
    bench = BrokerBench()
    for topic in ("a", "b", "followed"):
        bench.told(topic=topic)
        append(bench, topic)
    failed: list[bool] = []
    bench.manager.on_failed = lambda: failed.append(True)
    parked: list[ErrorCode] = []
    bench.manager.host("a", 0).wait_committed(100, parked.append)
    bench.disk.fail("append", errno.EIO, path="leader-epoch-journal", times=1_000_000)
    codes = {
        "a": bench.told(topic="a", leader_epoch=8),
        "followed": bench.told(topic="followed", leader=2, leader_epoch=8, isr=(2,), replicas=(1, 2)),
        # No journal can be written, neither this nor a new one: who has to begin an epoch cannot, who follows has none.
        "b": bench.told(topic="b", leader_epoch=9),
        "followed again": bench.told(topic="followed", leader=2, leader_epoch=9, isr=(2,), replicas=(1, 2)),
        "repeated": bench.told(topic="a", leader_epoch=8),
    }
    lost, fine = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE
    assert codes == {"a": lost, "followed": fine, "b": lost, "followed again": fine, "repeated": lost}
    assert {result.topic for result in bench.manager.failed()} == {"a", "b"} and failed
    assert not bench.manager.host("a", 0).is_leader and parked == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    refused = await bench.send(batch(b"x"), acks=1, topic="a")
    assert refused.error_code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def test_the_stalls_of_led_partitions_are_told() -> None:
    bench = BrokerBench(clock=SimClock())
    bench.told(topic="waits", isr=(1, 2), replicas=(1, 2))
    bench.told(topic="moves")
    bench.told(topic="follows", leader=2, isr=(1, 2), replicas=(1, 2))
    for topic in ("waits", "moves"):
        append(bench, topic)
    await bench.clock.sleep(2.0)
    assert dict(longest_stalls(bench.manager, bench.clock)) == {tp("waits"): 2.0, tp("moves"): 0.0}


def steps_of_a_checkpoint(bench: BrokerBench) -> int:
    """Calls of functions, in Python and in C, before and behind what a thread does."""
    counted = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        checkpoint = bench.logs.begin_checkpoint(bench.manager.high_watermarks())
    finally:
        sys.setprofile(None)
    checkpoint.run()
    sys.setprofile(count)
    try:
        bench.logs.end_checkpoint(checkpoint)
    finally:
        sys.setprofile(None)
    return counted


def test_a_checkpoint_of_idle_partitions_looks_at_each_once() -> None:
    bench, topics = BrokerBench(), [f"t{number}" for number in range(300)]
    for topic in topics:
        bench.told(topic=topic, config=ALONE)
        append(bench, topic, 2)
        log = bench.manager.host(topic, 0).log
        log.flush()
        log.move_log_start(1)
    for _ in range(3):
        bench.logs.checkpoint(bench.manager.high_watermarks())
    assert (steps := steps_of_a_checkpoint(bench)) < 4 * len(topics), steps
    append(bench, topics[0], 1)
    before = len(bench.disk.trace)
    assert steps_of_a_checkpoint(bench) < 4 * len(topics) + 1_000
    assert [op.path for op in bench.disk.trace[before:] if op.name == "rename"] == [f"{HW_FILE}.next"]
    bench.logs.checkpoint(bench.manager.high_watermarks())
    logs = killed(bench).logs.logs
    assert [logs[tp(topic)].recorded_high_watermark for topic in topics[:2]] == [3, 2]
    assert {log.log_start_offset for log in logs.values()} == {1}
