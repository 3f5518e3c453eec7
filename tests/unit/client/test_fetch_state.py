"""What a consumer has fetched: partitions that come, go and pause."""

import tracemalloc

from helpers.batches import placed as as_stored
from helpers.brokers import fetch_result
from tidelog.client.fetch_state import Ask, FetchState
from tidelog.client.records import Record, encode_batch
from tidelog.ids import BrokerId, TopicPartition
from tidelog.wire import messages as m
from tidelog.wire.batch import HEADER_BYTES, fillers, read_header, sealed

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def asks(state: FetchState) -> list[Ask]:
    wanted = state.wanted(0.0, lambda _: BrokerId(1), lambda _: True, lambda _: b"")
    return [ask for each in wanted.asks.values() for ask in each]


def ask_for(ask: Ask) -> m.FetchPartition:
    return m.FetchPartition(
        topic=ask.tp.topic, partition=ask.tp.partition, leader_epoch=-1, offset=ask.offset,
        last_fetched_epoch=-1, max_bytes=1 << 20,
    )  # fmt: skip


def answer(ask: Ask, count: int = 3, *, batches: int = 1, size: int = 1) -> m.FetchResult:
    batch = encode_batch(Record(None, b"%d" % i * size, (), 1000) for i in range(count))
    records = as_stored(batch * batches, ask.offset, 0)
    return fetch_result(ask_for(ask), high_watermark=ask.offset + batches * count, records=records)


def placed(*tps: TopicPartition, **options: int) -> FetchState:
    state = FetchState(**{"partition_bytes": 1 << 20, "reset": "earliest", **options})  # type: ignore[arg-type]
    for tp in tps:
        state.add(tp)
        state.seek(tp, 0)
    return state


def test_an_answer_to_what_was_asked_before_a_partition_was_given_back_is_void() -> None:
    state = placed(T0)
    (before,) = asks(state)
    state.drop([T0])
    state.add(T0)
    state.seek(T0, 0)
    (after,) = asks(state)
    state.fetched(before, answer(before))
    assert state.take(10) == []
    assert asks(state) == [], "the second one is still on its way"
    state.fetched(after, answer(after))
    assert [r.offset for r in state.take(10)] == [0, 1, 2]


def test_a_paused_partition_is_neither_fetched_nor_handed_out_and_keeps_what_it_has() -> None:
    state = placed(T0, T1)
    for ask in asks(state):
        state.fetched(ask, answer(ask))
    state.pause([T0], True)
    assert state.paused == [T0]
    assert {r.partition for r in state.take(10)} == {1}
    assert [ask.tp for ask in asks(state)] == [T1]
    state.pause([T0], False)
    assert [(r.partition, r.offset) for r in state.take(10)] == [(0, 0), (0, 1), (0, 2)]


def test_a_position_has_left_the_log_only_if_it_was_in_it() -> None:
    state = placed(T0)
    (ask,) = asks(state)
    assert not state.left_log(ask), "whoever named it was wrong from the start"
    state.fetched(ask, answer(ask))
    (ask,) = asks(state)
    assert state.left_log(ask)
    state.seek(T0, 1)
    assert not state.left_log(ask), "it is of an earlier position"


def test_a_partition_is_read_of_the_topic_that_it_was_added_with() -> None:
    state = placed(T1)
    state.add(T0, b"one")
    state.seek(T0, 0)
    wanted = state.wanted(0.0, lambda _: BrokerId(1), lambda _: True, lambda _: b"two")
    assert {ask.tp: ask.topic_id for each in wanted.asks.values() for ask in each} == {T0: b"one", T1: b"two"}
    assert (state.given_topic_id(T0), state.given_topic_id(T1)) == (b"one", b"")


def test_a_position_follows_what_compaction_has_removed() -> None:
    """Or whoever reads up to an end offset would wait for records that are not there."""
    state = placed(T0)
    (ask,) = asks(state)
    kept = encode_batch([Record(b"k", b"1", (), 1000), Record(b"k", b"2", (), 1000)])
    records = sealed(read_header(kept)._replace(last_offset_delta=4), kept[HEADER_BYTES:]) + b"".join(fillers(5, 9, 0))
    state.fetched(ask, fetch_result(ask_for(ask), high_watermark=9, records=records))
    assert [r.offset for r in state.take(1)] == [0]
    assert state.position(T0) == 1
    assert [r.offset for r in state.take(1)] == [1]
    assert state.position(T0) == 5
    assert state.take(1) == []
    assert state.position(T0) == 9


def test_a_batch_is_handed_out_to_its_end_before_another() -> None:
    """One decoded batch at a time is held, and none of the partitions starves."""
    state = placed(T0, T1)
    for _ in range(2):
        for ask in asks(state):
            state.fetched(ask, answer(ask))
    taken = [r.partition for _ in range(6) for r in state.take(1)]
    assert taken == [0, 0, 0, 1, 1, 1]


def full(ask: Ask) -> m.FetchResult:
    """An answer as large as was asked for, in batches of 1 kB."""
    return answer(ask, 1, batches=max(ask.max_bytes // 1100, 1), size=1000)


def test_what_is_fetched_ahead_is_bounded_in_equal_shares() -> None:
    limit = 1 << 20
    tps = [TopicPartition("t", p) for p in range(120)]
    tracemalloc.start()
    try:
        state = placed(*tps, queued_max_bytes=limit)
        before, _ = tracemalloc.get_traced_memory()
        while wanted := asks(state):
            for ask in wanted:
                state.fetched(ask, full(ask))
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert limit / 2 < state.queued_bytes <= limit
    assert held < 2 * limit
    assert {r.partition for r in state.take(10**6)} == set(range(120))
    assert state.queued_bytes == 0


def test_batches_above_their_share_are_fetched_one_a_partition() -> None:
    tps = [TopicPartition("t", p) for p in range(8)]
    state = placed(*tps, queued_max_bytes=8000)
    for _ in range(3):
        for ask in asks(state):
            state.fetched(ask, answer(ask, 1, size=3000))
    assert state.queued_bytes == 8 * answer_bytes(3000)
    state.take(1)
    assert len(asks(state)) == 1, "the one that was read"


def answer_bytes(size: int) -> int:
    return len(encode_batch([Record(None, b"0" * size, (), 1000)]))


def test_an_answer_counts_until_its_last_batch_is_read() -> None:
    state = placed(T0)
    (ask,) = asks(state)
    state.fetched(ask, answer(ask, 2, batches=3))
    counted = state.queued_bytes
    state.take(4)
    assert state.queued_bytes == counted > 0
    state.take(1)
    assert state.queued_bytes == 0
