"""The checker's own rules, a partition of a run at a time: Spark brings its records together, in their order, and a worker of
Python holds no more than the columns of one partition."""

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidelog.chaos.checker.partition import Part, PartitionChecker
from tidelog.chaos.checker.promise import Promise
from tidelog.chaos.checker.routing import Nonsense
from tidelog.chaos.history import Record
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

TASKS_MAX: Final = 200
_ONE: Final = ("run", "topic", "partition")
_SAID: Final = "run int, line bigint, why string, part binary"
Row = tuple[int, TopicPartition, int, Record]
"""Run, partition, line and what it says."""


@dataclass(slots=True)
class Parts:
    """A run's, as far as they could be judged."""

    parts: list[Part] = field(default_factory=list)
    impossible: tuple[int, str] | None = None
    """The first line that no client can have made, and why."""


def judge_partitions(history: DataFrame, promises: Mapping[int, tuple[Promise, bool]]) -> Mapping[int, Parts]:
    """`history`: rows of Parquet histories with `run` and `seq`, the number of the row in its run. `promises` by run: what was
    promised, and whether the history reaches to the end of the run."""
    about_one = history.filter("partition is not null")
    places = about_one.select(*_ONE).distinct().localCheckpoint()
    about_all = history.filter("partition is null").drop("topic", "partition").join(F.broadcast(places), "run")
    rows = about_one.unionByName(about_all)
    tasks = max(1, min(places.count(), TASKS_MAX))
    in_order = rows.repartition(tasks, *_ONE).sortWithinPartitions(*_ONE, "seq")
    found: dict[int, Parts] = defaultdict(Parts)
    for row in in_order.mapInArrow(_judging(promises), _SAID).collect():
        mine = found[row.run]
        if row.part is not None:
            mine.parts.append(pickle.loads(row.part))
        elif mine.impossible is None or row.line < mine.impossible[0]:
            mine.impossible = (row.line, row.why)
    return found


def _judging(
    promises: Mapping[int, tuple[Promise, bool]],
) -> Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]:
    def judge(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa

        rows = (row for batch in batches for row in _rows(batch))
        for (run, tp), mine in groupby(rows, key=lambda row: row[:2]):
            promise, ended = promises[run]
            said = _judged(PartitionChecker(tp, promise), mine, ended=ended)
            yield pa.RecordBatch.from_pylist([{"run": run, **said}], schema=_schema())

    return judge


def _judged(checker: PartitionChecker, rows: Iterable[Row], *, ended: bool) -> dict[str, object]:
    for _, _, line, record in rows:
        try:
            checker.take(record)
        except Nonsense as error:
            return {"line": line, "why": str(error)}
    return {"part": pickle.dumps(checker.part(ended=ended))}


def _rows(batch: "pa.RecordBatch") -> Iterator[Row]:
    from tidelog.chaos.history_parquet import records_of

    runs, topics, partitions = (batch.column(name).to_pylist() for name in _ONE)
    places = map(TopicPartition, topics, partitions)
    for run, tp, (line, record) in zip(runs, places, records_of(batch), strict=True):
        yield run, tp, line, record


def _schema() -> "pa.Schema":
    import pyarrow as pa

    return pa.schema([("run", pa.int32()), ("line", pa.int64()), ("why", pa.string()), ("part", pa.binary())])
