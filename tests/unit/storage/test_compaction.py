"""Log compaction: the newest record of each key stays, everything else leaves its offsets (issue 7)."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.batches import headers
from helpers.compacted import HOUR_MS, NOW_MS, RULES, Kept, begun_swap, compact, finished, keyed, read_all
from helpers.logs import TOPIC_ID, TP, contents, follow, lead, open_store, rebuilt_epochs
from helpers.requirements import requirement
from tidelog.storage.compaction import Cleaned, Damage, Source, grouped
from tidelog.storage.log_context import LogConfig
from tidelog.storage.partition_log import PartitionLog
from tidelog.testing.disk import Crash, SimDisk
from tidelog.wire.batch import NO_CRC, Codec, fillers, from_offset, numbered, read_header, sealed

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)


class Bed:
    """A log that is read from disk, and the records that were appended."""

    def __init__(self, config: LogConfig = CONFIG) -> None:
        self.disk = SimDisk()
        self.config = config
        self.store = open_store(self.disk, config)
        self.log = self.store.create(TP, TOPIC_ID)
        self.sent: list[Kept] = []

    def send(
        self, *records: tuple[bytes | None, bytes | None], epoch: int = 0, codec: int = 0, timestamp: int = NOW_MS
    ) -> None:
        base = self.log.log_end_offset
        self.sent += [Kept(base + i, key, value, timestamp + i) for i, (key, value) in enumerate(records)]
        lead(self.log, keyed(*records, codec=codec, timestamp=timestamp), epoch)

    def close_segment(self) -> None:
        """What was sent is in closed segments and durable."""
        self.send((b"-", b"x" * 2 * self.config.segment_bytes), epoch=self.log.latest_epoch)
        self.send((b"+", b"-"), epoch=self.log.latest_epoch)
        self.cold()

    def cold(self) -> None:
        self.log.flush()
        self.log._tail.clear()

    def reopened(self) -> PartitionLog:
        """After a kill of the process."""
        self.store.abandon()
        self.disk.crash(Crash.PROCESS)
        self.store = open_store(self.disk, self.config)
        self.log = self.store.logs[TP]
        assert self.log.failure is None, self.log.failure
        return self.log


def newest(sent: Sequence[Kept], end: int) -> list[Kept]:
    """What a reader should find: below `end` only the newest of each key, above everything."""
    last = {record.key: record.offset for record in sent if record.offset < end}
    return [r for r in sent if r.offset >= end or (r.key is not None and last[r.key] == r.offset)]


def test_the_newest_record_of_each_key_stays_where_it_was() -> None:
    bed = Bed()
    bed.send((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    bed.send((b"a", b"3"), (b"c", b"1"))
    bed.close_segment()
    done = finished(compact(bed.log, bed.disk))
    bed.log._tail.clear()
    assert [(r.offset, r.key, r.value) for r in read_all(bed.log)][:4] == [
        (1, b"b", b"1"),
        (3, b"a", b"3"),
        (4, b"c", b"1"),
        (5, b"-", b"x" * 800),
    ]
    assert done.first_dirty == 6 and done.keyless == 0
    assert bed.log.log_end_offset == 7


def test_a_log_that_was_compacted_has_no_gap_between_its_batches() -> None:
    """A lost piece is still told from a removed one."""
    bed = Bed()
    for value in range(20):
        bed.send((b"a", b"%d" % value), epoch=value // 7)
    bed.close_segment()
    compact(bed.log, bed.disk)
    bed.log._tail.clear()
    found = headers(contents(bed.log))
    assert [h.base_offset for h in found[1:]] == [h.end_offset for h in found[:-1]]
    assert [h.is_filler for h in found] == [True, True, True, False, False, False]
    assert rebuilt_epochs(contents(bed.log)) == list(bed.log.epochs.entries)


def test_segments_that_have_become_small_become_one() -> None:
    bed = Bed()
    for value in range(40):
        bed.send((b"a", b"%d" % value * 20))
    bed.close_segment()
    before = len(bed.log.segments)
    compact(bed.log, bed.disk)
    assert len(bed.log.segments) == 2 < before
    assert not [e.name for e in bed.disk.list_dir(bed.log.folder) if "swap" in e.name or "deleted" in e.name]
    assert bed.log.segments[0].path in bed.disk.image()


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_keeps_its_codec_and_its_times(codec: Codec) -> None:
    bed = Bed()
    bed.send((b"a", b"1" * 50), (b"b", b"2" * 50), (b"c", b"3" * 50), codec=codec, timestamp=NOW_MS - 500)
    bed.send((b"c", b"4"))
    bed.close_segment()
    compact(bed.log, bed.disk)
    bed.log._tail.clear()
    assert read_all(bed.log) == newest(bed.sent, bed.log.log_end_offset - 1)
    first = headers(contents(bed.log))[0]
    assert (first.codec, first.record_count, first.last_offset_delta) == (codec, 2, 2)
    assert (first.base_timestamp, first.max_timestamp) == (NOW_MS - 500, NOW_MS - 499)


def test_a_tombstone_stays_for_its_time_and_goes_then() -> None:
    bed = Bed()
    bed.send((b"a", b"1"), (b"b", b"1"), (b"k", b"1"))
    bed.send((b"a", None), (b"c", b"1"), timestamp=NOW_MS - 7)
    bed.close_segment()
    end = bed.log.log_end_offset - 1
    done = finished(compact(bed.log, bed.disk))
    assert done.next_horizon_ms == NOW_MS + HOUR_MS
    kept = newest(bed.sent, end)
    bed.log._tail.clear()
    assert read_all(bed.log) == kept, "times stay, though the base timestamp says something else now"
    again = compact(bed.log, bed.disk, first_dirty=end, now_ms=NOW_MS + HOUR_MS - 1)
    assert not [step for step in again if isinstance(step, Cleaned)], "nothing to do: nothing is written anew"
    assert finished(again).next_horizon_ms == NOW_MS + HOUR_MS
    last = finished(compact(bed.log, bed.disk, first_dirty=end, now_ms=NOW_MS + HOUR_MS))
    bed.log._tail.clear()
    assert read_all(bed.log) == [r for r in kept if r.value is not None]
    assert last.next_horizon_ms is None


def test_a_tombstone_that_another_replica_has_dated_takes_its_key_with_it() -> None:
    """It may be too old to stay in the very pass that first sees it; what it deletes goes in the same one."""
    bed = Bed()
    bed.send((b"a", b"1"))
    bed.send((b"a", None))
    bed.close_segment()
    compact(bed.log, bed.disk, now_ms=NOW_MS - 2 * HOUR_MS)
    bed.log._tail.clear()
    dated = [d for d in contents_by_batch(bed.log) if read_header(d).delete_horizon_ms is not None]
    other = Bed()
    other.send((b"a", b"1"))
    other.log.append_as_follower(dated[0])
    other.close_segment()
    compact(other.log, other.disk)
    other.log._tail.clear()
    assert b"a" not in {r.key for r in read_all(other.log)}


def contents_by_batch(log: PartitionLog) -> list[bytes]:
    data, out, at = contents(log), [], 0
    while at < len(data):
        out.append(data[at : at + read_header(data, at).size_bytes])
        at += len(out[-1])
    return out


def test_a_record_without_a_key_cannot_stay() -> None:
    bed = Bed()
    bed.send((None, b"1"), (b"a", b"1"))
    bed.close_segment()
    assert finished(compact(bed.log, bed.disk)).keyless == 1
    bed.log._tail.clear()
    assert [r.key for r in read_all(bed.log)] == [b"a", b"-", b"+"]


def test_a_batch_that_cannot_be_read_stays_as_it_is_and_removes_nothing() -> None:
    bed = Bed()
    bed.send((b"a", b"1"))
    whole = keyed((b"a", b"2"), (b"b", b"2"))
    broken = sealed(read_header(whole), whole[61:-1])
    lead(bed.log, broken, 0)
    bed.close_segment()
    assert finished(compact(bed.log, bed.disk)).unreadable == 1
    bed.log._tail.clear()
    kept = contents_by_batch(bed.log)
    assert read_header(kept[0]).record_count == 1
    assert kept[1][61:] == broken[61:]


NARROW = replace(RULES, inflated_bytes_max=100)


def test_no_tombstone_goes_behind_a_batch_that_cannot_be_read() -> None:
    """What it deletes may be in there: a later pass with more memory, and every reader, would find it again."""
    bed = Bed()
    bed.send((b"before", b"1"))
    bed.send((b"before", None))
    bed.send((b"gone", b"x" * 200), codec=1)
    bed.send((b"gone", None))
    bed.close_segment()
    end = bed.log.log_end_offset - 1
    compact(bed.log, bed.disk, rules=NARROW)
    done = finished(compact(bed.log, bed.disk, first_dirty=end, now_ms=NOW_MS + HOUR_MS, rules=NARROW))
    bed.log._tail.clear()
    assert [(r.key, r.value is None) for r in read_all(bed.log)][:2] == [(b"gone", False), (b"gone", True)]
    assert done.unreadable == 1
    assert done.next_horizon_ms is None, "or passes that can drop nothing would follow each other"


def test_a_tombstone_in_a_batch_that_could_not_be_read_when_it_was_cleaned_stays() -> None:
    """No map has ever had its key, so what it deletes is still there."""
    bed = Bed()
    bed.send((b"gone", b"1"))
    bed.send((b"other", b"x" * 200), (b"gone", None), codec=1)
    bed.close_segment()
    end = bed.log.log_end_offset - 1
    compact(bed.log, bed.disk, rules=NARROW)
    for hours in (0, 2):
        done = finished(compact(bed.log, bed.disk, first_dirty=end, now_ms=NOW_MS + hours * HOUR_MS))
        bed.log._tail.clear()
        assert [r.value is None for r in read_all(bed.log) if r.key == b"gone"] == [False, True]
        assert done.next_horizon_ms is None


def test_a_batch_with_a_wrong_crc_ends_the_pass_and_gets_no_new_one() -> None:
    bed = Bed()
    bed.send((b"a", b"1"))
    bed.send((b"a", b"2"))
    bed.close_segment()
    size = len(contents_by_batch(bed.log)[0])
    bed.disk.flip_bit(bed.log.segments[0].path, size + 63)
    before = bed.disk.image()
    (damage,) = compact(bed.log, bed.disk)
    assert isinstance(damage, Damage) and (damage.offset, damage.position) == (1, size)
    assert bed.disk.image() == before, "nothing of a broken-off pass is left"


def test_a_full_map_ends_the_dirty_part_early_and_the_next_pass_goes_on() -> None:
    bed = Bed()
    for value in range(30):
        bed.send((b"%d" % (value % 10), b"%d" % value))
    bed.close_segment()
    end = bed.log.log_end_offset - 1
    rules = replace(RULES, keys_max=4)
    first_dirty, passes = 0, 0
    while first_dirty < end:
        done = finished(compact(bed.log, bed.disk, first_dirty=first_dirty, rules=rules))
        assert done.first_dirty > first_dirty
        first_dirty, passes = done.first_dirty, passes + 1
    assert passes > 2
    bed.log._tail.clear()
    assert read_all(bed.log) == newest(bed.sent, end)


@requirement("A producer batch that is sent again is stored once")
def test_the_last_batches_of_each_producer_stay_without_their_records() -> None:
    bed = Bed()
    for sequence in range(8):
        lead(bed.log, numbered(keyed((b"a", b"%d" % sequence)), 7, 0, sequence), 0)
    lead(bed.log, numbered(keyed((b"a", b"x")), 8, 0, 0), 0)
    bed.close_segment()
    before = {f.producer_id: f for f in bed.log.producers.facts()}
    compact(bed.log, bed.disk, producers=[7])
    after = {f.producer_id: f for f in bed.reopened().producers.facts()}
    assert after[7].batches == before[7].batches and after[7].epoch == before[7].epoch
    kept = [h for h in headers(contents(bed.log)) if h.producer_id == 7]
    assert [(h.base_sequence, h.record_count) for h in kept] == [(s, 0) for s in range(3, 8)]
    bed.close_segment()
    compact(bed.log, bed.disk, producers=[])
    bed.log._tail.clear()
    assert not [h for h in headers(contents(bed.log)) if h.producer_id == 7], "forgotten, and nothing is left of it"


def test_a_log_that_was_cut_meanwhile_takes_nothing() -> None:
    bed = Bed()
    for value in range(20):
        bed.send((b"a", b"%d" % value))
    bed.close_segment()

    def cut_and_grow() -> None:
        end = bed.log.log_end_offset
        bed.log.truncate_to(2)
        while bed.log.log_end_offset < end:
            bed.send((b"a", b"again"))
        bed.cold()

    compact(bed.log, bed.disk, meanwhile=cut_and_grow)
    assert [r.value for r in read_all(bed.log)][2:] == [b"again"] * (bed.log.log_end_offset - 2)


@pytest.mark.parametrize("stage", ["begun", "installed"])
def test_a_cut_in_the_middle_of_a_swap_leaves_nothing_of_it(stage: str) -> None:
    bed = Bed()
    for value in range(20):
        bed.send((b"a", b"%d" % value))
    bed.close_segment()
    swap = begun_swap(bed.log, bed.disk)
    swap.sync()
    if stage == "installed":
        assert swap.install()
    bed.log.truncate_to(3)
    assert not swap.install()
    assert not swap.end()
    end = bed.log.log_end_offset
    assert end in (0, 3)
    lead(bed.log, keyed((b"z", b"1")), 1)
    bed.cold()
    held = contents(bed.log)
    assert contents(bed.reopened()) == held


def test_the_next_pass_removes_what_a_killed_one_has_left() -> None:
    bed = Bed()
    for value in range(20):
        bed.send((b"a", b"%d" % value))
    bed.close_segment()
    left = bed.log.segments[0].path + ".cleaned"
    bed.disk.overwrite(left, b"half a batch")
    compact(bed.log, bed.disk)
    assert left not in bed.disk.image()
    bed.disk.overwrite(left, b"half a batch")
    bed.reopened()
    assert left not in bed.disk.image()


def test_a_follower_in_the_middle_of_a_filler_gets_its_own_part_of_it() -> None:
    records = b"".join(fillers(10, 20, 3)) + b"".join(fillers(20, 22, 4))
    part = from_offset(records, 15)
    assert [(h.base_offset, h.end_offset, h.leader_epoch) for h in headers(part)] == [(15, 20, 3), (20, 22, 4)]
    assert from_offset(records, 10) is records
    log = Bed().log
    for _ in range(15):
        follow(log, keyed((b"a", b"1")), 3)
    log.append_as_follower(part)
    assert log.log_end_offset == 22


def test_a_run_of_more_offsets_than_one_filler_can_hold() -> None:
    found = headers(b"".join(fillers(0, 2**32 + 5, 1)))
    assert [(h.base_offset, h.end_offset) for h in found] == [(0, 2**31), (2**31, 2**32), (2**32, 2**32 + 5)]


def test_neighbours_are_grouped_up_to_the_size_of_a_segment() -> None:
    sources = [Source(i, i + 1, size) for i, size in enumerate((300, 100, 1, 500, 10, 10))]
    assert [[s.size_bytes for s in group] for group in grouped(sources, 400)] == [[300, 100], [1], [500], [10, 10]]


T = TypeVar("T")
KEYS = [b"a", b"b", b"c", b"long" * 20, b"", None]
VALUES = st.one_of(st.none(), st.binary(max_size=30))


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[list[tuple[bytes | None, bytes | None]], int, int, bool]]:
    """Batches of (records, codec, producer or -1, whether a new epoch begins)."""
    record = st.tuples(st.sampled_from(KEYS), VALUES)
    one = st.tuples(
        st.lists(record, min_size=1, max_size=6),
        st.sampled_from([0, 0, 1, 4]),
        st.sampled_from([-1, -1, 1, 2]),
        st.booleans(),
    )
    return draw(st.lists(one, min_size=1, max_size=40))


@settings(max_examples=50, deadline=None)
@given(histories(), st.lists(st.integers(0, 3), max_size=3), st.randoms(use_true_random=False))
def test_what_is_left_is_exactly_the_newest_of_each_key(
    history: list[tuple[list[tuple[bytes | None, bytes | None]], int, int, bool]],
    hours: list[int],
    rand: random.Random,
) -> None:
    """Also after several passes with appends between them; every offset can be read from; the log tells the same epochs
    and producers as before; a start finds the same."""
    bed = Bed()
    sequences = {1: 0, 2: 0}
    now, first_dirty, epoch = NOW_MS, 0, 0
    dated: dict[int, int] = {}
    for part in chunked(history, len(hours) + 1):
        for records, codec, producer, begins in part:
            epoch += begins
            base = bed.log.log_end_offset
            bed.sent += [Kept(base + i, key, value, NOW_MS + i) for i, (key, value) in enumerate(records)]
            batch = keyed(*records, codec=codec)
            if producer >= 0:
                batch = numbered(batch, producer, 0, sequences[producer])
                sequences[producer] += len(records)
            lead(bed.log, batch, epoch)
        bed.cold()
        producers, epochs = bed.log.producers.facts(), bed.log.epochs.entries
        steps = compact(bed.log, bed.disk, first_dirty=first_dirty, now_ms=now)
        if steps:
            first_dirty = finished(steps).first_dirty
            bed.sent = left_after(bed.sent, first_dirty, now, dated)
        bed.log._tail.clear()
        assert read_all(bed.log) == bed.sent
        bed.reopened()
        assert read_all(bed.log) == bed.sent
        assert bed.log.epochs.entries == epochs
        assert rebuilt_epochs(contents(bed.log)) == [e for e in epochs if e.start_offset < bed.log.log_end_offset]
        remembered = {f.producer_id: f.batches for f in producers}
        # What a batch was before compaction rewrote it is not known to a table that is made from the log.
        assert {
            f.producer_id: tuple(
                each._replace(crc=was.crc) if each.crc == NO_CRC else each
                for each, was in zip(f.batches, remembered[f.producer_id], strict=True)
            )
            for f in bed.log.producers.facts()
        } == remembered
        start = rand.randrange(bed.log.log_end_offset + 1)
        assert [r for r in read_all(bed.log, start) if r.offset >= start] == [r for r in bed.sent if r.offset >= start]
        now += HOUR_MS // 2 if not hours else hours[0] * HOUR_MS


def left_after(sent: list[Kept], end: int, now: int, dated: dict[int, int]) -> list[Kept]:
    """The model: a tombstone is dated by the pass that first sees it, and dropped by one that comes after its time."""
    kept = [r for r in newest(sent, end) if r.offset >= end or dated.get(r.offset, now + 1) > now]
    dated.update({r.offset: dated.get(r.offset, now + HOUR_MS) for r in kept if r.value is None and r.offset < end})
    return kept


def chunked(items: list[T], parts: int) -> list[list[T]]:
    size = -(-len(items) // parts)
    return [items[at : at + size] for at in range(0, len(items), size)]
