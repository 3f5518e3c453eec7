"""The exhaustive crash test (reliability 8.2).

Each story is cut off after every single call to the disk, and for each cut every legal loss of power is tried: any prefix
of each file's unsynced writes, the last one torn or an earlier one missing, and any of each directory's unsynced names.
The log must open with everything that was synced, nothing that was never written, and go on; also when the recovery itself
is cut off.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache

import pytest

from helpers.batches import batch, placed
from helpers.logs import (
    ROOT,
    TOPIC_ID,
    TP,
    contents,
    follow,
    lead,
    open_store,
    rebuilt_epochs,
    rebuilt_producers,
    unseen,
)
from helpers.requirements import requirement
from tidelog.storage.log_store import LogStore
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.producer_state import ProducerFacts
from tidelog.testing.disk import Crash, PowerCut, SimDisk
from tidelog.wire.batch import NO_CRC, iter_batches, numbered

pytestmark = pytest.mark.timeout(600)  # every cut is tried, which only computes, and a machine may have much else to do

# All of one idempotent producer, so that every story takes and leaves snapshots of its state (HOLE-28).
A, B, C, D = (numbered(batch(c * 20), 1, 0, sequence) for sequence, c in enumerate((b"a", b"b", b"c", b"d")))


class Witness:
    """Runs a story and remembers what the log has held and what was promised to last."""

    def __init__(self, store: LogStore, log: PartitionLog) -> None:
        self.store = store
        self.log = log
        self.states = [b""]
        """Every content the log was asked to have, oldest first."""
        self.synced = 0
        """Everything below this offset of the newest state must survive any loss."""
        self.starts = [0]
        """Where the log was asked to start, ascending: a crash may bring back what a checkpoint did not know to be gone."""
        self.undisturbed = True
        """No call to the disk fails, so that nothing is left undone."""
        self.knows_crcs = True
        """The log tells what producers sent. Without the incarnation file it is not known whether it may."""

    @property
    def promise(self) -> tuple[int, int, int]:
        """Two witnesses of one story with the same promise expect the same of the same files."""
        return self.synced, len(self.states), len(self.starts)

    def has_segments(self, *bases: int) -> None:
        if self.undisturbed:
            assert [segment.base_offset for segment in self.log.segments] == [*bases]

    def lead(self, records: bytes, epoch: int) -> None:
        self._appending(records, epoch, lead)

    def follow(self, records: bytes, epoch: int) -> None:
        self._appending(records, epoch, follow)

    def _appending(self, records: bytes, epoch: int, how: Callable[[PartitionLog, bytes, int], None]) -> None:
        self.states.append(self.states[-1] + placed(records, self.log.log_end_offset, epoch))
        how(self.log, records, epoch)

    def truncate_to(self, offset: int, committed: int = 0) -> None:
        self.synced = min(self.synced, offset)
        kept = (data for data in batches(self.states[-1]) if end_of(data) <= offset)
        self.states.append(b"".join(kept))
        self.log.truncate_to(offset, committed)

    def flush(self) -> None:
        self.log.flush()
        self.synced = self.log.log_end_offset
        assert self.log.recovery_point == self.synced

    def flush_around(self, meanwhile: Callable[[], None]) -> None:
        """A sync beside the event loop: what is done before its end is noted is not covered by it."""
        covered, cuts = self.log.log_end_offset, self.log.cuts
        flush = self.log.begin_flush()
        error = flush.outcome()
        meanwhile()
        self.log.end_flush(flush, error)
        if self.log.cuts == cuts:
            self.synced = covered
        assert self.log.recovery_point <= self.log.log_end_offset, "KAFKA-10101"

    def checkpoint(self) -> None:
        self.store.checkpoint({TP: self.log.log_end_offset})

    def expect_cut(self, offset: int) -> None:
        """Lowers the marks beside the event loop, as before a cut of many logs."""
        assert self.store.marks.expect_cuts({self.log.key: offset})
        self.store.checkpoint({TP: self.log.log_end_offset})
        self.store.sync_names()
        self.store.marks.names_synced()

    def settle(self) -> None:
        """Makes the cut durable beside the event loop, before anything is appended."""
        self.store.marks.cuts_made({self.log.key: 0})
        assert self.log.unsettled
        self.checkpoint()
        self.log.flush()
        self.checkpoint()
        self.store.sync_names()
        self.store.marks.names_synced()
        self.log.checkpointed()
        assert not self.log.unsettled

    def begin_anew(self, offset: int) -> None:
        self.synced = 0
        self.states.append(b"")
        self.starts.append(offset)
        self.log.reset_to(offset)

    def start_at(self, offset: int) -> None:
        self.starts.append(offset)
        self.log.move_log_start(offset)

    def delete_files(self) -> None:
        """The checkpoint that stores the start, the one after which it is durable, and the removal."""
        self.checkpoint()
        self.checkpoint()
        self.store.purge()


@cache
def batches(records: bytes) -> tuple[bytes, ...]:
    return tuple(records[at : at + header.size_bytes] for at, header in iter_batches(records))


@cache
def end_of(records: bytes) -> int:
    return max((header.end_offset for _, header in iter_batches(records)), default=0)


def story_first_append(w: Witness) -> None:
    w.lead(A, 1)
    w.lead(B + B, 1)
    w.flush()
    w.lead(C, 2)


def story_checkpoint_of_unsynced_names(w: Witness) -> None:
    w.lead(A, 1)
    w.checkpoint()
    w.lead(B, 1)


def story_roll(w: Witness) -> None:
    w.lead(A + B, 0)
    w.flush()
    w.lead(C + D, 1)
    w.lead(A, 1)
    w.flush()


def story_roll_unsynced(w: Witness) -> None:
    w.lead(A + B, 0)
    w.lead(C + D, 1)


def story_truncate(w: Witness) -> None:
    w.follow(A, 0)
    w.flush()
    w.follow(B, 1)
    w.truncate_to(1)
    w.follow(C, 2)


def story_truncate_below_the_recovery_point(w: Witness) -> None:
    w.lead(A, 0)
    w.lead(B, 1)
    w.flush()
    w.checkpoint()
    w.truncate_to(1)
    w.follow(C, 3)


def story_truncate_across_segments(w: Witness) -> None:
    w.follow(A + b"", 0)
    w.follow(B, 0)
    w.follow(C, 1)
    w.follow(D, 1)
    w.flush()
    w.truncate_to(1)
    w.follow(D, 2)
    w.follow(C, 2)
    w.follow(B, 2)


def story_cut_below_the_high_watermark(w: Witness) -> None:
    w.follow(A, 0)
    w.follow(B, 0)
    w.follow(C, 1)
    w.follow(D, 1)
    w.flush()
    w.checkpoint()
    w.truncate_to(1, committed=4)
    w.follow(D, 2)


def story_appends_during_a_sync(w: Witness) -> None:
    w.lead(A, 1)
    w.flush_around(lambda: w.lead(B, 1))
    w.checkpoint()
    w.lead(C, 1)


def story_roll_during_a_sync(w: Witness) -> None:
    w.lead(A + B, 0)
    w.flush_around(lambda: w.lead(C + D, 1))
    w.lead(A, 1)
    w.flush()


def story_truncate_during_a_sync(w: Witness) -> None:
    w.follow(A, 0)
    w.follow(B, 0)
    w.flush_around(lambda: w.truncate_to(1))
    w.follow(C, 1)
    w.flush()


def story_retention(w: Witness) -> None:
    w.lead(A + B, 0)
    w.lead(C + D, 1)
    w.flush()
    w.start_at(2)
    w.delete_files()
    w.has_segments(2)
    w.lead(A, 1)


def story_retention_of_everything(w: Witness) -> None:
    w.lead(A, 0)
    w.flush()
    w.log.roll()
    w.start_at(1)
    w.delete_files()
    w.has_segments(1)
    w.lead(B, 2)


def story_records_deleted_before_they_are_synced(w: Witness) -> None:
    w.lead(A + B, 0)
    w.lead(C + D, 0)
    w.start_at(3)
    w.delete_files()
    w.has_segments(0, 2)  # a loss of power may take what is behind
    w.flush()
    w.checkpoint()


def story_begun_anew_after_retention(w: Witness) -> None:
    w.follow(A, 0)
    w.flush()
    w.start_at(1)
    w.checkpoint()
    w.begin_anew(7)
    w.follow(B, 1)


def story_begun_anew_before_an_append(w: Witness) -> None:
    """Everything that waits for the device is done beside the event loop."""
    w.follow(A, 0)
    w.follow(B, 0)
    w.flush()
    w.start_at(1)
    w.checkpoint()
    w.expect_cut(0)
    w.begin_anew(7)
    w.settle()
    w.follow(B, 1)


def story_begun_anew_before_it_began(w: Witness) -> None:
    """After an unclean election the leader's log may begin and end before this one."""
    w.follow(A, 0)
    w.follow(B, 0)
    w.flush()
    w.start_at(2)
    w.checkpoint()
    w.begin_anew(1)
    w.checkpoint()
    w.follow(B, 1)


def story_cut_before_an_append(w: Witness) -> None:
    w.follow(A, 0)
    w.follow(B + C, 0)
    w.follow(D, 1)
    w.flush()
    w.checkpoint()
    w.store.sync_names()
    w.expect_cut(1)
    w.truncate_to(1)
    w.settle()


def story_cut_and_flushed(w: Witness) -> None:
    w.follow(A, 0)
    w.follow(B, 0)
    w.follow(C, 1)
    w.truncate_to(1)
    w.flush()
    w.follow(D, 2)
    w.checkpoint()


def story_clean_stop(w: Witness) -> None:
    w.lead(A, 0)
    w.log.assign_epoch(4, 1)
    w.store.write_epochs()
    w.store.sync_epochs()
    w.lead(B, 4)
    if w.store.close({TP: 2}, broker_epoch=77):
        w.synced = 2
    else:
        assert not w.undisturbed


FROM_UNSYNCED_NAMES = [story_first_append, story_checkpoint_of_unsynced_names]
BESIDE_THE_LOOP = [story_begun_anew_before_an_append, story_cut_before_an_append]
STORIES = [
    *FROM_UNSYNCED_NAMES,
    *BESIDE_THE_LOOP,
    story_roll,
    story_roll_unsynced,
    story_truncate,
    story_truncate_below_the_recovery_point,
    story_truncate_across_segments,
    story_cut_below_the_high_watermark,
    story_appends_during_a_sync,
    story_roll_during_a_sync,
    story_truncate_during_a_sync,
    story_retention,
    story_retention_of_everything,
    story_records_deleted_before_they_are_synced,
    story_begun_anew_after_retention,
    story_begun_anew_before_it_began,
    story_cut_and_flushed,
    story_clean_stop,
]


def few_tears(size: int) -> Iterable[int]:
    return (1, size // 2, size - 1)


def one_tear(size: int) -> Iterable[int]:
    return (size // 2,)


def tears_of(story: Callable[[Witness], None]) -> Callable[[int], Iterable[int]]:
    """Where nothing of two segments is synced, three tears of each write are too many ways to lose them."""
    return one_tear if story is story_records_deleted_before_they_are_synced else few_tears


def told(story: Callable[[Witness], None], calls: int | None) -> tuple[SimDisk, Witness, int]:
    """The story up to `calls` disk calls after the partition was made; and how many there were."""
    disk = SimDisk()
    store = open_store(disk)
    store.registered(broker_epoch=5)
    witness = Witness(store, store.create(TP, TOPIC_ID))
    if story not in FROM_UNSYNCED_NAMES:
        for folder in (ROOT, witness.log.folder):
            disk.sync_dir(folder)
    before = len(disk.trace)
    disk.stop_after = None if calls is None else before + calls
    try:
        story(witness)
    except PowerCut:
        pass
    return disk, witness, len(disk.trace) - before


def check(disk: SimDisk, witness: Witness) -> None:
    """Opens what a crash left, and checks every promise."""
    store = open_store(disk)
    log = store.logs.get(TP) or store.create(TP, TOPIC_ID)
    assert log.failure is None, log.failure
    held, start = contents(log), log.log_start_offset
    assert start in witness.starts, "a start that nobody asked for"
    assert held.startswith(kept(promised(witness), start)), "a synced batch is missing"
    ever = [state for state in witness.states if kept(state, start).startswith(held)]
    assert ever, "a batch that was never there"
    # A leader that wrote nothing may have begun an epoch at the very end (KAFKA-7415); all else comes from the batches.
    told_by_log = [entry for entry in log.epochs.entries if start < entry.start_offset < log.log_end_offset]
    assert told_by_log == [entry for entry in rebuilt_epochs(held) if entry.start_offset > start]
    whole = [b"".join(b for b in batches(state) if end_of(b) <= log.log_end_offset) for state in ever]
    # A snapshot remembers producers whose records are gone: what they repeat is still told from what is new.
    facts = {True: list, False: without_crcs}[witness.knows_crcs]
    assert facts(log.producers.facts()) in [
        facts(rebuilt_producers(each)) for each in (held, *(whole if start else ()))
    ], "HOLE-28"
    assert log.recovery_point <= log.log_end_offset, "KAFKA-10101"
    lead(log, D, log.latest_epoch + 1)
    after = contents(log)
    assert after.startswith(held) and len(after) > len(held)
    store.abandon()
    disk.crash(Crash.PROCESS)
    if unseen(disk, _REOPENED, expected=after):
        again = open_store(disk).logs[TP]
        assert again.failure is None, again.failure
        assert contents(again) == after


_REOPENED: set[object] = set()
"""Files from which this log was read. Most recoveries end in the same few, and a start knows nothing else."""


def without_crcs(facts: Iterable[ProducerFacts]) -> list[ProducerFacts]:
    return [each._replace(batches=tuple(seen._replace(crc=NO_CRC) for seen in each.batches)) for each in facts]


def kept(records: bytes, start: int) -> bytes:
    return b"".join(data for data in batches(records) if end_of(data) > start)


def promised(witness: Witness) -> bytes:
    return b"".join(data for data in batches(witness.states[-1]) if end_of(data) <= witness.synced)


def outcomes(disk: SimDisk, tears: Callable[[int], Iterable[int]], seen: set[object]) -> Iterator[SimDisk]:
    """The host after every legal loss that leaves other files than any before."""
    for loss in disk.losses(tears, holes=True, distinct=True):
        if unseen(disk, seen, loss=loss):
            yield disk.after(loss)


@pytest.mark.exhaustive
@pytest.mark.parametrize("story", STORIES)
def test_every_cut_and_every_loss(story: Callable[[Witness], None]) -> None:
    calls = told(story, None)[2]
    promise, seen, tried = None, set[object](), 0
    for cut in range(calls + 1):
        disk, witness, _ = told(story, cut)
        if promise != (promise := witness.promise):
            seen = set()
        for lost in outcomes(disk, tears_of(story), seen):
            check(lost, witness)
            tried += 1
    assert tried > calls // 2, tried


def test_last_write_torn_at_every_byte() -> None:
    disk, witness, _ = told(story_truncate, None)
    tried = 0
    for lost in outcomes(disk, range, set()):
        check(lost, witness)
        tried += 1
    assert tried > len(A)


@requirement("A crash of the whole cluster loses at most unflushed records")
@pytest.mark.parametrize("story", STORIES)
def test_every_cut_of_a_killed_process_loses_nothing(story: Callable[[Witness], None]) -> None:
    calls = told(story, None)[2]
    for cut in range(calls + 1):
        disk, witness, _ = told(story, cut)
        disk.crash(Crash.PROCESS)
        if story is not story_clean_stop:
            witness.synced = min(end_of(s) for s in witness.states[-2:])  # the last step may or may not have happened
        check(disk, witness)


@pytest.mark.exhaustive
@pytest.mark.parametrize("story", [story for story in STORIES if story not in BESIDE_THE_LOOP])
def test_second_crash_during_recovery(story: Callable[[Witness], None]) -> None:
    """After each cut one worst and one torn outcome; its recovery cut off at every call, with every loss again.

    The stories that are left out leave nothing else to recover. Files that have come about before, with the same promise, are
    not tried again.
    """
    calls = told(story, None)[2]
    promise, begun, killed, seen = None, set[object](), set[object](), set[object]()
    for cut in range(calls + 1):
        disk, witness, _ = told(story, cut)
        if promise != (promise := witness.promise):
            begun, killed, seen = set(), set(), set()
        losses = list(disk.losses(one_tear))
        for loss in {0: losses[0], 1: losses[-1], 2: losses[len(losses) // 2]}.values():
            if not unseen(disk, begun, loss=loss):
                continue
            for second in range(_calls_of_recovery(disk.after(loss))):
                crashed = disk.after(loss)
                crashed.stop_after = second
                with pytest.raises(PowerCut):
                    open_store(crashed)
                crashed.stop_after = None
                for lost in outcomes(crashed, lambda _size: (), seen):
                    check(lost, witness)
                crashed.crash(Crash.PROCESS)
                if unseen(crashed, killed):
                    check(crashed, witness)


def _calls_of_recovery(disk: SimDisk) -> int:
    open_store(disk)
    return len(disk.trace)
