"""A history as one Parquet file, for those who ask it questions in SQL and for the audit. Needs PyArrow, which only the extra
`spark` installs.

One row a record, in the order of the history; a poll, a commit or a stretch of work that is about several partitions has one
for each. `topic` and `partition` say what a row is about, of a completion too; without them it is about all. Fields of the same
name are one column, null where a kind lacks it. `line` is the number of the record in the history. What is known of the whole
history is in the file's metadata.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.chaos.checker.check import Whole
from tidelog.chaos.checker.routing import Nonsense, Router
from tidelog.chaos.history import (
    Committed,
    FaultStep,
    HistoryDamaged,
    HistoryReader,
    Ownership,
    Polled,
    Position,
    Processed,
    Read,
    Record,
    Span,
    Stored,
    kind_of,
    type_of,
)
from tidelog.ids import TopicPartition

ROW_GROUP: Final = 1 << 16
_WHOLE: Final = b"tidelog.history"
_PLACE: Final = [("topic", pa.string()), ("partition", pa.int32())]
SCHEMA: Any = pa.schema(
    [
        ("line", pa.int64()),
        ("t", pa.float64()),
        ("kind", pa.string()),
        ("id", pa.int64()),
        ("op", pa.int64()),
        ("process", pa.string()),
        *_PLACE,
        ("value", pa.string()),
        ("acks", pa.string()),
        ("outcome", pa.string()),
        ("error", pa.string()),
        ("offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("isr", pa.int32()),
        ("batch", pa.int64()),
        ("attempts", pa.int32()),
        ("began", pa.float64()),
        ("final", pa.bool_()),
        ("records", pa.list_(pa.struct([("offset", pa.int64()), ("value", pa.string())]))),
        ("group", pa.string()),
        ("generation", pa.int32()),
        ("coordinator_epoch", pa.int32()),
        ("owned", pa.list_(pa.struct(_PLACE))),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("fault", pa.string()),
        ("what", pa.string()),
        ("target", pa.list_(pa.string())),
        ("name", pa.string()),
        ("broker", pa.int32()),
        ("high_watermark", pa.int64()),
        ("log_end", pa.int64()),
        ("log_start", pa.int64()),
        ("phase", pa.string()),
    ]
)


_RECORDS: Final = SCHEMA.field("records").type
_LISTS: Final = {
    Ownership: "partitions",
    Polled: "partitions",
    Processed: "partitions",
    Committed: "offsets",
    Stored: "offsets",
}
"""The field of each kind that holds what several partitions may be in."""

Line = tuple[int, TopicPartition | None, Record]


def write_parquet(history: Path, path: Path) -> Whole:
    """A row group at a time, so that a long history needs no more memory than a short one. HistoryDamaged, OSError."""
    reader, whole = HistoryReader(history), Whole()
    lines = ((whole.lines, tp, record) for tp, record in Router().routed(whole.counted(reader)))
    try:
        with pq.ParquetWriter(path, SCHEMA) as writer:
            while group := list(islice(lines, ROW_GROUP)):
                writer.write_table(_table(group))
            writer.add_key_value_metadata({_WHOLE: json.dumps(asdict(whole))})
    except Nonsense as error:
        raise HistoryDamaged(history, whole.lines, str(error)) from error
    return whole


def read_whole(path: Path) -> Whole | None:
    """None: the file is damaged, or one of another release. OSError."""
    try:
        return Whole(**json.loads(pq.read_metadata(path).metadata[_WHOLE]))
    except (pa.ArrowInvalid, TypeError, KeyError):
        return None


def _table(lines: Sequence[Line]) -> Any:
    """Made kind by kind, since each has a few of the columns, and then put in order again."""
    at: dict[type[Record], list[int]] = defaultdict(list)
    for position, (_, _, record) in enumerate(lines):
        at[type(record)].append(position)
    tables = [_of_kind(of, [lines[position] for position in positions]) for of, positions in at.items()]
    order = pa.array([position for positions in at.values() for position in positions])
    return pa.concat_tables(tables).take(pc.array_sort_indices(order))


def _of_kind(of: type[Record], lines: Sequence[Line]) -> Any:
    numbers, places, records = zip(*lines, strict=True)
    columns: dict[str, Any] = dict(zip(of._fields, zip(*records, strict=True), strict=True))
    columns["line"] = numbers
    columns.setdefault("kind", [kind_of(records[0])] * len(lines))
    columns["topic"] = [tp and tp.topic for tp in places]
    columns["partition"] = [tp and tp.partition for tp in places]
    if of in _LISTS:
        columns |= _told(of, columns.pop(_LISTS[of]))
    arrays = [
        pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(len(lines), field.type)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _told(of: type[Record], lists: Sequence[Any]) -> dict[str, Any]:
    if of is Ownership:
        return {"owned": [[tp._asdict() for tp in owned] for owned in lists]}
    inner = [each for (each,) in lists]
    if of is Polled:
        rows = [read.records for read in inner]
        offsets, values = zip(*chain.from_iterable(rows), strict=True)
        pairs = pa.StructArray.from_arrays(
            [pa.array(offsets, pa.int64()), pa.array(values, pa.string())], ["offset", "value"]
        )
        starts = pa.array(accumulate(map(len, rows), initial=0), pa.int32())
        return {"records": pa.ListArray.from_arrays(starts, pairs).cast(_RECORDS)}
    return {
        name: [getattr(each, name) for each in inner]
        for name in (("first", "last") if of is Processed else ("offset",))
    }


def records_of(batch: Any) -> Iterator[tuple[int, Record]]:
    """(line, record) of each row of a batch of such a file, in their order."""
    found: list[Any] = [None] * batch.num_rows
    for kind in pc.unique(batch.column("kind")).to_pylist():
        mask = pc.equal(batch.column("kind"), kind)
        for position, record in zip(
            pc.indices_nonzero(mask).to_pylist(), _of_rows(kind, batch.filter(mask)), strict=True
        ):
            found[position] = record
    return zip(batch.column("line").to_pylist(), found, strict=True)


def _of_rows(kind: str, rows: Any) -> Iterator[Record]:
    of = type_of(kind)
    inner = _LISTS.get(of)
    columns = [_inner(of, rows) if name == inner else rows.column(name).to_pylist() for name in of._fields]
    if of is FaultStep:
        columns[of._fields.index("target")] = map(tuple, rows.column("target").to_pylist())
    return map(of, *columns)


def _inner(of: type[Record], rows: Any) -> Iterable[tuple[Any, ...]]:
    if of is Ownership:
        return [tuple(TopicPartition(**tp) for tp in owned) for owned in rows.column("owned").to_pylist()]
    places = rows.column("topic").to_pylist(), rows.column("partition").to_pylist()
    if of is Polled:
        records = rows.column("records")
        pairs = records.flatten()
        offsets, values = (pairs.field(name).to_pylist() for name in ("offset", "value"))
        lengths = pc.list_value_length(records).to_pylist()
        ends = list(accumulate(lengths))
        both = [
            tuple(zip(offsets[end - n : end], values[end - n : end], strict=True))
            for n, end in zip(lengths, ends, strict=True)
        ]
        return [(Read(*row),) for row in zip(*places, both, strict=True)]
    if of is not Processed:
        return [(Position(*row),) for row in zip(*places, rows.column("offset").to_pylist(), strict=True)]
    return [
        (Span(*row),)
        for row in zip(*places, rows.column("first").to_pylist(), rows.column("last").to_pylist(), strict=True)
    ]
