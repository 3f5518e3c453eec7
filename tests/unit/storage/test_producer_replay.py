"""HOLE-28: the table that a log comes back with is the one its records tell, after any cut, kill and loss of power."""

import errno
import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from helpers.batches import batch, placed
from helpers.logs import ROOT, TOPIC_ID, TP, contents, follow, lead, new_log, open_store, rebuilt_producers
from helpers.requirements import requirement
from tidelog.storage.log_context import LogConfig
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.producer_snapshot import _facts
from tidelog.testing.disk import Crash, SimDisk
from tidelog.wire.batch import numbered

FOLDER = f"{ROOT}/{TP}"


class ReplayMachine(RuleBasedStateMachine):
    """Small segments, so that snapshots are taken all the time; three producers and batches of none."""

    @initialize()
    def start(self) -> None:
        self.disk = SimDisk()
        self.epoch = 0
        self._open()

    def _open(self) -> None:
        self.store = open_store(self.disk)
        self.log = self.store.logs.get(TP) or self.store.create(TP, TOPIC_ID)
        assert self.log.failure is None, self.log.failure
        self.epoch = max(self.epoch, self.log.latest_epoch) + 1

    @rule(producer_id=st.integers(-1, 2), count=st.integers(1, 3), leads=st.booleans(), bump=st.booleans())
    def append(self, producer_id: int, count: int, leads: bool, bump: bool) -> None:
        data = batch(*[b"v" * 10] * count)
        if producer_id >= 0:
            known = {f.producer_id: f for f in self.log.producers.facts()}.get(producer_id)
            epoch = known.epoch + bump if known else 0
            sequence = known.batches[-1].last_sequence + 1 if known and not bump else 0
            data = numbered(data, producer_id, epoch, sequence)
        (lead if leads else follow)(self.log, data, self.epoch)

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        self.log.truncate_to(max(0, self.log.log_end_offset - back))
        self.epoch += 1

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule()
    def checkpoint(self) -> None:
        self.store.checkpoint({TP: 0})

    @rule(which=st.integers(0, 2), how=st.sampled_from(["delete", "cut", "spoil"]))
    def damage_a_snapshot(self, which: int, how: str) -> None:
        names = sorted(e.name for e in self.disk.list_dir(FOLDER) if e.name.endswith(".snapshot"))
        if which < len(names):
            path = f"{FOLDER}/{names[which]}"
            data = self.disk.read(path)
            self.disk.remove(path)
            if how != "delete":
                spoilt = data[: len(data) // 2] if how == "cut" else data.replace(b"0", b"1", 3)
                file = self.disk.open(path, create=True)
                file.append([spoilt])
                file.close()

    @rule()
    def clean_restart(self) -> None:
        assert self.store.close({TP: self.log.log_end_offset}, 1)
        self._open()

    @rule()
    def kill(self) -> None:
        self.disk.crash(Crash.PROCESS)
        self._open()

    @rule(seed=st.integers(0, 2**32), drop=st.booleans())
    def lose_power(self, seed: int, drop: bool) -> None:
        self.disk.crash(Crash.DROP_UNSYNCED if drop else Crash.KEEP_SOME, random.Random(seed))
        self._open()

    @invariant()
    def the_records_tell_the_same(self) -> None:
        assert sorted(self.log.producers.facts()) == sorted(rebuilt_producers(contents(self.log)))


ReplayMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestReplay = ReplayMachine.TestCase


def snapshots(disk: SimDisk) -> list[str]:
    return sorted(entry.name for entry in disk.list_dir(FOLDER) if "snapshot" in entry.name)


def three_batches(log: PartitionLog) -> None:
    for sequence in range(3):
        lead(log, numbered(batch(b"v" * 100), 1, 0, sequence), 0)


@requirement("A producer batch that is sent again is stored once")
def test_a_snapshot_is_taken_when_a_segment_is_full_and_at_a_clean_stop() -> None:
    disk = SimDisk()
    store = open_store(disk)
    three_batches(store.create(TP, TOPIC_ID))
    assert snapshots(disk) == [f"{1:020d}.snapshot", f"{2:020d}.snapshot"]
    store.close({}, 1)
    assert snapshots(disk)[-1] == f"{3:020d}.snapshot"
    log = open_store(disk).logs[TP]
    assert log.producers.facts() == rebuilt_producers(contents(log))


@requirement("A producer batch that is sent again is stored once")
def test_after_a_clean_stop_the_records_are_not_read_again() -> None:
    disk = SimDisk()
    store = open_store(disk, LogConfig())
    three_batches(store.create(TP, TOPIC_ID))
    store.close({}, 1)
    name = f"{FOLDER}/{3:020d}.snapshot"
    assert disk.kind(name) is not None
    reopened = open_store(disk, LogConfig())
    before = reopened.logs[TP].producers.facts()
    reopened.close({}, 2)
    assert snapshots(disk) == [f"{3:020d}.snapshot"], "nothing new, so nothing is written"
    assert open_store(disk, LogConfig()).logs[TP].producers.facts() == before


@requirement("A producer batch that is sent again is stored once")
@pytest.mark.parametrize("suffix", [".snapshot", ".index"])
def test_a_cache_that_cannot_be_read_takes_no_log(suffix: str) -> None:
    disk = SimDisk()
    store = open_store(disk)
    three_batches(store.create(TP, TOPIC_ID))
    store.close({}, 1)
    disk.fail("read", errno.EIO, path=suffix, times=100)
    disk.fail("open", errno.EIO, path=suffix, times=100)
    disk.fail("remove", errno.EIO, path=suffix, times=100)
    log = open_store(disk).logs[TP]
    assert log.producers.facts() == rebuilt_producers(contents(log))
    assert [log.read(offset, 1, log.log_end_offset)[:8] for offset in range(3)] == [
        offset.to_bytes(8, "big") for offset in range(3)
    ]


@requirement("A producer batch that is sent again is stored once")
def test_a_snapshot_of_records_that_were_cut_off_is_not_believed() -> None:
    disk = SimDisk()
    store = open_store(disk)
    log = store.create(TP, TOPIC_ID)
    three_batches(log)
    stale = disk.read(f"{FOLDER}/{2:020d}.snapshot")
    log.truncate_to(1)
    follow(log, numbered(batch(b"w" * 100), 2, 0, 0), 3)
    disk.crash(Crash.PROCESS)
    # A loss of power may bring a removed name back.
    file = disk.open(f"{FOLDER}/{2:020d}.snapshot", create=True)
    file.append([stale])
    file.close()
    log = open_store(disk).logs[TP]
    assert log.log_end_offset == 2
    assert log.producers.facts() == rebuilt_producers(contents(log))


def test_a_follower_that_starts_anew_forgets_its_producers() -> None:
    log = new_log()
    three_batches(log)
    log.reset_to(50)
    assert log.producers.facts() == []
    follow(log, placed(numbered(batch(b"x"), 1, 0, 7), 50, 0), 1)
    assert [(f.producer_id, f.run) for f in log.producers.facts()] == [(1, 1)]


@pytest.mark.parametrize("text", ["1 0 1", "1 0 1 0,0", "1 0 1 0,0,0,0,0", "x 0 1 0,0,0", "1 0 1" + " 0,0,0" * 6])
def test_a_line_that_is_no_producer_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        _facts(text)
