"""Rows are cut into record batches by size, in order, and numbered without a gap."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.records import Record, decode_batch
from tidelog.ids import TopicPartition
from tidelog.pipeline.batching import Packer
from tidelog.wire.batch import HEADER_BYTES, Codec, read_header

TP = TopicPartition("t", 0)


def packed(sizes, batch_bytes, **options):
    """The cuts, and the values of each."""
    packer = Packer(batch_bytes, Codec.NONE, **options)
    records = [Record(None, b"%d" % n, (), 1) for n in range(len(sizes))]
    middle = len(records) // 2
    cuts = [
        *packer.add(records[:middle], sizes[:middle]),
        *packer.add(records[middle:], sizes[middle:]),
        *packer.finish(),
    ]
    values = [[int(r.value) for r in decode_batch(TP, cut.records, read_header(cut.records))] for cut in cuts]
    return cuts, values


@given(st.lists(st.integers(1, 200), max_size=40), st.integers(70, 500), st.integers(0, 100))
def test_every_row_is_in_one_batch_in_order_and_no_batch_of_several_is_too_large(sizes, batch_bytes, first):
    cuts, values = packed(sizes, batch_bytes, first=first)
    assert [n for batch in values for n in batch] == list(range(len(sizes)))
    assert [cut.rows for cut in cuts] == [len(batch) for batch in values]
    assert [cut.first for cut in cuts] == [first + batch[0] for batch in values]
    for batch in values:
        assert len(batch) == 1 or HEADER_BYTES + sum(sizes[n] for n in batch) <= batch_bytes


def test_batches_are_filled():
    _, values = packed([100] * 9, HEADER_BYTES + 400)
    assert [len(batch) for batch in values] == [4, 4, 1]


def test_a_rule_may_end_batches_earlier_except_the_last():
    _, values = packed([100] * 9, HEADER_BYTES + 400, end_of=lambda first, fits: first + fits - 1)
    assert [len(batch) for batch in values] == [3, 3, 3]


def test_sequences_begin_anew_after_the_largest():
    cuts, _ = packed([100] * 3, HEADER_BYTES + 100, first=2**31 - 1)
    assert [cut.first for cut in cuts] == [2**31 - 1, 0, 1]


def test_what_waits_can_be_had_before_its_batch_is_full():
    packer = Packer(1000, Codec.NONE, end_of=lambda first, fits: first + fits - 1)
    assert list(packer.add([Record(None, b"x", (), 1)] * 3, [30] * 3)) == [] and packer.held_bytes == 90
    assert [cut.rows for cut in packer.give_up_most()] == [2] and packer.held_bytes == 30
    assert [(cut.first, cut.rows) for cut in packer.finish()] == [(2, 1)] and packer.held_bytes == 0
    assert list(packer.give_up_most()) == []


def test_batches_to_come_can_be_made_smaller_but_not_larger():
    packer = Packer(HEADER_BYTES + 400, Codec.NONE)
    packer.shrink(HEADER_BYTES + 200)
    packer.shrink(HEADER_BYTES + 300)
    cuts = [*packer.add([Record(None, b"x", (), 1)] * 5, [100] * 5), *packer.finish()]
    assert [(cut.rows, cut.bytes_max) for cut in cuts] == [(2, 200), (2, 200), (1, 100)]
