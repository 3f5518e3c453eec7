"""X4: what a leader says of its high watermark never falls, and is never below what a consumer had read.

`as it was at some time` is a running maximum over rows in the order of (time, record): whoever asks stands in that order with
the time it asks about. That equals what the history knew, since records are in order of time.
"""

from collections.abc import Iterator

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tidelog.ids import NO_EPOCH
from tidelog.pipeline.jobs.audit.columns import KEY, before, holds, of_kind, place
from tidelog.pipeline.jobs.audit.findings import finding
from tidelog.pipeline.jobs.audit.tables import Tables


def watermarks(tables: Tables) -> Iterator[DataFrame]:
    reports = reports_of(tables)
    yield _fell_in_epoch(reports)
    yield _fell_below_reads(tables, reports)


def reports_of(tables: Tables) -> DataFrame:
    marks = of_kind(tables.history, "watermark").select(
        *("run", "topic", "partition", "seq", "t", "leader_epoch", "broker", "high_watermark"),
        F.coalesce("began", "t").alias("asked"),
    )
    return tables.numbered(marks)


def _fell_in_epoch(reports: DataFrame) -> DataFrame:
    """Within one leader epoch a report is not below an earlier one."""
    columns = ("run", "k", "seq", "t", "leader_epoch", "broker", "high_watermark")
    said = reports.select(
        *columns, F.col("t").alias("at"), F.lit(1).alias("turn"), F.col("high_watermark").alias("said")
    )
    asks = reports.select(*columns, F.col("asked").alias("at"), F.lit(0).alias("turn"), F.lit(None).alias("said"))
    order = Window.partitionBy(*KEY, "leader_epoch").orderBy("at", "seq", "turn")
    compared = said.unionAll(asks).withColumn("earlier", F.max("said").over(before(order))).filter("turn = 0")
    fell = compared.filter("high_watermark < earlier")
    numbers = ("broker", "leader_epoch", "high_watermark", "earlier")
    return finding(fell, "watermark-fell", by=("seq", F.lit(0)), t="t", numbers=numbers)


def _fell_below_reads(tables: Tables, reports: DataFrame) -> DataFrame:
    """Of a leader that has taken over, no report is below what had been read before its epoch was heard of.

    That it has is known when it acknowledges an acks=all record; and in the final phase of the newest leader, for which all
    that was read before it was asked counts.
    """
    acks = tables.values.filter(F.col("acked") & F.col("epoch").isNotNull() & (F.col("epoch") != NO_EPOCH)).select(
        *KEY, "epoch", "acks", "done_seq", "ended"
    )
    heard = (
        acks.select(*KEY, "epoch", F.col("done_seq").alias("seq"), F.col("ended").alias("t"))
        .unionAll(reports.select(*KEY, "leader_epoch", "seq", "t"))
        .groupBy(*KEY, "epoch")
        .agg(F.min("seq").alias("heard_seq"), F.min("t").alias("heard_at"))
    )
    serving = (
        acks.filter("acks = 'all'")
        .groupBy(*KEY, "epoch")
        .agg(F.min("done_seq").alias("serving_seq"), F.min("ended").alias("serving_at"))
    )
    newest = heard.groupBy(*KEY).agg(F.collect_list(F.struct("heard_seq", "epoch")).alias("heard"))
    finals = (
        of_kind(tables.history, "phase")
        .filter("phase = 'final'")
        .groupBy("run")
        .agg(F.collect_list(F.struct("seq", "t")).alias("finals"))
    )
    of_epoch = heard.join(serving, [*KEY, "epoch"], "left").withColumnRenamed("epoch", "leader_epoch")
    known = (
        reports.join(F.broadcast(of_epoch), [*KEY, "leader_epoch"])
        .join(F.broadcast(newest), [*KEY])
        .join(F.broadcast(finals), "run", "left")
    )
    newest_then = F.array_max(F.transform(F.filter("heard", lambda h: h.heard_seq <= F.col("seq")), lambda h: h.epoch))
    healed_at = F.array_max(F.filter("finals", lambda f: f.seq < F.col("seq")))["t"]
    healed = holds((healed_at <= F.col("asked")) & (F.col("leader_epoch") == newest_then))
    serves = holds((F.col("serving_seq") < F.col("seq")) & (F.col("serving_at") <= F.col("asked")))
    bounded = known.withColumn("until", F.when(healed, F.col("asked")).when(serves, F.col("heard_at"))).filter(
        "until is not null"
    )
    fell = _with_read_until(tables, bounded).filter("high_watermark < read")
    numbers = ("broker", "leader_epoch", "high_watermark", "read")
    return finding(fell, "watermark-fell", by=("seq", F.lit(1)), t="t", numbers=numbers)


def _with_read_until(tables: Tables, bounded: DataFrame) -> DataFrame:
    """`read`: the end of what had been polled at `until`."""
    columns = ("run", "k", "seq", "t", "leader_epoch", "broker", "high_watermark")
    asks = bounded.select(*columns, F.col("until").alias("at"), place().alias("turn"), F.lit(None).alias("end"))
    reads = tables.reads.select(
        *("run", "k", "seq", "t"),
        *(F.lit(None).alias(name) for name in columns[4:]),
        F.col("t").alias("at"),
        place(position="pos").alias("turn"),
        (F.col("last") + 1).alias("end"),
    )
    order = Window.partitionBy(*KEY).orderBy("at", "turn")
    return (
        asks.unionAll(reads).withColumn("read", F.max("end").over(before(order))).filter("high_watermark is not null")
    )
