"""The log against a slow model: a list of batches, under appends, cuts, flushes, kills, losses of power and failing disks."""

import errno
import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from helpers.batches import batch, placed
from helpers.logs import TOPIC_ID, TP, contents, follow, lead, open_store, rebuilt_epochs
from tidelog.errors import ErrorCode, TidelogError
from tidelog.storage.log_store import LogStore
from tidelog.storage.partition_log import PartitionLog
from tidelog.testing.disk import Crash, SimDisk
from tidelog.wire.batch import iter_batches

VALUES = st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=3)


class LogMachine(RuleBasedStateMachine):
    """`held` is every batch in order, with its end offset; `synced` counts those that must survive anything."""

    disk: SimDisk
    store: LogStore
    log: PartitionLog

    @initialize()
    def start(self) -> None:
        self.disk = SimDisk()
        self.held: list[tuple[bytes, int]] = []
        self.synced = 0
        self.epoch = 0
        self._open()

    def _open(self) -> None:
        self.store = open_store(self.disk)
        self.log = self.store.logs.get(TP) or self.store.create(TP, TOPIC_ID)
        assert self.log.failure is None, self.log.failure

    @property
    def end(self) -> int:
        return self.held[-1][1] if self.held else 0

    def _append(self, values: list[bytes], how: object) -> None:
        data = batch(*values)
        held = (placed(data, self.end, self.epoch), self.end + len(values))
        how(self.log, data, self.epoch)  # type: ignore[operator]
        self.held.append(held)

    @rule(values=VALUES, news=st.booleans())
    def lead(self, values: list[bytes], news: bool) -> None:
        self.epoch += news
        self._append(values, lead)

    @rule(values=VALUES, news=st.booleans())
    def follow(self, values: list[bytes], news: bool) -> None:
        self.epoch += news
        self._append(values, follow)

    @rule()
    def assign_epoch(self) -> None:
        self.epoch += 1
        self.log.assign_epoch(self.epoch, self.end)

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        to = max(0, self.end - back)
        self.held = [(data, end) for data, end in self.held if end <= to]
        self.synced = min(self.synced, len(self.held))
        assert self.log.truncate_to(to) == self.end

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.synced = len(self.held)

    @rule(back=st.integers(0, 5))
    def checkpoint(self, back: int) -> None:
        self.store.checkpoint({TP: max(0, self.end - back)})

    @rule()
    def forget_memory_and_indexes(self) -> None:
        self.log._tail.clear()
        for segment in self.log.segments:
            segment.drop_index_file()
            segment.forget_index()

    @rule()
    def clean_restart(self) -> None:
        assert self.store.close({TP: self.end}, 1)
        self.synced = len(self.held)
        self._open()
        assert self.store.data_dir.was_clean

    @rule()
    def kill(self) -> None:
        self.disk.crash(Crash.PROCESS)
        self._open()

    @rule(seed=st.integers(0, 2**32), drop=st.booleans())
    def lose_power(self, seed: int, drop: bool) -> None:
        self.disk.crash(Crash.DROP_UNSYNCED if drop else Crash.KEEP_SOME, random.Random(seed))
        self._open()
        left = sum(1 for _ in iter_batches(contents(self.log)))
        survivors, self.held = self.held, self.held[:left]
        assert left >= self.synced, "a synced batch is missing"
        if contents(self.log) != b"".join(data for data, _ in self.held):
            # What had been cut off came back, since the cut was not synced; never mixed with what was written after it.
            records = contents(self.log)
            assert records.startswith(b"".join(data for data, _ in survivors[: self.synced]))
            self.held = [(records[at : at + h.size_bytes], h.end_offset) for at, h in iter_batches(records)]
        self.synced = min(self.synced, len(self.held))
        self.epoch = max(self.epoch, self.log.latest_epoch)

    @precondition(lambda self: self.held)
    @rule(values=VALUES, kept=st.integers(0, 70), error=st.sampled_from([errno.EIO, errno.ENOSPC]))
    def failing_append(self, values: list[bytes], kept: int, error: int) -> None:
        self.disk.fail("append", error, path=".log", kept_bytes=kept)
        try:
            lead(self.log, batch(*values), self.epoch)
        except TidelogError as refused:
            assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR
        else:
            raise AssertionError("the append should have failed")
        self.log = self.store.reopen(TP)

    @invariant()
    def same_bytes(self) -> None:
        held = contents(self.log)
        assert held == b"".join(data for data, _ in self.held)
        assert (self.log.log_end_offset, self.log.size_bytes) == (self.end, len(held))
        assert self.log.recovery_point <= self.end
        entries = [e for e in self.log.epochs.entries if e.start_offset < self.end]
        assert entries == rebuilt_epochs(held), "I7"


LogMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
TestLogModel = LogMachine.TestCase


def test_a_failed_append_does_not_come_back() -> None:
    """It was cut off before the segment was closed."""
    for seed in range(20):
        machine = LogMachine()
        machine.start()
        machine.follow(news=False, values=[b"first" * 10])
        machine.clean_restart()
        machine.failing_append(error=errno.EIO, kept=1, values=[b"x"])
        machine.follow(news=False, values=[b"second" * 20])
        machine.lose_power(drop=False, seed=seed)
        machine.same_bytes()
