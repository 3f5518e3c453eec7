"""Recovery after a kill reads what follows the recovery point; after a loss of power it reads whole segments from there on."""

import random
from collections.abc import Sequence

import pytest

from helpers.batches import batch
from helpers.logs import TOPIC_ID, TP, contents, lead, open_store, rebuilt_epochs, rebuilt_producers
from helpers.requirements import requirement
from tidelog.ports.disk import DiskFile
from tidelog.storage import partition_log
from tidelog.storage.log_context import LogConfig
from tidelog.storage.log_store import LogStore
from tidelog.storage.partition_log import PartitionLog
from tidelog.testing.disk import Crash, SimDisk
from tidelog.wire.batch import numbered

LARGE = LogConfig(segment_bytes=1 << 20, index_interval_bytes=500)
BATCH_BYTES = len(batch(b"v" * 30))


class Counting(SimDisk):
    """Counts the bytes of segments that are read."""

    read_bytes = 0

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        file = super().open(path, create=create, read_only=read_only)
        pread = file.pread

        def counted(size_bytes: int, position: int) -> bytes:
            data = pread(size_bytes, position)
            if path.endswith(".log"):
                self.read_bytes += len(data)
            return data

        file.pread = counted  # type: ignore[method-assign]
        return file


@pytest.fixture(autouse=True)
def caches_are_saved_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_log, "CACHES_BYTES_MIN", 1)


@pytest.fixture
def disk() -> Counting:
    return Counting()


def append(log: PartitionLog, count: int, epoch: int) -> None:
    for _ in range(count):
        sequence = log.log_end_offset
        lead(log, numbered(batch(b"v" * 30), 1, 0, sequence), epoch)


def flushed(disk: SimDisk, counts: Sequence[int], epoch: int = 1) -> LogStore:
    store = open_store(disk, LARGE)
    log = store.create(TP, TOPIC_ID)
    for count in counts:
        append(log, count, epoch)
        log.flush()
        store.checkpoint({TP: log.log_end_offset})
    return store


def again(disk: Counting) -> PartitionLog:
    """The log, opened again and equal to what its records tell."""
    disk.read_bytes = 0
    log = open_store(disk, LARGE).logs[TP]
    read_bytes = disk.read_bytes
    assert log.failure is None
    held = contents(log)
    assert list(log.epochs.entries) == rebuilt_epochs(held)
    assert log.producers.facts() == rebuilt_producers(held)
    for segment in log.segments:
        entries = segment.index.entries()
        segment.forget_index()
        segment.drop_index_file()
        assert segment.index.entries() == entries
    disk.read_bytes = read_bytes
    return log


@requirement("Killing every broker at once loses no written record")
def test_a_killed_broker_reads_what_was_not_flushed(disk: Counting) -> None:
    store = flushed(disk, [400, 200])
    append(store.logs[TP], 10, 2)
    disk.crash(Crash.PROCESS)
    assert again(disk).log_end_offset == 610
    assert disk.read_bytes < 80 * BATCH_BYTES, "of 610, and a part of each read is what follows"


def test_a_flush_with_little_news_saves_no_caches(disk: Counting) -> None:
    """Both are written as a whole, so a log that is synced after each append would write them each time."""
    store = flushed(disk, [400])
    log = store.logs[TP]
    before = len(disk.trace)
    for _ in range(40):
        append(log, 1, 1)
        log.flush()
    assert {op.name for op in disk.trace[before:]} == {"append", "sync"}
    append(log, 60, 1)
    log.flush()
    disk.crash(Crash.PROCESS)
    again(disk)
    assert disk.read_bytes > 0


def test_a_second_kill_costs_no_more(disk: Counting) -> None:
    store = flushed(disk, [600])
    append(store.logs[TP], 10, 2)
    for _ in range(3):
        disk.crash(Crash.PROCESS)
        disk.read_bytes = 0
        open_store(disk, LARGE)
        assert disk.read_bytes < 80 * BATCH_BYTES


@pytest.mark.parametrize("why", ["power", "no index", "rotten index", "rotten batch before it"])
def test_the_whole_segment_is_read_where_it_must_be(disk: Counting, why: str) -> None:
    store = flushed(disk, [600])
    log = store.logs[TP]
    append(log, 10, 2)
    path, index_path = log.segments[0].path, log.segments[0].index_path
    disk.crash(Crash.PROCESS)
    if why == "power":
        disk._boot += 1  # everything happens to be there
    elif why == "no index":
        disk.remove(index_path)
    elif why == "rotten index":
        disk.flip_bit(index_path, 50)
    elif why == "rotten batch before it":
        disk.flip_bit(path, 600 * BATCH_BYTES - 2)
        assert "had been synced" in str(open_store(disk, LARGE).logs[TP].damage)
        return
    again(disk)
    assert disk.read_bytes >= 600 * BATCH_BYTES


def test_epochs_that_the_journal_lacks_are_read_again(disk: Counting) -> None:
    store = flushed(disk, [300])
    append(store.logs[TP], 300, 2)
    store.logs[TP].flush()
    store.checkpoint({TP: 600})
    disk.crash(Crash.PROCESS)
    journal = "/data/broker-1/leader-epoch-journal"
    disk.overwrite(journal, b"".join(disk.read(journal).splitlines(keepends=True)[:-1]))
    assert [e.leader_epoch for e in again(disk).epochs.entries] == [1, 2]


def test_a_cut_leaves_no_index_of_what_was_cut(disk: Counting) -> None:
    """Another history is written to the place of the old one, with batches that begin elsewhere."""
    rand = random.Random(7)
    for _ in range(30):
        disk = Counting()
        store = flushed(disk, [rand.randrange(1, 60) for _ in range(3)])
        log = store.logs[TP]
        log.truncate_to(rand.randrange(log.log_end_offset))
        for _ in range(rand.randrange(3)):
            lead(log, batch(*[b"w" * rand.randrange(1, 90)] * rand.randrange(1, 4)), 2)
        if rand.randrange(2):
            log.flush()
            store.checkpoint({TP: 0})
        lead(log, batch(b"tail"), 3)
        disk.crash(Crash.PROCESS)
        again(disk)


def test_a_log_on_a_full_disk_is_opened_without_caches(disk: Counting) -> None:
    flushed(disk, [600])
    disk.crash(Crash.PROCESS)
    disk.fail("create", 28, path=".index", times=100)
    assert again(disk).log_end_offset == 600
