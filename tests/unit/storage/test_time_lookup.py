"""Offsets by time: the answers are those of a slow walk over all headers, with and without the index (reliability 8.1)."""

import random
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.batches import batch, patched, placed
from helpers.logs import SMALL, TOPIC_ID, TP, follow, lead, new_log, open_store
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.time_lookup import TimestampOffset
from tidelog.testing.disk import Crash, SimDisk

MAX_TIMESTAMP_AT, BASE_TIMESTAMP_AT = 35, 27
LARGEST = 2**63 - 1


class Row(NamedTuple):
    """One batch as its header tells."""

    base: int
    end: int
    latest: int
    epoch: int


def stamped(count: int, base_timestamp: int, latest: int) -> bytes:
    """A batch whose header says whatever it likes of its times."""
    data = batch(*[b"v" * 20] * count)
    return patched(patched(data, BASE_TIMESTAMP_AT, ">q", base_timestamp), MAX_TIMESTAMP_AT, ">q", latest)


def by_walking(rows: list[Row], timestamp: int, end: int) -> TimestampOffset | None:
    first = next((r for r in rows if r.latest >= timestamp), None)
    return TimestampOffset(first.base, first.latest, first.epoch) if first and first.end <= end else None


def largest_by_walking(rows: list[Row], end: int) -> TimestampOffset | None:
    latest = max((r.latest for r in rows if r.end <= end), default=-1)
    return by_walking(rows, latest, end) if latest >= 0 else None


TIMES = st.one_of(st.integers(-1, 40), st.sampled_from([LARGEST, LARGEST - 1, 2**31, 2**32]))
BATCHES = st.lists(st.tuples(st.integers(1, 3), TIMES), max_size=25)
DEEDS = st.sampled_from(["nothing", "no index", "bad index", "killed", "clean stop", "power lost"])


def after(deed: str, disk: SimDisk, log: PartitionLog, seed: int) -> PartitionLog:
    """The same log after the deed; what is in memory of the index is gone in every case but the first."""
    if deed == "nothing":
        return log
    store = log._context.owner
    for segment in log.segments:
        segment.save_index()
    if deed == "power lost":
        log.flush()
        store.checkpoint({TP: log.log_end_offset})  # type: ignore[attr-defined]
        disk.crash(Crash.KEEP_SOME, random.Random(seed))
    elif deed == "clean stop":
        assert store.close({TP: log.log_end_offset}, 1)  # type: ignore[attr-defined]
    else:
        disk.crash(Crash.PROCESS)
    paths = [segment.index_path for segment in log.segments if disk.kind(segment.index_path) is not None]
    if deed == "bad index":
        for path in paths:
            data = bytearray(disk.read(path))
            data[seed % len(data)] ^= 0x10
            disk.remove(path)
            file = disk.open(path, create=True)
            file.append([bytes(data)])
            file.close()
    elif deed == "no index":
        for path in paths:
            disk.remove(path)
    again = open_store(disk, SMALL)
    return again.logs.get(TP) or again.create(TP, TOPIC_ID)  # the names of an empty log may go with the power


@settings(max_examples=150, deadline=None)
@given(BATCHES, DEEDS, st.integers(0, 10**6), st.integers(0, 60), st.data())
def test_answers_by_time_are_those_of_a_walk_with_the_index_or_without(
    batches: list[tuple[int, int]], deed: str, seed: int, cut: int, data: st.DataObject
) -> None:
    disk = SimDisk()
    log = new_log(SMALL, disk)
    rows: list[Row] = []
    for number, (count, latest) in enumerate(batches):
        epoch, base = number // 4, log.log_end_offset
        follow(log, stamped(count, min(latest, 0), latest), epoch)
        rows.append(Row(base, base + count, latest, epoch))
    if cut < log.log_end_offset:
        end = log.truncate_to(cut)
        rows = [row for row in rows if row.end <= end]
    log = after(deed, disk, log, seed)
    assert log.log_end_offset == (rows[-1].end if rows else 0)
    ends = sorted({0, *(row.end for row in rows)})
    for end in (ends[-1], data.draw(st.sampled_from(ends)), data.draw(st.integers(0, ends[-1]))):
        for timestamp in {0, *(t + d for _, t in batches for d in (0, 1) if 0 <= t + d <= LARGEST)}:
            assert log.offset_for_timestamp(timestamp, end) == by_walking(rows, timestamp, end)
        assert log.offset_of_max_timestamp(end) == largest_by_walking(rows, end)


def test_a_leaders_own_appends_are_found_at_once() -> None:
    log = new_log()
    for latest in (5, 3, 9):
        lead(log, stamped(2, 0, latest), 1)
    assert log.offset_for_timestamp(4, 6) == TimestampOffset(0, 5, 1)
    assert log.offset_for_timestamp(6, 6) == TimestampOffset(4, 9, 1)
    assert log.offset_for_timestamp(10, 6) is None
    # Not yet committed: as if it were not there.
    assert log.offset_for_timestamp(6, 4) is None
    assert log.offset_of_max_timestamp(4) == TimestampOffset(0, 5, 1)
    assert log.offset_of_max_timestamp(5) == TimestampOffset(0, 5, 1)
    assert log.offset_of_max_timestamp(1) is None


def test_a_negative_time_in_a_header_is_no_time() -> None:
    """A leader refuses such a batch from a client; a follower takes what its leader has."""
    log = new_log()
    follow(log, stamped(1, -(2**63), -(2**63)), 0)
    follow(log, placed(stamped(1, -5, -5), 0, 0), 0)
    assert log.offset_of_max_timestamp(2) is None
    assert log.offset_for_timestamp(0, 2) is None
