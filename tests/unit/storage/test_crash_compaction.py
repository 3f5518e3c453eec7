"""The exhaustive crash test of a compaction (reliability 8.2): cut off after every single call to the disk, and for each cut
every legal loss of power. Everything was synced before, so the log must come back whole: with the segments of before or
with those of after, in the order in which they were put in place, and nothing else in its folder."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from helpers.batches import batch
from helpers.compacted import begun_swap, compact, keyed
from helpers.logs import ROOT, TOPIC_ID, TP, contents, follow, lead, open_store, rebuilt_epochs, unseen
from tidelog.storage.log_context import LogConfig
from tidelog.testing.disk import Crash, PowerCut, SimDisk

pytestmark = pytest.mark.timeout(600)  # every cut is tried, which only computes, and a machine may have much else to do

CONFIG = LogConfig(segment_bytes=170, index_interval_bytes=100)
"""Two batches a segment."""


class Story:
    """A log with three closed segments, all durable; then `tell`, cut off after so many `calls`."""

    def __init__(self, tell: Callable[["Story"], None], calls: int | None) -> None:
        self.disk = SimDisk()
        self.store = open_store(self.disk, CONFIG)
        self.store.registered(broker_epoch=5)
        self.log = self.store.create(TP, TOPIC_ID)
        for value in range(7):
            lead(self.log, keyed((b"k%d" % (value % 2), b"%d" % value)), epoch=value // 3)
        self.log.flush()
        self.store.checkpoint({TP: self.log.log_end_offset})
        self.disk.sync_dir(ROOT)
        self.states = [self._held()]
        """Everything the log was to hold, oldest first."""
        self.synced = 0
        """The oldest of them that may come back."""
        self._calls = calls
        self._begun = 0
        try:
            tell(self)
        except PowerCut:
            pass
        self.calls = len(self.disk.trace) - self._begun

    def begins_here(self) -> None:
        """What was told so far is not cut off, and has long been on the device."""
        for entry in self.disk.list_dir(self.log.folder):
            self.disk.open(f"{self.log.folder}/{entry.name}").sync()
        self.disk.sync_dir(self.log.folder)
        self._begun = len(self.disk.trace)
        self.disk.stop_after = None if self._calls is None else self._begun + self._calls

    def _held(self) -> bytes:
        self.log._tail.clear()
        self.disk.observed = True
        data = contents(self.log)
        self.disk.observed = False
        return data

    def noted(self) -> None:
        self.states.append(self._held())

    def lead(self, records: bytes) -> None:
        lead(self.log, records, 7)
        self.noted()

    def flush(self) -> None:
        self.log.flush()
        self.synced = len(self.states) - 1

    def compact(self) -> None:
        compact(self.log, self.disk, after=self.noted)


def tell_one_pass(story: Story) -> None:
    story.begins_here()
    story.compact()


def tell_a_second_pass(story: Story) -> None:
    story.compact()
    story.lead(keyed((b"k0", b"z"), (b"k1", b"z" * 200)))
    story.lead(keyed((b"k2", b"z" * 200)))
    story.flush()
    story.begins_here()
    story.compact()


def tell_a_cut_before_the_swap(story: Story) -> None:
    swap = begun_swap(story.log, story.disk)
    swap.sync()
    # A start puts the new file in place; the log itself still reads the old ones.
    story.states += [Story(tell_one_pass, None).states[-1], story.states[0]]
    story.begins_here()
    _cut_and_go_on(story)


def tell_a_cut_in_the_middle_of_a_swap(story: Story) -> None:
    swap = begun_swap(story.log, story.disk)
    swap.sync()
    story.begins_here()
    assert swap.install()
    story.noted()
    _cut_and_go_on(story)


def _cut_and_go_on(story: Story) -> None:
    """As a replica does that was elected uncleanly, or whose damage is thrown away."""
    story.log.truncate_to(4)
    story.noted()
    follow(story.log, batch(b"again"), 9)
    story.noted()
    story.flush()


STORIES = [tell_one_pass, tell_a_second_pass, tell_a_cut_before_the_swap, tell_a_cut_in_the_middle_of_a_swap]


def losses(disk: SimDisk, seen: set[object]) -> Iterator[SimDisk]:
    """The host after every legal loss that leaves other files than any before."""
    for loss in disk.losses(lambda size: (1, size // 2), holes=True, distinct=True):
        if unseen(disk, seen, loss=loss):
            yield disk.after(loss)


def check(disk: SimDisk, allowed: list[bytes]) -> None:
    """`allowed`: one of these states, or what is between two of them of which the later one was cut off the other."""
    store = open_store(disk, CONFIG)
    log = store.logs[TP]
    assert log.failure is None, log.failure
    held = contents(log)
    cut = any(a.startswith(held) and held.startswith(b) for a, b in pairwise(allowed) if a.startswith(b))
    assert held in allowed or cut, (len(held), [len(state) for state in allowed])
    assert rebuilt_epochs(held) == [e for e in log.epochs.entries if e.start_offset < log.log_end_offset]
    ends = [max((h.end_offset for _, h in segment.walk(0)), default=segment.base_offset) for segment in log.segments]
    assert ends[:-1] == [segment.base_offset for segment in log.segments[1:]], "an old segment beside the new one"
    left = {entry.name.rpartition(".")[2] for entry in disk.list_dir(log.folder)}
    assert left <= {"log", "index", "snapshot", "topic"}, left
    lead(log, keyed((b"k0", b"new")), log.latest_epoch + 1)
    after = contents(log)
    assert after.startswith(held) and len(after) > len(held)
    store.abandon()
    disk.crash(Crash.PROCESS)
    if unseen(disk, _REOPENED, expected=after):
        again = open_store(disk, CONFIG).logs[TP]
        assert again.failure is None, again.failure
        assert contents(again) == after


_REOPENED: set[object] = set()
"""Files from which this log was read. Most recoveries end in the same few, and a start knows nothing else."""


@pytest.mark.parametrize("tell", STORIES)
def test_every_cut_and_every_loss(tell: Callable[[Story], None]) -> None:
    whole = Story(tell, None)
    tried, promise, seen = 0, None, set[object]()
    for cut in range(whole.calls + 1):
        story = Story(tell, cut)
        allowed = whole.states[story.synced : len(story.states) + 1]  # the next one may be there, and not be noted yet
        if promise != (promise := (story.synced, len(story.states))):
            seen = set()
        for lost in losses(story.disk, seen):
            check(lost, allowed)
            tried += 1
        story.disk.crash(Crash.PROCESS)
        check(story.disk, allowed)
    assert tried > whole.calls // 2, tried


def test_a_second_crash_while_the_first_is_mended() -> None:
    """Files that have come about before are not tried again: what may come back is always the same."""
    whole = Story(tell_one_pass, None)
    begun, killed, seen = set[object](), set[object](), set[object]()
    for cut in range(whole.calls + 1):
        story = Story(tell_one_pass, cut)
        found = list(story.disk.losses(lambda _size: ()))
        for loss in {0: found[0], 1: found[len(found) // 2], 2: found[-1]}.values():
            if not unseen(story.disk, begun, loss=loss):
                continue
            mended = story.disk.after(loss)
            open_store(mended, CONFIG)
            for second in range(len(mended.trace)):
                crashed = story.disk.after(loss)
                crashed.stop_after = second
                with pytest.raises(PowerCut):
                    open_store(crashed, CONFIG)
                crashed.stop_after = None
                for lost in losses(crashed, seen):
                    check(lost, whole.states)
                crashed.crash(Crash.PROCESS)
                if unseen(crashed, killed):
                    check(crashed, whole.states)


def test_a_new_file_that_is_released_before_its_swap_has_ended_does_not_stay() -> None:
    def release(story: Story) -> None:
        swap = begun_swap(story.log, story.disk)
        swap.sync()
        assert swap.install()
        story.log.move_log_start(6)
        story.store.checkpoint({TP: story.log.log_end_offset})
        assert len(story.log.release_below(6)) == 1

    story = Story(release, None)
    folder = story.log.folder
    assert [e.name for e in story.disk.list_dir(folder) if ".swap" in e.name and e.name.endswith(".deleted")]
    story.disk.crash(Crash.PROCESS)
    log = open_store(story.disk, CONFIG).logs[TP]
    assert log.failure is None and (log.log_start_offset, log.log_end_offset) == (6, 7)
    assert not [e.name for e in story.disk.list_dir(folder) if e.name.endswith((".swap", ".deleted"))]
