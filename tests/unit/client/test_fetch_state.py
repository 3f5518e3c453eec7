"""What a consumer has fetched: partitions that come, go and pause."""

from helpers.fake_broker import fetch_result
from helpers.fake_log import FakePartition
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


def answer(ask: Ask, count: int = 3) -> m.FetchResult:
    log = FakePartition(1)
    log.append(encode_batch(Record(None, b"%d" % i, (), 1000) for i in range(count)), 10**6)
    return fetch_result(ask_for(ask), high_watermark=log.end, records=b"".join(log.batches))


def placed(*tps: TopicPartition) -> FetchState:
    state = FetchState(partition_bytes=1 << 20, reset="earliest")
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
