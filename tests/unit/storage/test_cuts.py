"""Parts of logs that are set aside when a log is cut below its high watermark, as behind an unclean election."""

import errno
from dataclasses import replace

import pytest

from helpers.batches import batch
from helpers.logs import ROOT, SMALL, TOPIC_ID, TP, contents, follow, lead, open_store
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.ports.disk import EntryKind
from tidelog.storage.dump import dump_segment
from tidelog.storage.log_context import LogConfig
from tidelog.storage.log_store import LogStore
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.segment import LOG_SUFFIX
from tidelog.storage.strays import NAME_CHARS_MAX, Stray
from tidelog.storage.trouble import Trouble
from tidelog.testing.disk import Crash, PowerCut, SimDisk
from tidelog.wire.batch import iter_batches

BATCHES = [batch(b"%d" % number * 20) for number in range(8)]
OTHER = batch(b"other" * 4)


def filled(disk: SimDisk, config: LogConfig = SMALL) -> tuple[LogStore, PartitionLog]:
    """Eight batches of one record in segments of three, all committed."""
    store = open_store(disk, config)
    log = store.create(TP, TOPIC_ID)
    for each in BATCHES:
        lead(log, each, 1)
    log.flush()
    store.checkpoint({TP: 8})
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
    return store, log


def in_folder(disk: SimDisk, folder: str) -> bytes:
    """The content of a stray, in the order of its files. The command that dumps a segment reads each to its end."""
    found = b""
    for name, kind in disk.list_dir(folder):
        if kind is EntryKind.FILE and name.endswith(LOG_SUFFIX):
            assert all(line.problem is None for line in dump_segment(disk, f"{folder}/{name}")), name
            found += disk.read(f"{folder}/{name}")
    return found


def strays(store: LogStore) -> list[Stray]:
    return sorted(store.strays, key=lambda stray: stray.folder)


@pytest.mark.parametrize("offset", range(8))
def test_a_cut_below_the_high_watermark_is_set_aside(offset: int) -> None:
    disk = SimDisk()
    store, log = filled(disk)
    told: list[tuple[Stray, int]] = []
    store.strays.on_cut = lambda stray, records: told.append((stray, records))
    before = contents(log)
    assert log.truncate_to(offset, 8) == offset
    ((stray, records),) = told
    assert stray.folder == f"{ROOT}/events-0.{TOPIC_ID.hex()}.{offset:020d}-stray"
    assert (stray.cut_at, records, stray.size_bytes) == (offset, 8 - offset, len(before) - len(contents(log)))
    aside = in_folder(disk, stray.folder)
    assert contents(log) + aside == before
    follow(log, OTHER, 2)
    store.abandon()
    disk.crash(Crash.DROP_UNSYNCED)
    store = open_store(disk)
    assert strays(store) == [stray._replace(power_lost=True)] and list(store.logs) == [TP], "it is no live log"
    assert in_folder(disk, stray.folder) == aside
    store.delete_stray(*store.strays)
    assert not store.strays
    store.purge()
    assert [name for name, _ in disk.list_dir(ROOT) if "stray" in name or "delete" in name] == []
    store.abandon()
    disk.crash(Crash.PROCESS)
    assert open_store(disk).logs[TP].failure is None


def test_a_cut_at_or_above_the_high_watermark_goes() -> None:
    store, log = filled(SimDisk())
    log.truncate_to(6, 6)
    log.truncate_to(3)
    assert not store.strays and log.log_end_offset == 3


def test_a_log_that_begins_anew_is_set_aside_if_it_is_missed() -> None:
    disk = SimDisk()
    store, log = filled(disk)
    log.move_log_start(1)
    before = in_folder(disk, log.folder)
    log.reset_to(20, 8)
    (stray,) = store.strays
    assert (stray.cut_at, in_folder(disk, stray.folder)) == (1, before)
    assert (log.log_start_offset, log.log_end_offset) == (20, 20)
    follow(log, OTHER, 2)
    log.reset_to(30)
    assert len(store.strays) == 1, "its leader had it"


def test_what_is_set_aside_is_not_brought_back_as_a_log() -> None:
    disk = SimDisk()
    store, log = filled(disk)
    log.truncate_to(0, 8)
    store.delete(TP)
    assert store.create(TP, TOPIC_ID).log_end_offset == 0
    follow(store.logs[TP], OTHER, 2)
    store.set_aside(TP, 1)
    assert sorted(stray.cut_at is None for stray in store.strays) == [False, True]
    assert contents(store.create(TP, TOPIC_ID)) != b"" and len(store.strays) == 1


def test_a_full_disk_keeps_the_log_until_there_is_space() -> None:
    disk = SimDisk()
    store, log = filled(disk)
    before = contents(log)
    disk.fill(10)
    with pytest.raises(TidelogError) as refused:
        log.truncate_to(1, 8)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR and log.trouble is Trouble.NO_SPACE
    assert not store.strays and not [name for name, _ in disk.list_dir(ROOT) if "stray" in name], "it takes no space"
    disk.mend()
    again = store.reopen(TP)
    assert again is not None and contents(again) == before
    again.truncate_to(1, again.recorded_high_watermark)
    (stray,) = store.strays
    assert contents(again) + in_folder(disk, stray.folder) == before


def test_whole_segments_need_no_space() -> None:
    disk = SimDisk()
    store, log = filled(disk, replace(SMALL, reserve_bytes=4096))
    disk.fill(0)
    before = contents(log)
    assert log.truncate_to(0, 8) == 0
    (stray,) = store.strays
    assert in_folder(disk, stray.folder) == before


def test_what_cannot_be_read_does_not_stop_the_cut() -> None:
    disk = SimDisk()
    store, log = filled(disk)
    rest = contents(log, start=3)
    read = disk.on_read

    def fail_once(path: str) -> None:
        if disk.trace[-1].name == "create":  # of the copy
            disk.on_read = read
            raise OSError(errno.EIO, "planted", path)

    disk.on_read = fail_once
    log.truncate_to(1, 8)
    assert disk.on_read is read
    (stray,) = store.strays
    assert in_folder(disk, stray.folder) == rest and log.log_end_offset == 1


def test_a_long_name_is_known_again() -> None:
    disk, tp = SimDisk(), TopicPartition("t" * (NAME_CHARS_MAX + 20), 0)
    store = open_store(disk)
    log = store.create(tp, TOPIC_ID)
    lead(log, OTHER, 1)
    log.truncate_to(0, 1)
    (cut,) = store.strays.cuts(log.key)
    store.checkpoint({tp: 0})
    store.abandon()
    disk.crash(Crash.PROCESS)
    store = open_store(disk)
    assert store.strays.cuts(log.key) == [cut]


@pytest.mark.parametrize("offset", [0, 1, 3, 4])
def test_a_crash_in_the_middle_of_a_cut_loses_nothing(offset: int) -> None:
    calls, cut = 1, 0
    while cut < calls:
        disk = SimDisk()
        store, log = filled(disk)
        began = len(disk.trace)
        disk.stop_after = began + cut
        try:
            log.truncate_to(offset, 8)
        except PowerCut:
            calls = cut + 2
        disk.crash(Crash.PROCESS)
        store = open_store(disk)
        log = store.logs[TP]
        log.truncate_to(offset, log.recorded_high_watermark)
        found = {header.base_offset for _, header in iter_batches(contents(log))}
        for stray in store.strays:
            found |= {header.base_offset for _, header in iter_batches(in_folder(disk, stray.folder))}
        assert found == set(range(8)), cut
        cut += 1
    assert cut > 10, "the whole cut was tried"
