"""Every record is a row for each partition that it is about, what it says is in its columns, and it is read back from them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidelog.chaos import history_parquet
from tidelog.chaos.checker.check import Whole
from tidelog.chaos.checker.routing import Router
from tidelog.chaos.history import (
    Committed,
    Crash,
    FaultStep,
    HistoryDamaged,
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
)
from tidelog.chaos.history_parquet import read_whole, records_of, write_parquet
from tidelog.chaos.launch import save_parquet
from tidelog.ids import TopicPartition

AT = {"topic": "chaos", "partition": 0}
OTHER = {"topic": "chaos", "partition": 1}
POLL = {"process": "c", "id": 3, "began": 0.25, "group": "g", "final": False}
MEMBER = {"process": "c", "group": "g", "generation": 3, "coordinator_epoch": 1}
ROWS: list[tuple[Record, str, list[dict[str, object]]]] = [
    (Phase(0.0, "load"), "phase", [{"phase": "load"}]),
    (
        Send(0.1, 1, "p", "chaos", 0, "a", "all", 7),
        "send",
        [{"id": 1, "process": "p", **AT, "value": "a", "acks": "all", "op": 7}],
    ),
    (Send(0.1, 2, "p", "chaos", 1, "x", "1"), "send", [{"id": 2, "process": "p", **OTHER, "value": "x", "acks": "1"}]),
    (Sent(0.2, 1, "ok", 5, 4, 3), "sent", [{"id": 1, **AT, "outcome": "ok", "offset": 5, "leader_epoch": 4, "isr": 3}]),
    (
        Sent(0.2, 2, "info", error="TimeoutError"),
        "sent",
        [{"id": 2, **OTHER, "outcome": "info", "error": "TimeoutError"}],
    ),
    (
        Polled(0.3, "c", 3, 0.25, (Read("chaos", 0, ((5, "a"), (6, "b"))), Read("chaos", 1, ((0, "x"),))), "g"),
        "polled",
        [
            {**POLL, **AT, "records": [{"offset": 5, "value": "a"}, {"offset": 6, "value": "b"}]},
            {**POLL, **OTHER, "records": [{"offset": 0, "value": "x"}]},
        ],
    ),
    (
        Ownership(0.4, "revoked", "c", (TopicPartition("chaos", 0),), "g", 3, 1),
        "revoked",
        [{**MEMBER, "owned": [AT], "final": False}],
    ),
    (
        Processed(0.6, "c", "g", (Span("chaos", 0, 5, 6),)),
        "processed",
        [
            {"process": "", "kind": "revoked", "group": "g", "owned": [AT], "final": False},
            {"process": "c", "group": "g", **AT, "first": 5, "last": 6},
        ],
    ),
    (
        Committed(0.6, "c", "g", 3, 1, (Position("chaos", 0, 7), Position("chaos", 1, 2)), "ok"),
        "committed",
        [{**MEMBER, **AT, "outcome": "ok", "offset": 7}, {**MEMBER, **OTHER, "outcome": "ok", "offset": 2}],
    ),
    (Stored(0.6, "g", (Position("chaos", 0, 7),)), "stored", [{"group": "g", **AT, "offset": 7}]),
    (Crash(0.7, "c"), "crash", [{"process": "c"}]),
    (
        FaultStep(0.8, "kill", "effect", ("broker-1", "broker-2"), "kill two", 1),
        "fault",
        [{"id": 1, "fault": "kill", "what": "effect", "target": ["broker-1", "broker-2"], "name": "kill two"}],
    ),
    (
        Watermark(0.9, "chaos", 0, 1, 4, 120, 125, 3, 0.85),
        "watermark",
        [{**AT, "broker": 1, "leader_epoch": 4, "high_watermark": 120, "log_end": 125, "log_start": 3, "began": 0.85}],
    ),
]


def written(directory: Path, *records: Record) -> Path:
    with HistoryWriter(directory / "history.jsonl") as writer:
        for record in records:
            writer.append(record)
    return directory / "history.jsonl"


def test_every_record_is_a_row_of_what_it_says(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(history_parquet, "ROW_GROUP", 4)
    write_parquet(written(tmp_path, *(record for record, _, _ in ROWS)), tmp_path / "h.parquet")
    file = pq.ParquetFile(tmp_path / "h.parquet")
    found = [{name: value for name, value in row.items() if value is not None} for row in file.read().to_pylist()]
    expected = [
        {"line": line, "t": record.t, "kind": kind, **row}
        for line, (record, kind, rows) in enumerate(ROWS, 1)
        for row in rows
    ]
    assert found == expected
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [4, 4, 4, 4]


def test_its_rows_are_the_records_of_each_partition_again(tmp_path: Path) -> None:
    write_parquet(written(tmp_path, *(record for record, _, _ in ROWS)), tmp_path / "h.parquet")
    (batch,) = pq.read_table(tmp_path / "h.parquet").to_batches()
    routed = list(Router().routed(record for record, _, _ in ROWS))
    assert [record for _, record in records_of(batch)] == [record for _, record in routed]
    assert {type(record) for _, record in routed} == set(Record.__args__)  # type: ignore[attr-defined]


@pytest.mark.parametrize("last, ended", [(Phase(1.0, "end"), True), (Crash(1.0, "c"), False)])
def test_what_is_known_of_the_whole_history_is_beside_its_rows(tmp_path: Path, last: Record, ended: bool) -> None:
    records = [*(record for record, _, _ in ROWS), last]
    whole = write_parquet(written(tmp_path, *records), tmp_path / "h.parquet")
    assert whole == read_whole(tmp_path / "h.parquet") == Whole(len(records), 1, 1.0, ended)


def test_a_file_of_another_release_says_nothing_of_the_whole(tmp_path: Path) -> None:
    table = pa.table({"t": [0.0]})
    for metadata in ({}, {"other": "1"}, {"tidelog.history": '{"lines": 1, "later": 2}'}):
        pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "h.parquet")
        assert read_whole(tmp_path / "h.parquet") is None


@pytest.mark.parametrize("left", [0, 3, 100])
def test_a_damaged_file_says_nothing_of_the_whole(tmp_path: Path, left: int) -> None:
    write_parquet(written(tmp_path, *(record for record, _, _ in ROWS)), tmp_path / "h.parquet")
    (tmp_path / "h.parquet").write_bytes((tmp_path / "h.parquet").read_bytes()[:left])
    assert read_whole(tmp_path / "h.parquet") is None


def test_a_history_of_nothing_is_a_file_of_nothing(tmp_path: Path) -> None:
    assert write_parquet(written(tmp_path), tmp_path / "h.parquet") == Whole()
    assert pq.read_table(tmp_path / "h.parquet").num_rows == 0


def test_a_run_keeps_its_history_as_parquet_too(tmp_path: Path) -> None:
    written(tmp_path, *(record for record, _, _ in ROWS))
    save_parquet(tmp_path)
    assert pq.read_table(tmp_path / "history.parquet").num_rows == sum(len(rows) for _, _, rows in ROWS)


@pytest.mark.parametrize("line", ["?", '{"t":0,"kind":"sent","id":1,"outcome":"ok"}'])
def test_a_damaged_history_leaves_no_half_of_a_file(tmp_path: Path, line: str) -> None:
    (tmp_path / "history.jsonl").write_text(f'{{"t":0,"kind":"crash","process":"p"}}\n{line}\n')
    save_parquet(tmp_path)
    assert not (tmp_path / "history.parquet").exists()
    with pytest.raises(HistoryDamaged, match=r"history\.jsonl, line 2: "):
        write_parquet(tmp_path / "history.jsonl", tmp_path / "h.parquet")
