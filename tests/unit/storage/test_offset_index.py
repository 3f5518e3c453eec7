"""The sparse index is a cache: it may only make a walk shorter."""

from hypothesis import given
from hypothesis import strategies as st

from helpers.requirements import requirement
from tidelog.storage.offset_index import SparseIndex

Batch = tuple[int, int, int]
"""Records, bytes, largest timestamp."""


def build(batches: list[Batch], interval: int) -> tuple[SparseIndex, list[tuple[int, int, int]]]:
    index, rows, offset, position = SparseIndex(interval), [], 0, 0
    for records, size, timestamp in batches:
        index.note(offset, position, timestamp)
        rows.append((offset, position, timestamp))
        offset += records
        position += size
    return index, rows


BATCHES = st.lists(st.tuples(st.integers(1, 5), st.integers(61, 400), st.integers(-1, 50)), max_size=30)


@given(BATCHES, st.integers(1, 500), st.integers(0, 200), st.integers(0, 60))
def test_every_lookup_starts_at_or_before_the_answer(
    batches: list[Batch], interval: int, offset: int, time: int
) -> None:
    index, rows = build(batches, interval)
    holding = max((p for o, p, _ in rows if o <= offset), default=0)
    assert index.below_offset(offset) <= holding
    first = next((p for _, p, t in rows if t >= time), None)
    if first is not None:
        assert index.below_time(time) <= first
    assert index.max_timestamp == max((t for *_, t in rows), default=-1)
    starts = {p for _, p, _ in rows} | {0}
    for position in (offset * 10, 0, 10**6):
        assert index.below_position(position) in starts
        assert index.below_position(position) <= position


@given(BATCHES, st.integers(1, 500), st.integers(0, 30))
def test_cut_and_noted_again_is_as_new(batches: list[Batch], interval: int, keep: int) -> None:
    index, rows = build(batches, interval)
    keep = min(keep, len(rows))
    position = rows[keep][1] if keep < len(rows) else 10**9
    resume = index.cut(position)
    for o, p, t in rows[:keep]:
        if p >= resume:
            index.note(o, p, t)
    fresh, _ = build(batches[:keep], interval)
    assert index.entries() == fresh.entries()
    assert index.max_timestamp == fresh.max_timestamp


@requirement("A flipped bit is never served or replicated")
@given(BATCHES, st.integers(0, 10_000), st.integers(0, 7))
def test_a_file_is_taken_only_if_it_is_whole(batches: list[Batch], at: int, bit: int) -> None:
    index, _ = build(batches, 100)
    data = index.encode(5_000)
    for size_bytes in (5_000, 5_001):
        found = SparseIndex.decode(data, size_bytes, 100)
        assert found is not None
        same, covered = found
        assert same.entries() == index.entries() and same.max_timestamp == index.max_timestamp and covered == 5_000
    assert SparseIndex.decode(data, 4_999, 100) is None
    assert SparseIndex.decode(data[:-1], 5_000, 100) is None
    assert SparseIndex.decode(b"", 5_000, 100) is None
    flipped = bytearray(data)
    flipped[at % len(data)] ^= 1 << bit
    assert SparseIndex.decode(bytes(flipped), 5_000, 100) is None


def test_one_entry_for_every_interval() -> None:
    index, _ = build([(1, 100, t) for t in range(10)], 250)
    assert [(e.base_offset, e.position, e.max_timestamp_before) for e in index.entries()] == [
        (0, 0, -1),
        (3, 300, 2),
        (6, 600, 5),
        (9, 900, 8),
    ]
