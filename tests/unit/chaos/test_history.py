"""What was written is read; what was cut off is read up to there; what is damaged is named."""

from pathlib import Path

import pytest

from tidelog.chaos.history import (
    Committed,
    Crash,
    FaultStep,
    HistoryDamaged,
    HistoryReader,
    HistoryWriter,
    Ownership,
    Phase,
    Polled,
    Position,
    Processed,
    Read,
    Record,
    Send,
    Sent,
    Span,
    Stored,
    Watermark,
    decode,
    encode,
)
from tidelog.ids import TopicPartition

EVERY_KIND: list[Record] = [
    Phase(0.0, "load"),
    Send(0.1, 1, "producer-1", "chaos", 0, "p1-1", "all"),
    Send(0.1, 2, "producer-1", "chaos", 0, "p1-2 \N{SNOWMAN}", "1", op=7),
    Sent(0.2, 1, "ok", 0, leader_epoch=4, isr=3),
    Sent(0.3, 2, "info", error="REQUEST_TIMED_OUT"),
    Ownership(0.4, "assigned", "consumer-1", (TopicPartition("chaos", 0),), "g", 3, 1),
    Polled(0.5, "consumer-1", 3, 0.4, (Read("chaos", 0, ((0, "p1-1"), (1, "p1-2"))),), "g"),
    Processed(0.6, "consumer-1", "g", (Span("chaos", 0, 0, 1),)),
    Committed(0.7, "consumer-1", "g", 3, 1, (Position("chaos", 0, 2),), "ok"),
    Ownership(0.8, "revoked", "consumer-1", (TopicPartition("chaos", 0),), "g"),
    Ownership(0.8, "lost", "consumer-2", ()),
    Crash(0.9, "consumer-1"),
    FaultStep(1.0, "kill", "effect", ("broker-1",), "kill leader of 0", 1),
    Watermark(1.1, "chaos", 0, 1, 4, 120, log_end=125, began=1.05),
    Phase(1.2, "final"),
    Stored(1.2, "g", (Position("chaos", 0, 2),)),
    Polled(1.3, "final-1", 4, 1.2, (Read("chaos", 0, ((0, "p1-1"),)),), final=True),
    Phase(1.4, "end"),
]


def written(path: Path, records: list[Record]) -> Path:
    with HistoryWriter(path) as writer:
        for record in records:
            writer.append(record)
    return path


def test_every_kind_is_read_as_it_was_written(tmp_path: Path) -> None:
    reader = HistoryReader(written(tmp_path / "h", EVERY_KIND))
    assert list(reader) == EVERY_KIND
    assert reader.complete and reader.lines == len(EVERY_KIND)
    assert {type(record) for record in EVERY_KIND} == set(Record.__args__)  # type: ignore[attr-defined]


def test_a_line_is_as_small_as_can_be() -> None:
    assert encode(EVERY_KIND[3]) == (
        '{"t":0.2,"kind":"sent","id":1,"outcome":"ok","offset":0,"leader_epoch":4,"isr":3}'
    )
    assert '"group"' not in encode(EVERY_KIND[-2])


@pytest.mark.parametrize("cut", range(1, len(encode(EVERY_KIND[-1])) + 2))
def test_a_file_cut_off_in_its_last_line_is_read_up_to_there(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path / "h", EVERY_KIND)
    path.write_bytes(path.read_bytes()[:-cut])
    reader = HistoryReader(path)
    found = list(reader)
    if cut == 1:  # only the end of the line is gone
        assert found == EVERY_KIND and reader.complete
        return
    assert found == EVERY_KIND[:-1] and not reader.complete
    assert reader.lines == len(EVERY_KIND) - 1


def test_a_file_that_does_not_end_with_the_end_of_the_run_is_cut_off_too(tmp_path: Path) -> None:
    reader = HistoryReader(written(tmp_path / "h", EVERY_KIND[:-1]))
    assert list(reader) == EVERY_KIND[:-1] and not reader.complete


def test_an_empty_file_holds_nothing_and_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "h").touch()
    reader = HistoryReader(tmp_path / "h")
    assert list(reader) == [] and not reader.complete


@pytest.mark.parametrize(
    "line, why",
    [
        ("", "not JSON"),
        ('{"t":1', "not JSON"),
        ("7", "not a JSON object"),
        ('{"t":1,"kind":"crash","process":"p"} {', "something follows it: ' {"),
        ('{"t":1,"kind":"phase","phase":["load"]}', "phase is ['load'], not str"),
        ('{"t":1,"kind":"polled","process":"c","id":1,"began":1,"partitions":[["t",0,[[0,"v"],[1]]]]}', "[1] is not"),
        (
            '{"t":1,"kind":"polled","process":"c","id":1,"began":1,"partitions":[["t",0,[[0,"v",1]]]]}',
            "[0, 'v', 1] is not",
        ),
        (
            '{"t":1,"kind":"polled","process":"c","id":1,"began":1,"partitions":[["t",0,[7]]]}',
            "7 is not [offset, value]",
        ),
        ("{}", "unknown kind None"),
        ('{"t":1,"kind":["send"]}', "unknown kind ['send']"),
        ('{"t":1,"kind":"sand"}', "unknown kind 'sand'; there are assigned, committed, crash"),
        ('{"t":1,"kind":"crash"}', "crash: missing 1 required positional argument: 'process'"),
        ('{"t":1,"kind":"crash","process":"p","proces":"p"}', "unexpected keyword argument 'proces'"),
        ('{"t":"1","kind":"crash","process":"p"}', "t is '1', not float or int"),
        ('{"t":1,"kind":"crash","process":5}', "process is 5, not str"),
        ('{"t":1,"kind":"sent","id":true,"outcome":"ok"}', "id is True, not int"),
        ('{"t":1,"kind":"sent","id":1,"outcome":"OK"}', "outcome is 'OK', not one of ok, fail, info"),
        ('{"t":1,"kind":"phase","phase":"load "}', "phase is 'load '"),
        ('{"t":1,"kind":"polled","process":"c","id":1,"began":1}', "polled has no partitions"),
        (
            '{"t":1,"kind":"polled","process":"c","id":1,"began":1,"partitions":[["t",0,[["0","v"]]]]}',
            "['0', 'v'] is not",
        ),
        (
            '{"t":1,"kind":"polled","process":"c","id":1,"began":1,"partitions":[["t",0]]}',
            "['t', 0] is not [str, int, list]",
        ),
        (
            '{"t":1,"kind":"fault","fault":"f","what":"begin","target":"b","name":"n","id":1}',
            "'b' is not a list of names",
        ),
        ('{"t":0.05,"kind":"crash","process":"p"}', "t = 0.05 comes after t = 0.1"),
    ],
)
def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "h"
    lines = [encode(record) for record in EVERY_KIND]
    path.write_text("\n".join([*lines[:3], line, *lines[3:]]) + "\n")
    with pytest.raises(HistoryDamaged) as caught:
        list(HistoryReader(path))
    assert caught.value.line == 4
    assert f"{path}, line 4: " in str(caught.value) and why in str(caught.value)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "h").write_bytes(b'{"t":0,"kind":"crash","process":"\xff"}\n')
    with pytest.raises(HistoryDamaged, match="line 1: not UTF-8"):
        list(HistoryReader(tmp_path / "h"))


def test_a_record_that_is_older_than_the_one_before_it_is_refused_where_it_is_written(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h") as writer:
        writer.append(Crash(2.0, "a"))
        writer.append(Crash(2.0, "b"))
        with pytest.raises(ValueError, match="older than the record before it"):
            writer.append(Crash(1.9, "c"))
    assert [record.t for record in HistoryReader(tmp_path / "h")] == [2.0, 2.0]


def test_types_are_checked_again_where_a_valid_line_came_before() -> None:
    decode(b'{"t":1,"kind":"crash","process":"p"}')
    with pytest.raises(ValueError, match="process is None, not str"):
        decode(b'{"t":1,"kind":"crash","process":null}')


def test_times_are_written_in_microseconds() -> None:
    assert encode(Crash(1.23456789, "p")) == '{"t":1.234568,"kind":"crash","process":"p"}'
