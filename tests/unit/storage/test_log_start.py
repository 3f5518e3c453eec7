"""The start of a log: moved, stored, and the files before it removed, in that order (reliability 8.1 "log start")."""

import errno

import pytest

from helpers.batches import batch, placed
from helpers.logs import ROOT, TOPIC_ID, TP, contents, lead, open_store
from tidelog.errors import ErrorCode, TidelogError
from tidelog.storage.log_marks import LOG_STARTS_FILE
from tidelog.storage.log_store import LogStore
from tidelog.storage.partition_log import PartitionLog
from tidelog.testing.disk import Crash, SimDisk

A = batch(b"a" * 20)
PAIR = A + A


def filled(disk: SimDisk, segments: int = 3) -> tuple[LogStore, PartitionLog]:
    """Two records a segment; the last one is active."""
    store = open_store(disk)
    log = store.create(TP, TOPIC_ID)
    for _ in range(segments):
        lead(log, PAIR, 1)
        log.roll()
    return store, log


def files(disk: SimDisk) -> list[str]:
    return [entry.name for entry in disk.list_dir(f"{ROOT}/events-0") if entry.name.endswith((".log", ".deleted"))]


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_files_go_only_when_the_start_is_durable() -> None:
    disk = SimDisk()
    store, log = filled(disk)
    log.flush()
    log.move_log_start(3)
    assert bases(log) == [0, 2, 4, 6]
    store.checkpoint({TP: 6})
    assert bases(log) == [0, 2, 4, 6], "its name may still be lost with the power"
    store.checkpoint({TP: 6})
    assert bases(log) == [2, 4, 6], "offset 3 is in the middle of the second"
    assert len([name for name in files(disk) if name.endswith(".deleted")]) == 1
    store.purge()
    assert [name for name in files(disk) if name.endswith(".deleted")] == []
    with pytest.raises(TidelogError) as caught:
        log.read(2, 1 << 20, 6)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE and "3 to 6" in caught.value.message


def test_a_start_is_stored_only_as_far_as_the_log_is_synced() -> None:
    """Or a loss of power would leave a log that ends before it starts."""
    disk = SimDisk()
    store, log = filled(disk)
    log.move_log_start(4)
    for _ in range(3):
        store.checkpoint({TP: 6})
    assert bases(log) == [0, 2, 4, 6]
    disk.crash(Crash.DROP_UNSYNCED)
    store = open_store(disk)
    log = store.logs.get(TP) or store.create(TP, TOPIC_ID)
    assert log.failure is None and log.log_start_offset == 0


@pytest.mark.parametrize("crash", [Crash.PROCESS, Crash.DROP_UNSYNCED])
@pytest.mark.parametrize("installed", [False, True])
def test_a_log_that_is_opened_again_keeps_its_front_until_the_start_is_durable(crash: Crash, installed: bool) -> None:
    """The start is in memory with the begin of a checkpoint, in place with its end, and durable with the next one."""
    disk = SimDisk()
    store, log = filled(disk)
    log.flush()
    store.checkpoint({TP: 6})
    log.move_log_start(4)
    checkpoint = store.begin_checkpoint({TP: 6})
    if installed:
        checkpoint.run()
        store.end_checkpoint(checkpoint)
    disk.fail("append", errno.EIO, path=".log")
    with pytest.raises(TidelogError, match="append failed"):
        lead(log, A, 1)
    again = store.reopen(TP)
    assert again is not None and (again.log_start_offset, again.log_end_offset, again.failure) == (4, 6, None)
    disk.sync_dir(again.folder)  # what is removed is removed for good
    disk.crash(crash)
    store = open_store(disk)
    log = store.logs[TP]
    assert (log.log_end_offset, log.failure) == (6, None)
    log.flush()
    log.move_log_start(4)
    for _ in range(2):
        store.checkpoint({TP: 6})
    assert bases(log)[0] == 4


@pytest.mark.parametrize("crash", [Crash.PROCESS, Crash.DROP_UNSYNCED])
def test_the_start_survives(crash: Crash) -> None:
    disk = SimDisk()
    store, log = filled(disk)
    log.flush()
    log.move_log_start(4)
    store.checkpoint({TP: 6})
    store.checkpoint({TP: 6})
    disk.crash(crash)
    store = open_store(disk)
    log = store.logs[TP]
    assert (log.log_start_offset, log.log_end_offset, log.failure) == (4, 6, None)
    assert bases(log)[0] == 4 and files(disk)[0] == "00000000000000000004.log", "what a crash had kept is removed"
    assert log.recorded_high_watermark == 6


def test_a_log_may_lose_all_its_records() -> None:
    disk = SimDisk()
    store, log = filled(disk, segments=2)
    log.flush()
    log.move_log_start(4)
    store.checkpoint({TP: 4})
    store.checkpoint({TP: 4})
    assert (bases(log), contents(log)) == ([4], b"")
    lead(log, A, 1)
    disk.crash(Crash.PROCESS)
    log = open_store(disk).logs[TP]
    assert (log.log_start_offset, log.log_end_offset, log.failure) == (4, 5, None)


def test_a_start_beyond_the_end_or_back_is_none() -> None:
    _, log = filled(SimDisk())
    with pytest.raises(ValueError, match="cannot start at 7, the log ends at 6"):
        log.move_log_start(7)
    log.move_log_start(4)
    log.move_log_start(2)
    assert log.log_start_offset == 4


def test_a_cut_below_the_start_leaves_nothing() -> None:
    """Only after an unclean election: the new leader ends before this log starts."""
    disk = SimDisk()
    store, log = filled(disk)
    log.flush()
    log.move_log_start(4)
    store.checkpoint({TP: 6})
    assert log.truncate_to(1) == 1
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (1, 1, 1)
    log.flush()
    store.checkpoint({TP: 1})
    disk.sync_dir(ROOT)
    disk.crash(Crash.DROP_UNSYNCED)
    log = open_store(disk).logs[TP]
    assert (log.log_start_offset, log.log_end_offset, log.failure) == (1, 1, None)


def test_a_cut_through_the_batch_that_holds_the_start_moves_the_start_back() -> None:
    disk = SimDisk()
    store = open_store(disk)
    log = store.create(TP, TOPIC_ID)
    lead(log, A, 1)
    lead(log, batch(b"b", b"c", b"d"), 1)
    log.flush()
    log.move_log_start(2)
    store.checkpoint({TP: 4})
    assert log.truncate_to(3) == 1
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)
    disk.crash(Crash.PROCESS)
    log = open_store(disk).logs[TP]
    assert (log.log_start_offset, log.log_end_offset, log.failure) == (1, 1, None)


def of_triples() -> PartitionLog:
    """A leader's log of three batches with three records each."""
    log = open_store(SimDisk()).create(TP, TOPIC_ID)
    for _ in range(3):
        lead(log, batch(b"a", b"b", b"c"), 1)
    return log


@pytest.mark.parametrize("crash", [Crash.PROCESS, Crash.DROP_UNSYNCED])
def test_an_empty_log_takes_the_batch_that_holds_its_start_whole(crash: Crash) -> None:
    """Records were deleted up to the middle of a batch, which the leader sends whole to who has nothing of it."""
    leader = of_triples()
    leader.move_log_start(4)
    sent = leader.read(4, 1 << 20, 9)
    disk = SimDisk()
    store = open_store(disk)
    log = store.create(TP, TOPIC_ID)
    log.reset_to(4)
    assert log.append_as_follower(sent) == (3, 8, len(sent))
    assert (log.log_start_offset, log.log_end_offset, log.epochs.entries) == (4, 9, ((1, 3),))
    assert contents(log) == sent
    with pytest.raises(TidelogError, match="holds 4 to 9"):
        log.read(3, 1 << 20, 9)
    log.flush()
    for _ in range(2):
        store.checkpoint({TP: 9})
    disk.crash(crash)
    log = open_store(disk).logs[TP]
    assert (log.log_start_offset, log.log_end_offset, log.failure, contents(log)) == (4, 9, None, sent)


@pytest.mark.parametrize("crash", [Crash.PROCESS, Crash.DROP_UNSYNCED])
def test_the_first_batch_of_an_empty_log_leaves_what_is_known_of_dropped_tombstones(crash: Crash) -> None:
    """The mark came with that very batch, which begins before the log's start."""
    sent = of_triples().read(4, 1 << 20, 9)
    disk = SimDisk()
    log = open_store(disk).create(TP, TOPIC_ID)
    lead(log, A, 1)
    log.flush()
    log.reset_to(4)
    log.record_dropped_to(9)
    disk.fail("append", errno.EIO, path=f"{3:020d}.log")
    with pytest.raises(TidelogError, match="append failed"):
        log.append_as_follower(sent)
    assert log.dropped_to == 9
    disk.crash(crash)
    log = open_store(disk).create(TP, TOPIC_ID)
    assert log.dropped_to == 9, "durable before the first record is"


def test_what_does_not_hold_the_start_or_comes_twice_is_refused() -> None:
    leader = of_triples()
    log = open_store(SimDisk()).create(TP, TOPIC_ID)
    log.reset_to(4)
    before, holding, behind = (leader.read(at, 1, 9) for at in (0, 3, 6))
    for wrong in (before, behind, before + holding, behind + holding):
        with pytest.raises(TidelogError, match="goes on at 4"):
            log.append_as_follower(wrong)
    assert (log.log_start_offset, log.log_end_offset) == (4, 4)
    log.append_as_follower(holding)
    with pytest.raises(TidelogError, match="goes on at 6"):
        log.append_as_follower(holding)
    assert (log.log_start_offset, log.log_end_offset) == (4, 6)


def test_a_file_that_cannot_be_renamed_fences_its_log_only() -> None:
    disk = SimDisk()
    store, log = filled(disk)
    log.flush()
    log.move_log_start(4)
    store.checkpoint({TP: 6})
    disk.fail("rename", errno.EIO, path="events-0")
    fenced = store.checkpoint({TP: 6})
    assert log.failure is not None and "deletion of old segments failed" in log.failure
    assert [*fenced] == [TP] and fenced[TP].message == log.failure


def test_what_a_deleted_topic_left_is_not_taken_from_the_next_one() -> None:
    disk = SimDisk()
    store, log = filled(disk)
    log.flush()
    log.move_log_start(4)
    store.checkpoint({TP: 6})
    store.checkpoint({TP: 6})
    store.delete(TP)
    again = store.create(TP, bytes(reversed(TOPIC_ID)))
    lead(again, A, 0)
    store.purge()
    assert contents(again) and files(disk) == ["00000000000000000000.log"]


def test_times_are_looked_up_above_the_start_only() -> None:
    store = open_store(SimDisk())
    log = store.create(TP, TOPIC_ID)
    for at in (30, 10, 20):
        lead(log, batch(b"x", b"y", timestamp=at), 1)
    log.move_log_start(3)
    found = log.offset_for_timestamp(5, 6)
    assert found is not None and (found.offset, found.timestamp) == (3, 10)
    newest = log.offset_of_max_timestamp(6)
    assert newest is not None and (newest.offset, newest.timestamp) == (4, 20)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("loss", ["bit", "file"])
def test_a_lost_checkpoint_of_starts_costs_no_record(loss: str, clean: bool) -> None:
    """The log begins at its first segment; a known-bad file is not read as if it said 0."""
    disk = SimDisk()
    store, log = filled(disk)
    log.flush()
    log.move_log_start(3)
    for _ in range(2):
        store.checkpoint({TP: 6})
    assert bases(log) == [2, 4, 6]
    if clean:
        assert store.close({TP: 6}, 1)
    disk.crash(Crash.PROCESS)
    path = f"{ROOT}/{LOG_STARTS_FILE}"
    if loss == "bit":
        disk.flip_bit(path, 3)
    else:
        disk.remove(path)
    for _ in range(2):  # what was found is stored
        store = open_store(disk)
        log = store.logs[TP]
        assert (log.damage, log.log_start_offset, log.log_end_offset) == (None, 2, 6)
        assert contents(log) == placed(PAIR, 2, 1) + placed(PAIR, 4, 1)
        disk.crash(Crash.PROCESS)


def test_a_log_without_its_front_is_damaged_if_starts_are_known() -> None:
    disk = SimDisk()
    store, log = filled(disk)
    log.flush()
    store.checkpoint({TP: 6})
    disk.crash(Crash.PROCESS)
    disk.remove(f"{ROOT}/events-0/{files(disk)[0]}")
    assert open_store(disk).logs[TP].damage is not None
