"""Every record is a row, and what it says is in its columns."""

from pathlib import Path

import pyarrow.parquet as pq

from tidelog.chaos import history_parquet
from tidelog.chaos.history import (
    Committed,
    Crash,
    FaultStep,
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
    Watermark,
)
from tidelog.chaos.history_parquet import write_parquet
from tidelog.chaos.launch import save_parquet
from tidelog.ids import TopicPartition

AT = {"topic": "chaos", "partition": 0}
ROWS: list[tuple[Record, dict[str, object]]] = [
    (Phase(0.0, "load"), {"phase": "load"}),
    (
        Send(0.1, 1, "p", "chaos", 0, "a", "all", 7),
        {"id": 1, "process": "p", **AT, "value": "a", "acks": "all", "op": 7},
    ),
    (Sent(0.2, 1, "ok", 5, 4, 3), {"id": 1, "outcome": "ok", "offset": 5, "leader_epoch": 4, "isr": 3}),
    (Sent(0.2, 2, "info", error="TimeoutError"), {"id": 2, "outcome": "info", "error": "TimeoutError"}),
    (
        Polled(0.3, "c", 3, 0.25, (Read("chaos", 0, ((5, "a"), (6, "b"))), Read("chaos", 1, ((0, "x"),))), "g"),
        {
            **{"process": "c", "id": 3, "began": 0.25, "group": "g", "final": False},
            "records": [
                {**AT, "offset": 5, "value": "a"},
                {**AT, "offset": 6, "value": "b"},
                {"topic": "chaos", "partition": 1, "offset": 0, "value": "x"},
            ],
        },
    ),
    (
        Ownership(0.4, "revoked", "c", (TopicPartition("chaos", 0),), "g", 3, 1),
        {"process": "c", "group": "g", "generation": 3, "coordinator_epoch": 1, "owned": [AT], "final": False},
    ),
    (
        Committed(0.5, "c", "g", 3, 1, (Position("chaos", 0, 7),), "ok"),
        {
            **{"process": "c", "group": "g", "generation": 3, "coordinator_epoch": 1, "outcome": "ok"},
            "positions": [{**AT, "offset": 7}],
        },
    ),
    (
        Processed(0.6, "c", "g", (Span("chaos", 0, 5, 6),)),
        {"process": "c", "group": "g", "spans": [{**AT, "first": 5, "last": 6}]},
    ),
    (Crash(0.7, "c"), {"process": "c"}),
    (
        FaultStep(0.8, "kill", "effect", ("broker-1", "broker-2"), "kill two", 1),
        {"id": 1, "fault": "kill", "what": "effect", "target": ["broker-1", "broker-2"], "name": "kill two"},
    ),
    (
        Watermark(0.9, "chaos", 0, 1, 4, 120, 125, 3, 0.85),
        {**AT, "broker": 1, "leader_epoch": 4, "high_watermark": 120, "log_end": 125, "log_start": 3, "began": 0.85},
    ),
]
KINDS = ("phase", "send", "sent", "sent", "polled", "revoked", "committed", "processed", "crash", "fault", "watermark")


def test_every_record_is_a_row_of_what_it_says(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(history_parquet, "ROW_GROUP", 4)
    write_parquet((record for record, _ in ROWS), tmp_path / "h.parquet")
    file = pq.ParquetFile(tmp_path / "h.parquet")
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [4, 4, 3]
    found = [{name: value for name, value in row.items() if value is not None} for row in file.read().to_pylist()]
    assert found == [{"t": record.t, "kind": kind, **row} for (record, row), kind in zip(ROWS, KINDS, strict=True)]


def test_a_history_of_nothing_is_a_file_of_nothing(tmp_path: Path) -> None:
    write_parquet([], tmp_path / "h.parquet")
    assert pq.read_table(tmp_path / "h.parquet").num_rows == 0


def test_a_run_keeps_its_history_as_parquet_too(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "history.jsonl") as writer:
        for record, _ in ROWS:
            writer.append(record)
    save_parquet(tmp_path)
    assert pq.read_table(tmp_path / "history.parquet").num_rows == len(ROWS)


def test_a_damaged_history_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text('{"t":0,"kind":"crash","process":"p"}\n?\n')
    save_parquet(tmp_path)
    assert not (tmp_path / "history.parquet").exists()
