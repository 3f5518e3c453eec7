"""Indexes of closed segments in memory: so many bytes, and what is not held is read again from its file."""

import errno
from functools import partial

import pytest

from helpers.batches import batch
from helpers.logs import TOPIC_ID, TP, contents, lead, open_store
from tidelog.storage import log_store
from tidelog.storage.index_cache import IndexCache
from tidelog.storage.log_store import LogStore
from tidelog.storage.offset_index import SparseIndex
from tidelog.storage.partition_log import PartitionLog
from tidelog.testing.disk import Crash, SimDisk

A = batch(b"a" * 20, timestamp=7)
BYTES_MAX = 5 * SparseIndex().held_bytes


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_store, "IndexCache", partial(IndexCache, BYTES_MAX))


def filled(store: LogStore, count: int = 60) -> PartitionLog:
    log = store.create(TP, TOPIC_ID)
    for _ in range(count):
        lead(log, A, 0)
    assert len(log.segments) > 10
    return log


def held(log: PartitionLog) -> int:
    """Bytes of what is in memory of closed segments."""
    return sum(segment.index.held_bytes for segment in log.segments[:-1] if segment.knows_index)


def test_a_writer_leaves_few_indexes_in_memory() -> None:
    log = filled(open_store(SimDisk()))
    assert 0 < held(log) <= BYTES_MAX
    assert log.segments[-1].knows_index and not log.segments[0].knows_index


@pytest.mark.parametrize("cache", [".index", ".snapshot"])
def test_a_segment_is_closed_where_no_cache_can_be_saved(cache: str) -> None:
    disk = SimDisk()
    disk.fail("append", errno.ENOSPC, path=cache, times=1_000)
    store = open_store(disk)
    log = filled(store)
    before = contents(log)
    assert store.close({}, 1)
    disk.mend()
    assert contents(open_store(disk).logs[TP]) == before


@pytest.mark.parametrize("lost", ["nothing", "power", "files", "room for files"])
def test_a_reader_leaves_few_indexes_in_memory(lost: str) -> None:
    disk = SimDisk()
    store = open_store(disk)
    before = contents(filled(store))
    disk.crash(Crash.PROCESS)
    if lost == "power":
        disk._boot += 1
    store = open_store(disk)
    log = store.logs[TP]
    log._tail.clear()
    if lost in ("files", "room for files"):
        for segment in log.segments:
            segment.forget_index()
            segment.drop_index_file()
    if lost == "room for files":
        disk.fail("create", errno.ENOSPC, path=".index", times=1_000)
    assert contents(log) == before
    assert held(log) <= BYTES_MAX or lost == "room for files", (
        "without a file it would be read from the segment each time"
    )
    indexes = store._context.indexes
    assert indexes.held_bytes <= BYTES_MAX
    lead(log, A, 0)
    log.flush()
    store.delete(TP)
    assert indexes.held_bytes == 0


def test_the_latest_timestamp_is_known_without_the_index() -> None:
    """Retention asks for it again and again."""
    disk = SimDisk()
    log = filled(open_store(disk))
    disk.fail("read", errno.EIO, path=".index", times=1_000)
    disk.fail("pread", errno.EIO, path=".log", times=1_000)
    assert {segment.latest_timestamp for segment in log.segments} == {7}


def test_a_closed_segment_that_is_written_again_is_not_counted() -> None:
    store = open_store(SimDisk())
    log = filled(store)
    keep = len(log.segments) - 3
    log.truncate_to(log.segments[keep].base_offset + 1)
    counted = store._context.indexes.held_bytes
    assert counted == held(log), "the segment that was cut changes with each append"
    lead(log, A, 0)
    assert contents(log)[-len(A) :] != contents(log)[: len(A)]
    assert store._context.indexes.held_bytes == held(log)


def test_the_index_used_least_recently_goes_first() -> None:
    class One:
        def __init__(self) -> None:
            self.holds = True

        def forget_index(self) -> None:
            self.holds = False

    cache, (a, b, c) = IndexCache(100), (One(), One(), One())
    cache.admit(a, 40)
    cache.admit(b, 40)
    cache.used(a)
    cache.admit(c, 30)
    assert (a.holds, b.holds, c.holds, cache.held_bytes) == (True, False, True, 70)
    cache.admit(a, 60)
    assert (c.holds, cache.held_bytes) == (True, 90), "it has grown"
    cache.admit(b, 500)
    assert (a.holds, c.holds, cache.held_bytes) == (False, False, 500)
    cache.release(b)
    cache.release(a)
    assert cache.held_bytes == 0
