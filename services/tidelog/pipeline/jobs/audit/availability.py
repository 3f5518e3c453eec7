"""X6: for how long a partition acknowledged nothing although records waited, by key and ack level, and the faults of a run.

Whether anybody waits is a running sum over attempts and answers; since when is the latest row that began a wait: an attempt when
nobody waited, or an acknowledgement while others did.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tidelog.pipeline.jobs.audit.columns import before, holds, latest, of_kind, so_far
from tidelog.pipeline.jobs.audit.tables import Tables

LINE: Final = ("run", "k", "acks")


def gaps(tables: Tables) -> DataFrame:
    """A row a key and ack level: the longest gap that an acknowledgement ended, and since when the last one is open."""
    order = Window.partitionBy(*LINE).orderBy("seq")
    counted = _events(tables).withColumn("waiting", F.sum("change").over(so_far(order)))
    idle = holds(F.lag("acked").over(order) & (F.lag("waiting").over(order) == 0)) | F.lag("seq").over(order).isNull()
    begins = F.when(F.col("acked") & (F.col("waiting") > 0), F.col("t")).when(idle, F.col("t"))
    marked = counted.withColumn("begins", begins)
    since = latest(F.col("begins"), before(order))
    ended = F.col("acked") & (F.col("t") > since)
    measured = marked.select(
        *LINE,
        *("seq", "heard"),
        F.when(
            ended,
            F.struct((F.col("t") - since).alias("seconds"), (-F.col("seq")).alias("first"), since.alias("began"), "t"),
        ).alias("gap"),
        F.struct(
            "seq", F.when(~(F.col("acked") & (F.col("waiting") == 0)), F.coalesce("begins", since)).alias("since")
        ).alias("state"),
    )
    by_line = measured.groupBy(*LINE).agg(
        F.max("gap").alias("gap"), F.max("state").alias("state"), F.max("heard").alias("heard")
    )
    return by_line.select(
        *LINE,
        F.col("gap.began").alias("began"),
        F.col("gap.t").alias("ended"),
        F.col("state.since").alias("since"),
        "heard",
    )


def _events(tables: Tables) -> DataFrame:
    """Attempts, answers, and the ends of clients that waited. acks=0 is never acknowledged."""
    sends = tables.sends.filter("acks <> '0'")
    tried = sends.select(
        *LINE,
        "seq",
        F.col("began").alias("t"),
        F.lit(1).alias("change"),
        F.lit(False).alias("acked"),
        F.col("began").alias("heard"),
    )
    answered = sends.filter("done_seq is not null").select(
        *LINE, F.col("done_seq"), F.col("ended"), F.lit(-1), "acked", F.col("ended")
    )
    gone = sends.filter("gone_seq is not null").select(
        *LINE, F.col("gone_seq"), F.lit(None), F.lit(-1), F.lit(False), F.lit(None)
    )
    return tried.unionAll(answered).unionAll(gone)


def faults(tables: Tables) -> DataFrame:
    """When each was in force, in the order in which they began; `healed_at` null: to the end."""
    steps = of_kind(tables.history, "fault").select("run", "id", "seq", "t", "what", "name")
    begun = (
        steps.filter("what <> 'healed'")
        .groupBy("run", "id")
        .agg(F.min("seq").alias("seq"), F.min("t").alias("began"), F.min_by("name", "seq").alias("name"))
    )
    healed = steps.filter("what = 'healed'").select(
        "run", "id", F.col("seq").alias("healed_seq"), F.col("t").alias("healed_at")
    )
    ended = begun.join(healed, ["run", "id"], "left").filter("healed_seq is null or healed_seq > seq")
    last = ended.groupBy("run", "id").agg(F.max("healed_at").alias("healed_at"))
    return begun.join(last, ["run", "id"], "left")
