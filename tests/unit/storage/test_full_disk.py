"""A disk that is full to the last byte, with nothing set aside: what a start and retention still do."""

import errno

import pytest

from helpers.batches import batch
from helpers.logs import ROOT, TOPIC_ID, TP, contents, lead, open_store
from tidelog.errors import TidelogError
from tidelog.storage.data_dir import CLEAN_FILE
from tidelog.storage.log_store import LogStore
from tidelog.testing.disk import Crash, SimDisk

A = batch(b"a" * 20)


def filled(disk: SimDisk, count: int = 12) -> LogStore:
    store = open_store(disk)
    store.registered(5)
    log = store.create(TP, TOPIC_ID)
    for _ in range(count):
        lead(log, A, 1)
    log.flush()
    store.checkpoint({TP: count})
    assert len(log.segments) > 2
    return store


def full(disk: SimDisk, *, indexes: bool) -> None:
    if not indexes:
        for entry in disk.list_dir(f"{ROOT}/events-0"):
            if entry.name.endswith(".index"):
                disk.remove(f"{ROOT}/events-0/{entry.name}")
    disk.fill(0)


@pytest.mark.parametrize("indexes", [True, False])
@pytest.mark.parametrize("end", ["clean", "kill", "power"])
def test_a_broker_starts_and_serves_what_it_has(end: str, indexes: bool) -> None:
    disk = SimDisk()
    store = filled(disk)
    before = contents(store.logs[TP])
    if end == "clean":
        assert store.close({TP: 12}, 5)
    disk.crash(Crash.PROCESS)
    if end == "power":
        disk._boot += 1
    full(disk, indexes=indexes)
    for _ in range(2):
        store = open_store(disk)
        assert store.failed == {} and contents(store.logs[TP]) == before
        assert disk.kind(f"{ROOT}/{CLEAN_FILE}") is None, "the next end may not pass for a clean one"
        assert store.intact_since == (None if end == "power" else 5)
        disk.crash(Crash.PROCESS)
    if end == "power" and not indexes:
        assert any("the disk is full" in note for note in store.notes)


def test_after_a_start_that_could_not_be_recorded() -> None:
    """A loss of power goes on counting as one until a checkpoint has been written: the old ones tell of records that it took."""
    disk = SimDisk()
    store = filled(disk)
    for _ in range(2):
        lead(store.logs[TP], A, 1)
    for high_watermark in (14, 13):
        store.checkpoint({TP: high_watermark})
    disk.crash(Crash.DROP_UNSYNCED)
    disk.fail("append", errno.ENOSPC, path="offset-checkpoint", times=1_000)
    for epoch in (9, 10):
        store = open_store(disk)
        assert store.data_dir.power_lost and store.intact_since is None
        assert (store.logs[TP].failure, store.logs[TP].log_end_offset) == (None, 12)
        store.registered(epoch)
        disk.crash(Crash.PROCESS)
    store = open_store(disk)
    store.registered(11)
    disk.mend()
    store.checkpoint({TP: 12})
    disk.crash(Crash.PROCESS)
    store = open_store(disk)
    assert not store.data_dir.power_lost and store.intact_since == 11


def test_retention_frees_a_full_disk() -> None:
    disk = SimDisk()
    filled(disk)
    disk.crash(Crash.PROCESS)
    store = open_store(disk)
    log = store.logs[TP]
    disk.fill(0)
    log.roll()
    log.move_log_start(9)
    for _ in range(2):
        store.checkpoint({TP: 12})
    store.purge()
    assert log.segments[0].base_offset == 9
    lead(log, A, 1)
    disk.crash(Crash.PROCESS)
    log = open_store(disk).logs[TP]
    assert (log.log_start_offset, log.log_end_offset, log.failure) == (9, 13, None)


def test_a_segment_that_cannot_be_made_fences_no_log() -> None:
    """There is no room for its name; what is there is served, and may expire."""
    disk = SimDisk()
    log = filled(disk).logs[TP]
    lead(log, A, 1)
    before = contents(log)
    disk.fail("create", errno.ENOSPC, path=".log")
    assert not log.roll() and log.failure is None and contents(log) == before
    assert log.roll() and log.segments[-1].size_bytes == 0
    disk.fail("create", errno.EIO, path=".log")
    lead(log, A, 1)
    with pytest.raises(TidelogError, match="roll failed"):
        log.roll()
