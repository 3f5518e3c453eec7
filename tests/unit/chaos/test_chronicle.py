"""The history of a run holds more of an operation than its client was told."""

from pathlib import Path

import pytest

from tidelog.chaos.chronicle import Chronicle
from tidelog.chaos.history import HistoryReader, Sent
from tidelog.client.errors import DeliveryError
from tidelog.client.producer import RecordMetadata
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.runtime.clock import SystemClock


def lost(*, known: bool = False) -> DeliveryError:
    return DeliveryError(TopicPartition("t", 0), "no answer", ErrorCode.REQUEST_TIMED_OUT, outcome_known=known)


def sent(path: Path, *ended: tuple[str, RecordMetadata | None, BaseException | None]) -> list[Sent]:
    with Chronicle(path / "history.jsonl", SystemClock()) as chronicle:
        for number, (acks, metadata, error) in enumerate(ended):
            chronicle.ended(chronicle.tried("p", "t", 0, f"v{number}", acks), acks, metadata, error)
    return [record for record in HistoryReader(path / "history.jsonl") if isinstance(record, Sent)]


def test_records_of_one_batch_in_doubt_have_its_number(tmp_path: Path) -> None:
    first, second, refused = lost(), lost(), lost(known=True)
    found = sent(tmp_path, *(("all", None, error) for error in (first, first, refused, second, TimeoutError(), second)))
    assert [(each.outcome, each.batch) for each in found] == [
        *(("info", 1), ("info", 1), ("fail", None)),
        *(("info", 2), ("info", None), ("info", 2)),
    ]


@pytest.mark.parametrize("acks, told", [("1", 3), ("all", None), ("0", None)])
def test_attempts_are_told_where_one_replica_acknowledges(tmp_path: Path, acks: str, told: int | None) -> None:
    (found,) = sent(tmp_path, (acks, RecordMetadata("t", 0, 5, 0, 4, attempts=3), None))
    assert found.attempts == told


@pytest.mark.parametrize(("size", "told"), [(1, 1), (3, 3), (0, None)])
def test_an_acknowledgement_tells_the_size_of_the_isr(tmp_path: Path, size: int, told: int | None) -> None:
    (found,) = sent(tmp_path, ("all", RecordMetadata("t", 0, 5, 0, 4, isr_size=size), None))
    assert found.isr == told


def test_batches_that_fail_at_the_same_time_keep_their_numbers(tmp_path: Path) -> None:
    one, other = lost(), lost()
    found = sent(tmp_path, *(("all", None, error) for error in (one, other, one, other)))
    assert [each.batch for each in found] == [1, 2, 1, 2]
