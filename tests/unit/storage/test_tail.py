"""The tail in memory gives what the disk would give, within its budget."""

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.batches import batch, headers, offsets, placed
from helpers.logs import contents, lead, new_log
from tidelog.storage.log_context import LogConfig
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.tail import Tail, TailBudget, held_bytes
from tidelog.wire.batch import Batches, Buffer, stamp

A = batch(b"a" * 20)
A_HELD = held_bytes([A], len(A))


def test_two_followers_get_the_same_object() -> None:
    log = new_log(LogConfig())
    lead(log, A, 0)
    assert log.read(0, 1 << 20, 1) is log.read(0, 1 << 20, 1)


def test_budget_drops_the_oldest_append_of_any_log() -> None:
    budget = TailBudget(bytes_max=3 * A_HELD, log_bytes_max=2 * A_HELD)
    one, two = Tail(budget), Tail(budget)
    for offset in range(3):
        one.push(offset, offset + 1, [placed(A, offset, 0)], len(A))
    assert one.read(0, 1000, 3, True) is None, "a log's own limit"
    assert one.read(1, 1000, 3, True) is not None
    for offset in range(2):
        two.push(offset, offset + 1, [placed(A, offset, 0)], len(A))
    assert one.read(1, 1000, 3, True) is None, "the limit of all"
    assert offsets(one.read(2, 1000, 3, True) or b"") == [2]
    assert offsets(two.read(0, 1000, 3, True) or b"") == [0, 1]
    one.clear()
    two.clear()
    assert (len(budget._held), budget._bytes) == (0, 0)


def test_an_append_larger_than_the_budget_is_not_kept() -> None:
    tail = Tail(TailBudget(bytes_max=A_HELD - 1, log_bytes_max=A_HELD - 1))
    tail.push(0, 1, [placed(A, 0, 0)], len(A))
    assert tail.read(0, 1000, 1, True) is None


def led(records: bytes, offset: int) -> list[Buffer]:
    return stamp(Batches(records, headers(records)), offset, 1)


def followed(records: bytes, offset: int) -> list[Buffer]:
    return [placed(records, offset, 1)]


@pytest.mark.parametrize("parts_of", [led, followed])
@pytest.mark.parametrize("batches", [1, 5])
@pytest.mark.parametrize("value_bytes", [1, 1000])
def test_the_budget_counts_what_is_held(
    parts_of: Callable[[bytes, int], list[Buffer]], batches: int, value_bytes: int
) -> None:
    budget = TailBudget(bytes_max=2_000_000, log_bytes_max=200_000)
    tails = [Tail(budget) for _ in range(20)]
    records = batch(b"v" * value_bytes) * batches
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for offset in range(0, 20_000, batches):
            parts = parts_of(bytes(bytearray(records)), offset)
            tails[offset // batches % 20].push(offset, offset + batches, parts, len(records))
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 1_000_000 < held < 2_050_000


def filled(groups: list[list[int]]) -> PartitionLog:
    log = new_log(LogConfig(index_interval_bytes=100))
    for group in groups:
        lead(log, b"".join(batch(*[b"v"] * n) for n in group), 0)
    return log


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1, max_size=80),
    st.integers(0, 400),
    st.integers(0, 600),
    st.integers(0, 400),
    st.booleans(),
)
def test_memory_and_disk_agree(groups: list[list[int]], offset: int, bytes_max: int, ahead: int, min_one: bool) -> None:
    log = filled(groups)
    offset %= log.log_end_offset
    from_memory = log.read(offset, bytes_max, offset + ahead, min_one=min_one)
    log._tail.clear()
    assert log.read(offset, bytes_max, offset + ahead, min_one=min_one) == from_memory
    assert len(contents(log)) == log.size_bytes
