"""X2: after healing all replicas of a partition hold the same bytes up to the high watermark.

A run keeps what its replicas held as digests of their record batches, and, if it was told to keep its cluster, the segments
themselves; both become one table of stretches, which a join compares with those of the first replica.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tidelog.pipeline.jobs.audit.findings import finding

if TYPE_CHECKING:
    pass

PARTITION: Final = ("run", "number")
REPLICAS_SCHEMA: Final = (
    "topic string, partition int, high_watermark bigint, "
    "replicas array<struct<broker: int, log_start: bigint, log_end: bigint, stretches: array<array<string>>>>"
)


def replicas_differ(partitions: DataFrame, runs: DataFrame) -> DataFrame:
    """`partitions` as in REPLICAS_SCHEMA with `run` and their `number` in it.

    Up to the high watermark, from the lowest log start on, or the highest where records may expire; a stretch that reaches over
    an edge of that is left out.
    """
    replicas = partitions.select(
        *PARTITION, "topic", "partition", "high_watermark", F.posexplode("replicas").alias("i", "r")
    )
    partition = Window.partitionBy(*PARTITION)
    lowest, highest = F.min("r.log_start").over(partition), F.max("r.log_start").over(partition)
    promised = replicas.join(F.broadcast(runs.select("run", "records_expire")), "run")
    bounded = promised.withColumn("low", F.when(F.col("records_expire"), highest).otherwise(lowest))
    stretches = (
        bounded.select(*PARTITION, "i", "low", "high_watermark", F.posexplode("r.stretches").alias("pos", "s"))
        .select(
            *PARTITION,
            *("i", "low", "high_watermark", "pos"),
            F.col("s")[0].cast("bigint").alias("first"),
            F.col("s")[1].cast("bigint").alias("end"),
            F.col("s")[2].alias("digest"),
        )
        .filter("first >= low and end <= high_watermark")
        .groupBy(*PARTITION, "i", "first")
        .agg(F.max_by(F.struct("end", "digest"), "pos").alias("held"))
    )
    others = replicas.filter("i > 0").select(*PARTITION, "i")
    expected = (
        stretches.filter("i = 0")
        .select(*PARTITION, "first", F.col("held").alias("expected"))
        .join(others, [*PARTITION])
    )
    differ = (
        expected.join(stretches.filter("i > 0"), [*PARTITION, "i", "first"], "full")
        .filter(~F.col("held").eqNullSafe(F.col("expected")))
        .groupBy(*PARTITION, "i")
        .agg(F.min("first").alias("first"), F.min_by(F.struct("held", "expected"), "first").alias("both"))
    )
    brokers = replicas.select(
        *PARTITION, "i", "topic", "partition", "high_watermark", F.col("r.broker").alias("broker")
    )
    first = brokers.filter("i = 0").select(*PARTITION, F.col("broker").alias("one"))
    told = differ.join(brokers, [*PARTITION, "i"]).join(first, [*PARTITION]).join(runs.select("run", "ended_at"), "run")
    return finding(
        told,
        "replicas-differ",
        by=("number", "i"),
        k=None,
        t="ended_at",
        numbers=("partition", "first", "one", "broker", "high_watermark", "both.expected.end", "both.held.end"),
        words=("topic", "both.expected.digest", "both.held.digest"),
    )
