"""Reads a topic back through Spark and compares it with the ledger, each partition in its own task."""

from collections.abc import Callable, Iterator
from dataclasses import astuple
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tidelog.chaos.ledger import SEQUENCE, SEQUENCE_HEADER, Findings, Ledger, PartitionCheck, digest

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

RESULT_SCHEMA = "partition int, " + ", ".join(f"{name} long" for name in Findings.names())


def read_back(spark: Any, servers: str, topic: str, partitions: int, ledger: Path) -> Findings:
    """`spark` is a session that knows the source `tidelog`; `ledger` is closed."""
    frame = (
        spark.read.format("tidelog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
        .select("key", "value", "partition", "offset", "headers")
    )
    rows = frame.mapInArrow(comparison(ledger), RESULT_SCHEMA).collect()
    found = {row["partition"]: Findings(*(row[name] for name in Findings.names())) for row in rows}
    # A partition that holds nothing has no task, and may have lost everything.
    entries = Ledger.open(ledger).entries
    for partition in range(partitions):
        if partition not in found:
            found[partition] = PartitionCheck(entries, partition).finish()
    return reduce(add, found.values(), Findings())


def comparison(ledger: Path) -> Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]:
    """What a task does with the Arrow batches of its partition: one row of findings."""

    def compare(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa

        entries = Ledger.open(ledger).entries
        checks: dict[int, PartitionCheck] = {}
        for batch in batches:
            if batch.num_rows:
                partition = batch["partition"][0].as_py()
                check = checks.setdefault(partition, PartitionCheck(entries, partition))
                digests = [
                    digest(key, value)
                    for key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
                ]
                check.feed(batch["offset"].to_numpy(), sequence_numbers(batch["headers"]), np.array(digests, np.uint64))
        for partition, check in checks.items():
            row = (partition, *astuple(check.finish()))
            types = [pa.int32()] + [pa.int64()] * len(Findings.names())
            columns = [pa.array([value], type_) for value, type_ in zip(row, types, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, names=["partition", *Findings.names()])

    return compare


def sequence_numbers(headers: "pa.ListArray") -> "NDArray[np.int64]":
    """The number in each record's header `seq`; -1 where there is not exactly that."""
    pairs = headers.flatten()
    keys, values = pairs.field("key").to_pylist(), pairs.field("value").to_pylist()
    numbers = np.full(len(headers), -1, np.int64)
    at = 0
    for row, count in enumerate(headers.value_lengths().to_pylist()):
        if count == 1 and keys[at] == SEQUENCE_HEADER and len(values[at] or b"") == SEQUENCE.size:
            (numbers[row],) = SEQUENCE.unpack(values[at])
        at += count or 0
    return numbers
