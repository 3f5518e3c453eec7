"""What recovery may cut and what it must name (reliability 8.1, fault rows 32 and 33)."""

import errno

import pytest

from helpers.batches import batch, offsets, patched, placed
from helpers.logs import ROOT, TP, contents, follow, lead, open_store
from helpers.requirements import requirement
from tidelog.errors import ErrorCode, TidelogError
from tidelog.storage.dump import dump_segment
from tidelog.storage.log_context import LogConfig
from tidelog.storage.log_store import LogStore
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.recovery import Opening, valid_batch_after, why_damaged
from tidelog.testing.disk import Crash, PowerCut, SimDisk

A, B = batch(b"a" * 20), batch(b"b" * 20)
SIZE = len(A)
ONE_FILE = LogConfig()
FILE = f"{ROOT}/events-0/{0:020d}.log"


def written(count: int, *, config: LogConfig = ONE_FILE, hw: int = 0, flushed: int = 0) -> tuple[SimDisk, LogStore]:
    """A log of `count` equal batches in a process that will be killed."""
    disk = SimDisk()
    store = open_store(disk, config)
    store.registered(5)
    log = store.create(TP, bytes(16))
    for n in range(count):
        lead(log, A, 0)
        if n + 1 == flushed:
            log.flush()
    store.checkpoint({TP: hw})
    disk.sync_dir(ROOT)
    return disk, store


def killed(disk: SimDisk, config: LogConfig = ONE_FILE) -> tuple[LogStore, PartitionLog]:
    disk.crash(Crash.PROCESS)
    store = open_store(disk, config)
    return store, store.logs[TP]


def cut_file(disk: SimDisk, size: int, path: str = FILE) -> None:
    disk.overwrite(path, disk.read(path)[:size])


@requirement("A torn log tail is cut back to the last valid batch")
def test_a_torn_tail_is_cut_and_said() -> None:
    disk, _ = written(3)
    cut_file(disk, 3 * SIZE - 5)
    store, log = killed(disk, ONE_FILE)
    assert (log.failure, log.log_end_offset, log.cut_bytes) == (None, 2, SIZE - 5)
    assert any("torn tail" in note for note in store.notes)
    assert disk.read(FILE) == placed(A + A, 0, 0)
    assert store.intact_since == 5, "nothing that counted was lost"


@requirement("A started replica recovers and takes the lower high watermark")
@requirement("A flipped bit is never served or replicated")
@pytest.mark.parametrize("position", [0, 1, 16, 20, 61, SIZE - 1])
def test_a_bad_batch_in_the_middle_is_never_hidden(position: int) -> None:
    disk, _ = written(4)
    disk.flip_bit(FILE, SIZE + position)
    store, log = killed(disk, ONE_FILE)
    assert log.damage is not None and (log.damage.position, log.damage.offset) == (SIZE, 1)
    with pytest.raises(TidelogError, match=f"{FILE}: damaged at byte {SIZE}, valid up to offset 1") as caught:
        log.read(0, 100, 1)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "valid batches follow" in str(log.damage)
    assert store.intact_since is None
    operator = "`tidelog brokers discard-damage` what goes when it is cut"
    assert any(f"{FILE}: damaged at byte {SIZE}" in note and operator in note for note in store.notes)
    assert len(disk.read(FILE)) == 4 * SIZE, "nothing was cut"


@pytest.mark.parametrize("flip", [8, 9, 10, 11])
def test_a_bad_length_does_not_hide_what_follows(flip: int) -> None:
    disk, _ = written(4)
    disk.flip_bit(FILE, SIZE + flip, bit=5)
    assert killed(disk, ONE_FILE)[1].damage is not None


@requirement("A torn log tail is cut back to the last valid batch")
def test_a_bad_tail_below_the_recorded_high_watermark_is_damage() -> None:
    disk, _ = written(3, hw=3)
    cut_file(disk, 3 * SIZE - 5)
    store, log = killed(disk, ONE_FILE)
    assert log.damage is not None and "up to offset 3 had been committed" in str(log.damage)
    assert store.intact_since is None


def test_a_log_that_ends_cleanly_below_the_recorded_high_watermark_is_damage() -> None:
    disk, _ = written(3, hw=3)
    cut_file(disk, 2 * SIZE)
    log = killed(disk, ONE_FILE)[1]
    assert log.damage is not None and log.damage.offset == 2


def test_missing_synced_batches_are_damage_after_any_crash() -> None:
    for crash in Crash:
        if crash is Crash.KEEP_SOME:
            continue
        disk, _ = written(3, flushed=3)
        cut_file(disk, 2 * SIZE)
        disk.crash(crash)
        log = open_store(disk, ONE_FILE).logs[TP]
        assert log.damage is not None and "had been synced" in str(log.damage)


def test_a_missing_segment_in_the_middle_is_damage() -> None:
    small = LogConfig(segment_bytes=SIZE)
    disk, _ = written(3, config=small)
    disk.remove(f"{ROOT}/events-0/{1:020d}.log")
    log = killed(disk, small)[1]
    assert log.damage is not None and "next segment begins at offset 2" in str(log.damage)


def test_a_missing_first_segment_is_damage() -> None:
    small = LogConfig(segment_bytes=SIZE)
    disk, _ = written(3, config=small)
    disk.remove(FILE)
    log = killed(disk, small)[1]
    assert log.damage is not None and "first segment begins at offset 1" in str(log.damage)


def test_a_missing_folder_is_a_loss_that_is_said() -> None:
    disk, _ = written(3, hw=3)
    for entry in disk.list_dir(f"{ROOT}/events-0"):
        disk.remove(f"{ROOT}/events-0/{entry.name}")
    disk.remove_dir(f"{ROOT}/events-0")
    disk.crash(Crash.PROCESS)
    store = open_store(disk)
    assert store.intact_since is None and any("is gone" in note for note in store.notes)


@requirement("A started replica recovers and takes the lower high watermark")
@requirement("A restarted broker returns to its stored roles")
@requirement("A crash of the whole cluster loses at most unflushed records")
def test_a_power_loss_explains_what_was_not_synced() -> None:
    disk, _ = written(3, hw=3, flushed=1)
    disk.crash(Crash.DROP_UNSYNCED)
    store = open_store(disk, ONE_FILE)
    log = store.logs[TP]
    assert (log.failure, log.log_end_offset, log.recorded_high_watermark) == (None, 1, 1), (
        "HOLE-35: min(checkpoint, LEO)"
    )
    assert store.intact_since is None, "but the directory is not intact"
    store, log = killed(disk, ONE_FILE)
    assert (log.failure, store.intact_since) == (None, None)


def power_lost_out_of_order(missing: int) -> SimDisk:
    """Ten batches, five of them synced; the one at `missing` reads as zeros, and all others were written back."""
    disk, _ = written(10, hw=10, flushed=5)
    data = disk.read(FILE)
    disk.crash(Crash.DROP_UNSYNCED)
    disk.overwrite(FILE, data[: missing * SIZE] + bytes(SIZE) + data[(missing + 1) * SIZE :])
    return disk


def test_write_back_out_of_order_is_cut() -> None:
    disk = power_lost_out_of_order(missing=6)
    store = open_store(disk, ONE_FILE)
    log = store.logs[TP]
    assert (log.failure, log.log_end_offset, log.cut_bytes) == (None, 6, 4 * SIZE)
    assert (contents(log), log.recorded_high_watermark) == (placed(A * 6, 0, 0), 6)
    assert store.intact_since is None, "the controller is told that records may be gone"
    lead(log, B, 0)
    store, log = killed(disk)
    assert (log.failure, log.log_end_offset) == (None, 7)


def test_a_hole_below_the_recovery_point_is_damage() -> None:
    log = open_store(power_lost_out_of_order(missing=4), ONE_FILE).logs[TP]
    assert log.damage is not None and log.damage.offset == 4
    assert "records up to offset 5 had been synced" in str(log.damage)


def test_a_log_not_read_at_start_is_cut_when_it_is_opened() -> None:
    disk = power_lost_out_of_order(missing=6)
    disk.fail("pread", errno.EIO, path=FILE)
    store = open_store(disk, ONE_FILE)
    assert TP in store.failed
    log = store.reopen(TP)
    assert log is not None and (log.failure, log.log_end_offset) == (None, 6)


def test_a_clean_stop_hides_no_later_cut() -> None:
    for size in (3 * SIZE - 5, 2 * SIZE, 0):
        disk, store = written(3)
        assert store.close({TP: 3}, 5)
        cut_file(disk, size)
        log = killed(disk, ONE_FILE)[1]
        assert log.damage is not None and log.damage.offset == size // SIZE


def test_discarded_damage_is_fetched_again() -> None:
    disk, _ = written(4, hw=4)
    disk.flip_bit(FILE, SIZE + 70)
    log = killed(disk, ONE_FILE)[1]
    assert log.discard_damage() == 1
    assert (log.failure, log.log_end_offset, log.recorded_high_watermark) == (None, 1, 1)
    for _ in range(3):
        follow(log, B, 2)
    disk.crash(Crash.PROCESS)
    log = open_store(disk, ONE_FILE).logs[TP]
    assert contents(log) == placed(A, 0, 0) + placed(B + B + B, 1, 2)


def test_a_kill_right_after_damage_was_discarded() -> None:
    disk, _ = written(4, hw=4, flushed=4)
    disk.flip_bit(FILE, SIZE + 70)
    killed(disk)[1].discard_damage()
    log = killed(disk)[1]
    assert (log.failure, log.log_end_offset, log.recorded_high_watermark) == (None, 1, 1)


def test_a_kill_during_the_recovery_from_a_power_loss_is_still_a_power_loss() -> None:
    def lost() -> SimDisk:
        disk, _ = written(3, hw=3, flushed=1)
        disk.crash(Crash.DROP_UNSYNCED)
        return disk

    disk = lost()
    before = len(disk.trace)
    open_store(disk, ONE_FILE)
    for cut in range(len(disk.trace) - before):
        disk = lost()
        disk.stop_after = before + cut
        with pytest.raises(PowerCut):
            open_store(disk, ONE_FILE)
        store, log = killed(disk)
        assert (log.failure, log.log_end_offset, store.intact_since) == (None, 1, None), cut


def test_damage_survives_a_second_start() -> None:
    disk, _ = written(4)
    disk.flip_bit(FILE, SIZE + 70)
    assert killed(disk, ONE_FILE)[1].damage == killed(disk, ONE_FILE)[1].damage is not None


def test_kafka_5211_one_bad_log_does_not_stop_the_others() -> None:
    disk, store = written(3)
    other = TP._replace(partition=1)
    lead(store.create(other, bytes(16)), A, 0)
    disk.flip_bit(FILE, 70)
    store, log = killed(disk, ONE_FILE)
    assert log.damage is not None
    assert offsets(contents(store.logs[other])) == [0]


ZEROS = bytes(4096)


@requirement("A torn log tail is cut back to the last valid batch")
@pytest.mark.parametrize("tail", [b"\0", ZEROS, b"\xff" * 100, A[:30], placed(A, 3, 0)[:-1], placed(A, 3, 0)[:61]])
def test_what_a_crash_leaves_behind_the_last_batch_is_cut(tail: bytes) -> None:
    disk, _ = written(3)
    disk.overwrite(FILE, disk.read(FILE) + tail)
    log = killed(disk, ONE_FILE)[1]
    assert (log.failure, log.log_end_offset, log.cut_bytes) == (None, 3, len(tail))


@pytest.mark.parametrize(
    ("name", "batch_"),
    {"offset gap": placed(A, 5, 0), "older epoch": placed(A, 3, 0), "no epoch": placed(A, 3, -1)}.items(),
)
def test_a_whole_batch_that_does_not_fit_ends_the_log(name: str, batch_: bytes) -> None:
    disk, store = written(2)
    lead(store.logs[TP], A, 4)
    disk.overwrite(FILE, disk.read(FILE) + batch_)
    log = killed(disk, ONE_FILE)[1]
    assert log.log_end_offset == 3, name
    assert log.failure is None


def test_search_looks_at_every_byte_and_believes_only_a_checksum() -> None:
    disk = SimDisk()
    file = disk.open("/f", create=True)
    file.append([b"\x02" * 5_000, placed(A, 7, 1), b"\x02" * 10])
    size = file.size()
    assert valid_batch_after(file, size, 0, 5) == 5_000
    assert valid_batch_after(file, size, 0, 8) is None, "older records are no successors"
    assert valid_batch_after(file, size, 5_000, 5) is None
    file.truncate(0)
    file.append([patched(placed(A, 7, 1), 80, ">b", 1, crc=False), ZEROS])
    assert valid_batch_after(file, file.size(), -1, 0) is None


def test_why_damaged_is_a_table() -> None:
    killed_, power = Opening(clean=False, power_lost=False, recovery_point=10, high_watermark=20), None
    power = Opening(clean=False, power_lost=True, recovery_point=10, high_watermark=20)

    def damaged(opening: Opening, offset: int, follows: bool = False, later: bool = False) -> bool:
        return why_damaged(offset, opening, valid_follows=follows, later_segments=later) is not None

    assert damaged(killed_, 9) and damaged(power, 9)
    assert damaged(killed_, 19) and not damaged(power, 19)
    assert not damaged(killed_, 20) and not damaged(power, 20)
    assert damaged(killed_, 30, follows=True) and not damaged(power, 30, follows=True)
    assert damaged(power, 9, follows=True), "it had been synced"
    assert damaged(killed_, 30, later=True) and not damaged(power, 30, later=True)


def test_dump_goes_on_to_the_first_bad_batch() -> None:
    disk, _ = written(3)
    lines = list(dump_segment(disk, FILE))
    assert [(x.position, x.header and x.header.base_offset, x.problem) for x in lines] == [
        (0, 0, None), (SIZE, 1, None), (2 * SIZE, 2, None)
    ]  # fmt: skip
    disk.flip_bit(FILE, SIZE + 70)
    lines = list(dump_segment(disk, FILE))
    assert [(x.position, x.problem is None) for x in lines] == [(0, True), (SIZE, False)]
    assert "crc" in (lines[-1].problem or "")
    cut_file(disk, 20)
    assert [(x.position, x.header) for x in dump_segment(disk, FILE)] == [(0, None)]
    with pytest.raises(FileNotFoundError):
        list(dump_segment(disk, f"{ROOT}/nothing.log"))
