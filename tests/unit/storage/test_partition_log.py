"""One partition's log: appends, reads, cuts, flushes, and what it does when the disk fails."""

import errno

import pytest

from helpers.batches import BATCH_BYTES_MAX, batch, headers, offsets, patched, placed, sized_batch
from helpers.logs import SMALL, TP, contents, follow, lead, new_log, open_store, rebuilt_epochs
from helpers.requirements import requirement
from tidelog.errors import ErrorCode, TidelogError
from tidelog.storage.log_context import LogConfig
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.recovery import RottenError
from tidelog.testing.disk import Crash, SimDisk
from tidelog.wire.batch import validate_produce

A, B, C = batch(b"a" * 20), batch(b"b" * 20, b"B" * 20), batch(b"c" * 20)
END = 1 << 62


def refused(call: object, *args: object) -> TidelogError:
    with pytest.raises(TidelogError) as caught:
        call(*args)  # type: ignore[operator]
    return caught.value


def test_a_new_log_is_empty_and_writes_nothing() -> None:
    disk = SimDisk()
    log = new_log(disk=disk)
    assert (log.log_start_offset, log.log_end_offset, log.latest_epoch, log.size_bytes) == (0, 0, -1, 0)
    assert log.read(0, 100, END) == b""
    assert [e.name for e in disk.list_dir(log.folder)] == ["000102030405060708090a0b0c0d0e0f.topic"]


def test_leader_gives_offsets_and_epoch() -> None:
    log = new_log()
    assert log.append_as_leader(validate_produce(A + B, batch_bytes_max=BATCH_BYTES_MAX), 3) == (0, 2, len(A + B))
    assert log.append_as_leader(validate_produce(C, batch_bytes_max=BATCH_BYTES_MAX), 5) == (3, 3, len(C))
    held = contents(log)
    assert held == placed(A + B, 0, 3) + placed(C, 3, 5)
    assert log.epochs.entries == ((3, 0), (5, 3))
    assert (log.log_end_offset, log.latest_epoch, log.size_bytes) == (4, 5, len(held))


def test_leader_of_an_older_epoch_is_fenced() -> None:
    log = new_log()
    log.assign_epoch(4, 0)
    error = refused(lead, log, A, 3)
    assert error.code is ErrorCode.FENCED_LEADER_EPOCH
    assert log.log_end_offset == 0


def test_kafka_7415_epoch_is_assigned_with_nothing_written_and_survives_a_clean_stop() -> None:
    disk = SimDisk()
    store = open_store(disk)
    log = store.create(TP, bytes(16))
    lead(log, A, 1)
    log.assign_epoch(6, 1)
    assert log.end_offset_for(6) == (6, 1) and log.end_offset_for(1) == (1, 1)
    assert store.close({TP: 1}, 9)
    assert open_store(disk).logs[TP].epochs.entries == ((1, 0), (6, 1))


def test_epoch_starts_only_at_the_end() -> None:
    log = new_log()
    lead(log, A, 1)
    with pytest.raises(ValueError, match="the log ends at 1"):
        log.assign_epoch(2, 0)


def test_follower_takes_the_leaders_bytes() -> None:
    leader, follower = new_log(), new_log()
    for epoch, records in enumerate((A, B, C, A)):
        lead(leader, records, epoch)
    assert follower.append_as_follower(contents(leader)) == (0, 4, leader.size_bytes)
    assert contents(follower) == contents(leader)
    assert follower.epochs.entries == leader.epochs.entries


FOLLOWER_FAULTS = {
    "gap": (placed(A, 2, 1), "base_offset: 2"),
    "overlap": (placed(A, 0, 1), "base_offset: 0"),
    "gap inside": (placed(A, 1, 1) + placed(A, 3, 1), "base_offset: 3"),
    "older epoch": (placed(A, 1, 0), "partition_leader_epoch: 0"),
    "falling epoch": (placed(A, 1, 5) + placed(A, 2, 4), "partition_leader_epoch: 4"),
    "no epoch": (placed(A, 1, -1), "partition_leader_epoch: -1"),
    "rotten": (patched(placed(A, 1, 1), 70, ">b", 1, crc=False), "crc"),
    "rotten second": (placed(A, 1, 1) + patched(placed(A, 2, 1), 70, ">b", 1, crc=False), "crc"),
    "torn": (placed(A + B, 1, 1)[:-3], "batch_length"),
    "nothing": (b"", "empty"),
}


@requirement("A flipped bit is never served or replicated")
@pytest.mark.parametrize("name", FOLLOWER_FAULTS)
def test_follower_refuses_and_appends_nothing(name: str) -> None:
    records, field = FOLLOWER_FAULTS[name]
    log = new_log()
    lead(log, A, 1)
    error = refused(log.append_as_follower, records)
    assert error.code is ErrorCode.CORRUPT_MESSAGE and field in error.message
    assert (log.log_end_offset, log.epochs.entries, log.failure) == (1, ((1, 0),), None)
    follow(log, A, 1)


def test_first_batch_without_an_epoch_is_refused() -> None:
    assert refused(new_log().append_as_follower, placed(A, 0, -1)).code is ErrorCode.CORRUPT_MESSAGE


def test_segments_roll_by_size_and_one_large_batch_fits() -> None:
    log = new_log(LogConfig(segment_bytes=200, index_interval_bytes=100))
    for records in (A, A, A, sized_batch(500), A):
        lead(log, records, 0)
    assert [(s.base_offset, s.size_bytes) for s in log.segments] == [(0, 176), (2, 88), (3, 500), (4, 88)]
    assert offsets(contents(log, 1)) == [0, 1, 2, 3, 4]


@pytest.fixture(params=["tail", "disk", "disk without index", "reopened"])
def ten(request: pytest.FixtureRequest) -> PartitionLog:
    """Ten batches of one or two records in several segments; offsets 0 to 14."""
    disk = SimDisk()
    store = open_store(disk)
    log = store.create(TP, bytes(16))
    for n in range(10):
        lead(log, B if n % 2 else A, n // 3)
    assert len(log.segments) > 2
    if request.param != "tail":
        log._tail.clear()
    if request.param == "disk without index":
        for segment in log.segments:
            segment.drop_index_file()
            segment.forget_index()
    if request.param == "reopened":
        assert store.close({TP: 15}, 1)
        log = open_store(disk).logs[TP]
    return log


BASES = [0, 1, 3, 4, 6, 7, 9, 10, 12, 13]


def test_read_begins_with_the_batch_that_holds_the_offset(ten: PartitionLog) -> None:
    for offset in range(15):
        assert offsets(ten.read(offset, 1, END)) == [max(b for b in BASES if b <= offset)]


def test_read_never_passes_the_end_asked_for(ten: PartitionLog) -> None:
    for start in BASES:
        for end in range(16):
            got = headers(ten.read(start, END, end))
            assert all(h.end_offset <= end for h in got)
            if start < end and start + (2 if BASES.index(start) % 2 else 1) <= end:
                assert got[0].base_offset == start


def test_read_takes_whole_batches_up_to_the_limit(ten: PartitionLog) -> None:
    for bytes_max in (1, 87, 88, 89, 200, 250, 1_000):
        for offset in BASES:
            records = ten.read(offset, bytes_max, END)
            assert len(records) <= bytes_max or len(headers(records)) == 1
            assert ten.read(offset, 20, END, min_one=False) == b""
    assert len(ten.read(0, 88, END, min_one=False)) == 88


def test_read_outside_is_out_of_range(ten: PartitionLog) -> None:
    for offset in (-1, 16, 2**62):
        assert refused(ten.read, offset, 1, END).code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert ten.read(15, 100, END) == b""
    assert ten.read(5, 100, 5) == b""


def test_deleting_every_index_changes_no_answer(ten: PartitionLog) -> None:
    answers = [ten.read(o, b, e) for o in range(15) for b in (1, 300) for e in (o + 1, o + 4, END)]
    ten._tail.clear()
    for segment in ten.segments:
        segment.drop_index_file()
        segment.forget_index()
    again = [ten.read(o, b, e) for o in range(15) for b in (1, 300) for e in (o + 1, o + 4, END)]
    # From memory more segments may come at once; what comes is the same from the start.
    assert all(x.startswith(y) or y.startswith(x) for x, y in zip(answers, again, strict=True))
    assert contents(ten)


def test_offset_for_timestamp() -> None:
    log = new_log()
    for timestamp in (100, 200, 150, 300):
        lead(log, batch(b"x" * 30, b"y" * 30, timestamp=timestamp, step_ms=10), 1)
    log._tail.clear()
    found = {t: log.offset_for_timestamp(t, log.log_end_offset) for t in (0, 110, 111, 151, 210, 211, 310, 311)}
    assert {t: f and f.offset for t, f in found.items()} == {
        0: 0, 110: 0, 111: 2, 151: 2, 210: 2, 211: 6, 310: 6, 311: None
    }  # fmt: skip
    assert found[0] == (0, 110, 1)


# --- cutting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", range(16))
def test_truncate_to_every_offset(ten: PartitionLog, offset: int) -> None:
    before = contents(ten)
    end = ten.truncate_to(offset)
    assert end == max(b for b in [*BASES, 15] if b <= offset)
    assert contents(ten) == before[: sum(h.size_bytes for h in headers(before) if h.end_offset <= end)]
    assert list(ten.epochs.entries) == rebuilt_epochs(contents(ten))
    lead(ten, C, 9)
    ten._tail.clear()
    assert headers(contents(ten))[-1][:3] == (end, len(C) - 12, 9)
    assert len(ten.segments) == len({s.path for s in ten.segments})


def test_kafka_10706_cutting_nothing_still_forgets_epochs_that_begin_at_the_end() -> None:
    log = new_log()
    lead(log, A, 1)
    log.assign_epoch(5, 1)
    assert log.truncate_to(1) == 1
    assert (log.latest_epoch, log.log_end_offset) == (1, 1)
    log.truncate_to(99)
    assert log.log_end_offset == 1


def test_kafka_6492_truncated_to_nothing_and_written_again() -> None:
    disk = SimDisk()
    log = new_log(disk=disk)
    for records in (A, B, C, A, B):
        lead(log, records, 2)
    assert log.truncate_to(0) == 0
    assert (log.size_bytes, log.epochs.entries) == (0, ())
    follow(log, B, 1)
    log.flush()
    disk.crash(Crash.DROP_UNSYNCED)
    assert contents(open_store(disk).logs[TP]) == placed(B, 0, 1)


def test_truncated_bytes_are_not_served_from_memory() -> None:
    log = new_log()
    lead(log, A, 0)
    lead(log, B, 0)
    log.truncate_to(1)
    follow(log, C, 1)
    assert contents(log) == placed(A, 0, 0) + placed(C, 1, 1)


def test_reset_to_starts_elsewhere_and_stays_there() -> None:
    disk = SimDisk()
    log = new_log(disk=disk)
    for records in (A, B, C, A):
        lead(log, records, 2)
    log.flush()
    log.reset_to(50)
    assert (log.log_start_offset, log.log_end_offset, log.latest_epoch) == (50, 50, -1)
    follow(log, A, 6)
    disk.crash(Crash.DROP_UNSYNCED)
    log = open_store(disk).logs[TP]
    assert (log.log_start_offset, log.log_end_offset, log.failure) == (50, 50, None)
    follow(log, B, 7)
    assert offsets(contents(log)) == [50]
    disk.crash(Crash.PROCESS)
    log = open_store(disk).logs[TP]
    assert (log.log_start_offset, log.log_end_offset, log.epochs.entries) == (50, 52, ((7, 50),))


# --- flushing ---------------------------------------------------------------------------------------------------------


@requirement("A replica knows its log end, high watermark and flushed offset")
def test_recovery_point_follows_the_flush_and_never_passes_the_end() -> None:
    log = new_log()
    lead(log, A, 0)
    assert log.recovery_point == 0 and not log.flushed
    log.flush()
    assert log.recovery_point == 1 and log.flushed
    lead(log, B, 0)
    flush = log.begin_flush()
    lead(log, C, 0)
    flush.run()
    log.end_flush(flush)
    assert log.recovery_point == 3, "what came after the flush began does not count"
    flush = log.begin_flush()
    log.truncate_to(1)
    flush.run()
    log.end_flush(flush)
    assert log.recovery_point == 1, "KAFKA-10101"


@requirement("A replica knows its log end, high watermark and flushed offset")
def test_what_lies_below_the_recovery_point_is_on_disk() -> None:
    disk = SimDisk()
    log = new_log(disk=disk)
    for _ in range(3):
        lead(log, A, 0)
    log.flush()
    lead(log, A, 0)
    assert (log.recovery_point, log.log_end_offset) == (3, 4)
    disk.crash(Crash.DROP_UNSYNCED)
    assert open_store(disk).logs[TP].log_end_offset == 3


def test_kafka_3968_flush_makes_names_durable() -> None:
    disk = SimDisk()
    log = new_log(disk=disk)
    lead(log, A, 0)
    log.flush()
    for _ in range(6):
        lead(log, B, 0)
    log.flush()
    disk.crash(Crash.DROP_UNSYNCED)
    log = open_store(disk).logs[TP]
    assert (log.log_end_offset, len(log.segments) > 2) == (13, True)


def test_flush_of_a_log_closed_meanwhile_says_so_and_loses_nothing() -> None:
    disk = SimDisk()
    store = open_store(disk)
    log = store.create(TP, bytes(16))
    lead(log, A, 0)
    store.registered(5)
    flush = log.begin_flush()
    store.delete(TP)
    assert isinstance(flush.outcome(), OSError), "its folder is gone"
    assert refused(log.end_flush, flush, OSError(errno.ENOENT, "gone")).code is ErrorCode.KAFKA_STORAGE_ERROR
    assert store.intact_since == 5


# --- failing disks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept_bytes", [0, 1, 50])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_kafka_10778_mut_23_a_failed_append_fences_the_log(error: int, kept_bytes: int) -> None:
    disk = SimDisk()
    store = open_store(disk)
    log = store.create(TP, bytes(16))
    lead(log, A, 0)
    disk.fail("append", error, path=".log", kept_bytes=kept_bytes)
    assert refused(lead, log, B, 0).code is ErrorCode.KAFKA_STORAGE_ERROR
    for call, *args in (
        (lead, log, C, 0),
        (follow, log, C, 0),
        (log.read, 0, 1, END),
        (log.truncate_to, 0),
        (log.assign_epoch, 4, 1),
        (log.flush,),
        (log.offset_for_timestamp, 0, 9),
        (log.offset_of_max_timestamp, 9),
    ):
        assert refused(call, *args).code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failure is not None
    assert disk.read(f"{log.folder}/{0:020d}.log") == placed(A, 0, 0), "the partial batch was taken back"
    log = store.reopen(TP)
    assert (log.log_end_offset, log.failure) == (1, None)
    lead(log, C, 1)
    assert offsets(contents(log)) == [0, 1]


def test_failed_append_that_cannot_be_taken_back_is_a_torn_tail() -> None:
    disk = SimDisk()
    store = open_store(disk)
    log = store.create(TP, bytes(16))
    lead(log, A, 0)
    disk.fail("append", errno.EIO, path=".log", kept_bytes=50)
    disk.fail("truncate", errno.EIO)
    assert refused(lead, log, B, 0).code is ErrorCode.KAFKA_STORAGE_ERROR
    log = store.reopen(TP)
    assert (log.log_end_offset, log.cut_bytes, log.failure) == (1, 50, None)


def test_full_disk_recovers_when_space_returns() -> None:
    disk = SimDisk()
    store = open_store(disk, LogConfig())
    log = store.create(TP, bytes(16))
    lead(log, A, 0)
    disk.capacity_bytes = 1
    assert refused(lead, log, B, 0).code is ErrorCode.KAFKA_STORAGE_ERROR
    disk.capacity_bytes = None
    log = store.reopen(TP)
    lead(log, B, 0)
    assert offsets(contents(log)) == [0, 1]


@requirement("A disk error takes one partition of one broker offline")
def test_a_failed_sync_is_never_tried_again_and_the_directory_is_not_intact() -> None:
    disk = SimDisk()
    store = open_store(disk)
    log = store.create(TP, bytes(16))
    store.registered(5)
    lead(log, A, 0)
    disk.fail("sync", errno.EIO, path=".log")
    assert refused(log.flush).code is ErrorCode.KAFKA_STORAGE_ERROR
    syncs = [op for op in disk.trace if op.name == "sync" and op.path.endswith(".log")]
    assert refused(log.flush).code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [op for op in disk.trace if op.name == "sync" and op.path.endswith(".log")] == syncs
    assert store.intact_since is None
    assert not store.close({}, 5), "KAFKA-13773: no clean-shutdown marker"
    disk.crash(Crash.PROCESS)
    store = open_store(disk)
    assert (store.data_dir.was_clean, store.data_dir.same_boot, store.intact_since) == (False, True, None)


def test_read_error_fences_only_this_log() -> None:
    disk = SimDisk()
    store = open_store(disk)
    log, other = store.create(TP, bytes(16)), store.create(TP._replace(partition=1), bytes(16))
    for each in (log, other):
        lead(each, A, 0)
        each._tail.clear()
    disk.fail("pread", errno.EIO, path="events-0")
    assert refused(log.read, 0, 1, END).code is ErrorCode.KAFKA_STORAGE_ERROR
    assert contents(other) == placed(A, 0, 0)


@requirement("A flipped bit is never served or replicated")
def test_rot_is_never_served() -> None:
    disk = SimDisk()
    store = open_store(disk)
    log = store.create(TP, bytes(16))
    store.registered(5)
    for _ in range(3):
        lead(log, A, 0)
    log._tail.clear()
    disk.flip_bit(f"{log.folder}/{0:020d}.log", len(A) + 70)
    assert contents_up_to(log, 1) == placed(A, 0, 0)
    error = refused(log.read, 1, 1, END)
    assert error.code is ErrorCode.CORRUPT_MESSAGE and isinstance(error, RottenError)
    assert f"damaged at byte {len(A)}" in error.message and "offset 1" in error.message and "crc" in error.message
    assert contents_up_to(log, 1) == placed(A, 0, 0) and log.read(2, 1, END) == placed(A, 2, 0), "the rest is readable"
    assert log.condemn(error.damage).code is ErrorCode.KAFKA_STORAGE_ERROR
    assert refused(log.read, 0, 1, END).code is ErrorCode.KAFKA_STORAGE_ERROR
    assert store.intact_since is None
    assert log.discard_damage() == 1
    follow(log, C, 0)
    assert offsets(contents(log)) == [0, 1]


def contents_up_to(log: PartitionLog, end: int) -> bytes:
    return log.read(0, 1 << 20, end)


def test_few_handles_serve_many_segments() -> None:
    disk = SimDisk()
    store = open_store(disk)
    store._files._open_files_max = 2
    log = store.create(TP, bytes(16))
    for n in range(30):
        lead(log, A, 0)
        if n % 7 == 0:
            log.flush()
    log._tail.clear()
    assert offsets(contents(log)) == list(range(30))
    assert len(store._files._open) <= 3
    assert SMALL.segment_bytes == 300
