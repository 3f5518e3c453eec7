"""Sums of each run; how far readers were behind; and how many acknowledged values nobody had read, over time."""

from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tidelog.chaos.checker.tables import SAMPLE_S
from tidelog.pipeline.jobs.audit.columns import KEY, before, of_kind
from tidelog.pipeline.jobs.audit.tables import Tables

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLES: Final = "run int, t double, unseen bigint"


def worst_lags(tables: Tables) -> DataFrame:
    """By run: how long before a poll began its newest offset had stopped being the tail (1.4).

    Offset by offset from the highest down, the first record that told of any higher one is a running minimum.
    """
    acked = tables.values.filter("acked_at is not null").select(
        *KEY, F.col("acked_at").alias("offset"), F.col("done_seq").alias("seq"), F.col("ended").alias("t")
    )
    reads = tables.reads.select(*KEY, F.col("last").alias("offset"), "seq", "t")
    told = acked.unionAll(reads).groupBy(*KEY, "offset").agg(F.min("seq").alias("seq"), F.min("t").alias("t"))
    above = before(Window.partitionBy(*KEY).orderBy(F.desc("offset")))
    passed = told.select(
        *KEY, "offset", F.min("seq").over(above).alias("passed_seq"), F.min("t").over(above).alias("passed_at")
    )
    behind = (
        tables.reads.select(*KEY, F.col("last").alias("offset"), "seq", "began")
        .join(passed, [*KEY, "offset"])
        .filter("passed_seq < seq")
    )
    return behind.groupBy("run").agg(F.max(F.col("began") - F.col("passed_at")).alias("lag"))


def unseen_over_time(tables: Tables) -> DataFrame:
    """In SAMPLES. Each sample is the first record a second after the one before it, so they are found one after the other:
    a fold over the times of the records, done by run in Arrow."""
    moments = of_kind(tables.history, "sent", "polled").select("run", "seq", "t", F.lit(0).alias("change"))
    acked = tables.values.filter("acked and (read_at is null or done_seq < read_seq)")
    unseen = acked.select("run", F.col("done_seq"), F.col("ended"), F.lit(1))
    seen = acked.filter("read_at is not null").select("run", "read_seq", "read_t", F.lit(-1))
    return moments.unionAll(unseen).unionAll(seen).groupBy("run").applyInArrow(_samples, SAMPLES)


def _samples(table: "pa.Table") -> "pa.Table":
    import numpy as np
    import pyarrow as pa

    seq, t, change = (table.column(name).to_numpy() for name in ("seq", "t", "change"))
    order = np.argsort(seq, kind="stable")
    seq, t = seq[order], t[order]
    unseen = np.cumsum(change[order])
    found: list[tuple[float, int]] = []
    at = 0
    while at < len(t):
        last = int(np.searchsorted(seq, seq[at], "right")) - 1
        found.append((float(t[at]), int(unseen[last])))
        at = int(np.searchsorted(t, t[at] + SAMPLE_S, "left"))
    run = table.column("run")[0].as_py() if len(t) else 0
    times, counts = zip(*found, strict=True) if found else ((), ())
    return pa.table(
        {
            "run": pa.array([run] * len(found), pa.int32()),
            "t": pa.array(times, pa.float64()),
            "unseen": pa.array(counts, pa.int64()),
        }
    )
