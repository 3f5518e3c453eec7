"""HOLE-28: the table of idempotent producers, by itself."""

import pytest

from helpers.batches import batch, headers
from helpers.requirements import requirement
from tidelog.errors import ErrorCode, TidelogError
from tidelog.storage.producer_state import SEQUENCE_MASK, ProducerLimits, ProducerTable, SeenBatch
from tidelog.wire.batch import NO_CRC, BatchHeader, emptied, numbered, rewritten, validate_produce, with_horizon

P = 7


def header(sequence: int, count: int = 1, epoch: int = 0, producer_id: int = P) -> BatchHeader:
    return headers(numbered(batch(*[b"v"] * count), producer_id, epoch, sequence & SEQUENCE_MASK))[0]


class Log:
    """A table, fed as a leader would."""

    def __init__(self, limits: ProducerLimits | None = None) -> None:
        self.limits = limits or ProducerLimits()
        self.table = ProducerTable(self.limits)
        self.end = 0

    def append(self, sequence: int, count: int = 1, epoch: int = 0, producer_id: int = P) -> SeenBatch | None:
        """None when it was appended; the stored batch, without its CRC, when it was there."""
        new = header(sequence, count, epoch, producer_id)
        seen = self.table.check(new, new.crc)
        if seen is None:
            self.table.note((new,), self.end)
            self.end += count
        return seen and seen._replace(crc=NO_CRC)

    def refusal(self, sequence: int, count: int = 1, epoch: int = 0) -> ErrorCode:
        with pytest.raises(TidelogError) as refused:
            self.append(sequence, count, epoch)
        assert "producer 7" in refused.value.message
        return refused.value.code


@requirement("A producer batch that is sent again is stored once")
def test_a_repeated_batch_is_found_with_its_offset() -> None:
    log = Log()
    log.append(0, 3)
    log.append(3, 2)
    assert log.append(0, 3) == SeenBatch(0, 2, 0)
    assert log.append(3, 2) == SeenBatch(3, 4, 3)
    assert log.append(3, 2).last_offset == 4  # type: ignore[union-attr]
    assert log.end == 5


@requirement("A producer batch that is sent again is stored once")
def test_only_the_last_five_are_found() -> None:
    log = Log()
    for sequence in range(6):
        log.append(sequence)
    assert log.append(1) == SeenBatch(1, 1, 1)
    assert log.refusal(0) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


@requirement("A producer batch that is sent again is stored once")
def test_a_gap_is_refused() -> None:
    log = Log()
    log.append(0, 2)
    assert log.refusal(3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(2) is None


@requirement("A producer batch that is sent again is stored once")
def test_other_borders_than_the_stored_ones_are_no_repetition() -> None:
    log = Log()
    log.append(0, 2)
    log.append(2, 2)
    assert log.refusal(1, 2) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert log.refusal(3, 3) is ErrorCode.UNKNOWN_PRODUCER_ID, "a part of it is not stored"


@requirement("A producer batch that is sent again is stored once")
def test_an_older_epoch_is_fenced_also_with_a_repetition() -> None:
    log = Log()
    log.append(0, epoch=1)
    assert log.refusal(0, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.append(0, epoch=1) == SeenBatch(0, 0, 0)


@requirement("A producer batch that is sent again is stored once")
def test_a_new_epoch_begins_with_0() -> None:
    log = Log()
    log.append(0, 4)
    assert log.refusal(4, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(0, epoch=1) is None
    assert log.append(1, epoch=1) is None
    assert log.refusal(4, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH


@requirement("A producer batch that is sent again is stored once")
def test_an_unknown_producer_may_begin_anywhere() -> None:
    # KIP-360: its earlier records may be gone. What came before is then neither stored for sure nor missing for sure.
    log = Log()
    assert log.append(10) is None
    assert log.refusal(9) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert log.append(10) == SeenBatch(10, 10, 0)
    assert log.append(11) is None


@requirement("A producer batch that is sent again is stored once")
@pytest.mark.parametrize("count", [1, 2, 4])
def test_sequences_wrap(count: int) -> None:
    log = Log()
    first = SEQUENCE_MASK - 1
    log.append(first, count)
    after = (first + count) & SEQUENCE_MASK
    assert log.append(after, 2) is None
    assert log.append(first, count) == SeenBatch(first, (first + count - 1) & SEQUENCE_MASK, 0)
    assert log.append(first, count).last_offset == count - 1  # type: ignore[union-attr]
    assert log.refusal(after + 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for sequence in range(after + 2, after + 7):
        log.append(sequence)
    assert log.refusal(first, count) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_batch_that_was_changed_has_no_crc_of_what_was_sent() -> None:
    sent = header(0, 2)
    assert sent.sent_crc == sent._replace(base_offset=7, leader_epoch=3).sent_crc == sent.crc
    changed = [with_horizon(sent, 5), sent._replace(record_count=1), *headers(emptied(sent))]
    marked = rewritten(validate_produce(batch(b"v"), batch_bytes_max=1000))
    changed += headers(bytes(marked.records))
    assert list(marked.headers) == changed[-1:]
    assert [each.sent_crc for each in changed] == [NO_CRC] * 4


def test_producers_do_not_meet() -> None:
    log = Log()
    log.append(0, producer_id=1)
    log.append(0, producer_id=2)
    assert log.append(1, producer_id=1) is None
    assert log.append(0, producer_id=2) == SeenBatch(0, 0, 1)


def test_batches_without_a_producer_leave_no_trace() -> None:
    log = Log()
    found = headers(batch(b"a", b"b") + numbered(batch(b"c"), P, 0, 0))
    log.table.note(found, 10)
    crc = found[1].crc
    assert [facts.batches for facts in log.table.facts()] == [(SeenBatch(0, 0, 12, crc),)]


def test_silent_producers_expire() -> None:
    log = Log(ProducerLimits(expiration_s=100))
    log.append(0, producer_id=1)
    log.limits.now = 60
    log.append(0, producer_id=2)
    log.append(1, producer_id=1)
    log.limits.now = 161
    log.append(2, producer_id=1)
    log.table.expire()
    assert [facts.producer_id for facts in log.table.facts()] == [1]
    assert log.limits.ids == 1


def test_memory_is_bounded_and_a_crowd_costs_its_own_partition() -> None:
    limits = ProducerLimits(ids_max=10)
    quiet, crowded = Log(limits), Log(limits)
    quiet.append(0, producer_id=1)
    for producer_id in range(100):
        crowded.append(0, producer_id=producer_id)
    assert limits.ids == 10
    assert [f.producer_id for f in crowded.table.facts()] == list(range(91, 100))
    assert quiet.append(0, producer_id=1) == SeenBatch(0, 0, 0)
    crowded.table.clear()
    assert limits.ids == 1
