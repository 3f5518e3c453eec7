"""What histories say, as tables: `k` numbers the keys (topic-partitions) of a run, and a value of a key identifies its send.

    keys     run, k, topic, partition, log_start                 numbered as they come in the history
    readers  run, process, reader_seq, crashed                   of the final phase
    attempts one row a send or completion, each with its neighbours of the same id
    reads    one row a poll and key: its records in order, what the poll was
    values   one row a value of a key: its send, its completion, who read it first, where it is in the log
    log      one row a key, offset and value found there, with the dense rank of the offset (the version order of 1.3)

Runs are told apart by the column `run` in every table, so one query judges any number of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tidelog.ids import NO_EPOCH, NO_OFFSET
from tidelog.pipeline.jobs.audit.columns import KEY, LATER, VALUE, holds, of_kind, place, seq_of

TP: Final = ("run", "topic", "partition")


@dataclass(frozen=True, slots=True)
class Tables:
    history: DataFrame
    runs: DataFrame
    keys: DataFrame
    readers: DataFrame
    attempts: DataFrame
    sends: DataFrame
    reads: DataFrame
    values: DataFrame
    log: DataFrame

    def numbered(self, frame: DataFrame) -> DataFrame:
        """With the key's number for its topic and partition."""
        return frame.join(F.broadcast(self.keys.select(*TP, "k")), [*TP]).drop("topic", "partition")

    def of_runs(self, frame: DataFrame, *columns: str) -> DataFrame:
        return frame.join(F.broadcast(self.runs.select("run", *columns)), "run")

    def ranks(self) -> DataFrame:
        return self.log.filter("picked").select(*KEY, "offset", "rank")


def polled(history: DataFrame) -> DataFrame:
    """One row a poll and topic-partition; `pos` is where the partition begins in the poll, `rs` its records in order."""
    records = F.transform(
        "records", lambda r, i: F.struct(i.cast("bigint").alias("pos"), r.topic, r.partition, r.offset, r.value)
    )
    parts = F.array_distinct(F.transform("records", lambda r: F.struct(r.topic, r.partition)))
    whole = (
        of_kind(history, "polled")
        .filter(F.size("records") > 0)
        .select(
            "run",
            "seq",
            "t",
            "process",
            "id",
            "began",
            "group",
            "final",
            "op",
            records.alias("records"),
            parts.alias("p"),
        )
    )
    each = whole.withColumn("part", F.explode("p")).select(
        *(c for c in whole.columns if c not in ("records", "p")),
        F.col("part.topic").alias("topic"),
        F.col("part.partition").alias("partition"),
        F.transform(
            F.filter(
                "records",
                lambda r: (r.topic == F.col("part.topic")) & (r.partition == F.col("part.partition")),
            ),
            lambda r: F.struct(r.pos, r.offset, r.value),
        ).alias("rs"),
    )
    return each.select(
        "*",
        F.col("rs")[0]["pos"].alias("pos"),
        F.col("rs")[0]["offset"].alias("first"),
        F.element_at("rs", -1)["offset"].alias("last"),
    )


def rows_of(reads: DataFrame, *columns: str) -> DataFrame:
    """A row a record that was read."""
    return reads.select(*columns, F.explode("rs").alias("r")).select(
        *columns, F.col("r.pos").alias("pos"), F.col("r.offset").alias("offset"), F.col("r.value").alias("value")
    )


def keys_of(history: DataFrame, reads: DataFrame, promised: DataFrame) -> DataFrame:
    """In the order in which they come. `log_start` is the highest that a leader told, where records may expire; else 0."""
    parts = [
        of_kind(history, "send", "watermark").select(*TP, place().alias("place")),
        reads.select(*TP, place(position="pos").alias("place")),
    ]
    for kinds, column in (
        (("assigned", "revoked", "lost"), "owned"),
        (("committed",), "positions"),
        (("processed",), "spans"),
    ):
        listed = of_kind(history, *kinds).select("run", "seq", F.posexplode(column).alias("pos", "each"))
        parts.append(
            listed.select(
                "run",
                F.col("each.topic").alias("topic"),
                F.col("each.partition").alias("partition"),
                place(position="pos").alias("place"),
            )
        )
    found = reduce(DataFrame.unionAll, parts).groupBy(*TP).agg(F.min("place").alias("place"))
    numbered = found.withColumn("k", F.row_number().over(Window.partitionBy("run").orderBy("place")) - 1)
    expiring = F.broadcast(promised.filter("records_expire").select("run"))
    starts = of_kind(history, "watermark").join(expiring, "run").groupBy(*TP).agg(F.max("log_start").alias("log_start"))
    return numbered.join(starts, [*TP], "left").select(
        *TP, "k", F.greatest(F.coalesce("log_start", F.lit(0)), F.lit(0)).alias("log_start")
    )


def attempts_of(history: DataFrame) -> DataFrame:
    """Sends and completions with what comes before and after them of the same id.

    `gone_seq` is when the client of a send was thrown away, if that was before its completion.
    """
    crashes = of_kind(history, "crash").groupBy("run", "process").agg(F.collect_list("seq").alias("crashes"))
    events = of_kind(history, "send", "sent").select(
        *("run", "seq", "t", "kind", "id", "process", "topic", "partition", "value", "acks", "op"),
        *("outcome", "offset", "leader_epoch", "isr"),
    )
    life = events.join(F.broadcast(crashes), ["run", "process"], "left").withColumn(
        "crash_seq", F.array_min(F.filter("crashes", lambda seq: seq > F.col("seq")))
    )
    of_id = Window.partitionBy("run", "id").orderBy("seq")
    answer = F.struct("seq", "t", "kind", "outcome", "offset", "leader_epoch", "isr")
    paired = life.select(
        *(c for c in life.columns if c != "crashes"),
        F.lead(answer).over(of_id).alias("next"),
        F.lag(F.struct("kind", "value", "crash_seq")).over(of_id).alias("prev"),
    )
    done = holds(F.col("next.kind") == "sent")
    return paired.select(
        *("run", "seq", "t", "kind", "id", "process", "topic", "partition", "value", "acks", "op", "prev"),
        F.when(done, F.col("next.seq")).alias("done_seq"),
        F.when(done, F.col("next.t")).alias("ended"),
        F.when(done, F.col("next.outcome")).alias("outcome"),
        F.when(done, F.col("next.offset")).alias("acked_at"),
        F.when(done, F.col("next.leader_epoch")).alias("epoch"),
        F.when(done, F.col("next.isr")).alias("isr"),
        F.when(~done | (F.col("crash_seq") < F.col("next.seq")), F.col("crash_seq")).alias("gone_seq"),
    )


def sends_of(attempts: DataFrame) -> DataFrame:
    """With what became of them: `acked` and `refused`; an acks=0 record that was handed over is neither."""
    return attempts.filter(F.col("kind") == "send").select(
        *(
            "run",
            "seq",
            "id",
            "process",
            "topic",
            "partition",
            "value",
            "acks",
            "op",
            "done_seq",
            "ended",
            "epoch",
            "isr",
        ),
        F.col("t").alias("began"),
        "gone_seq",
        F.when(F.col("acked_at") != NO_OFFSET, F.col("acked_at")).alias("acked_at"),
        holds((F.col("outcome") == "ok") & (F.col("acks") != "0")).alias("acked"),
        holds(F.col("outcome") == "fail").alias("refused"),
    )


def epochs_of(sends: DataFrame, watermarks: DataFrame) -> DataFrame:
    """By key, each leader epoch with the record that told of it first: `steps`. There are few."""
    heard = sends.select(*KEY, F.col("done_seq").alias("seq"), F.col("epoch")).unionAll(
        watermarks.select(*KEY, "seq", F.col("leader_epoch").alias("epoch"))
    )
    firsts = heard.filter(F.col("epoch").isNotNull()).groupBy(*KEY, "epoch").agg(F.min("seq").alias("seq"))
    return firsts.groupBy(*KEY).agg(F.collect_list(F.struct("seq", "epoch")).alias("steps"))


def epoch_at(seq: Column) -> Column:
    """The latest of `steps` that was known before the record `seq`; null stands for the end of the history."""
    known = F.filter("steps", lambda step: seq.isNull() | (step.seq < seq))
    return F.coalesce(F.array_max(F.transform(known, lambda step: step.epoch)), F.lit(NO_EPOCH))


def final_readers_of(history: DataFrame) -> DataFrame:
    """Readers of the final phase, when each began, and whether it was thrown away. One that finds nothing to read is one too."""
    final = of_kind(history, "polled", "assigned", "revoked", "lost").filter("final")
    began = final.filter((F.col("kind") != "polled") | (F.size("records") > 0))
    crashed = of_kind(history, "crash").select("run", "process").distinct().withColumn("crashed", F.lit(True))
    readers = began.groupBy("run", "process").agg(F.min("seq").alias("reader_seq"))
    return readers.join(crashed, ["run", "process"], "left").fillna(False, ["crashed"])


def seen_of(reads: DataFrame, readers: DataFrame) -> DataFrame:
    """What polls found at which offset of a key: when first (`at`), and whether it is there in the end (`present`)."""
    whole = longest_readers(reads, readers)
    marked = reads.join(F.broadcast(whole), ["run", "k", "process"], "left").withColumn(
        "last_read", F.col("final") & holds(F.col("whole"))
    )
    return (
        rows_of(marked, *KEY, "seq", "t", "last_read")
        .groupBy(*KEY, "offset", "value")
        .agg(F.min(place(position="pos")).alias("at"), F.min("t").alias("read_t"), F.max("last_read").alias("present"))
    )


def values_of(sends: DataFrame, seen: DataFrame, epochs: DataFrame, runs: DataFrame) -> DataFrame:
    """Before they are placed in the log."""
    read = seen.groupBy(*VALUE).agg(
        F.min("at").alias("read_at"), F.min("read_t").alias("read_t"), F.max("present").alias("present")
    )
    joined = (
        sends.join(read, [*VALUE], "full")
        .join(F.broadcast(epochs), [*KEY], "left")
        .join(F.broadcast(runs.select("run", "heal_seq")), "run")
    )
    is_read, sent = F.col("read_at").isNotNull(), F.col("seq").isNotNull()
    own = F.coalesce("epoch", epoch_at(F.col("done_seq")))
    one_copy = holds((F.col("isr") == 1) | (F.col("acks") == "1"))
    alone = holds(F.col("acked")) & one_copy & (own != NO_EPOCH) & (epoch_at(F.col("heal_seq")) > own)
    base = joined.select(
        *VALUE,
        F.least(place(), "read_at").alias("place"),
        sent.alias("sent"),
        *("id", "process", "acks", "op", "began", "ended", "done_seq", "acked_at", "epoch", "read_at", "read_t"),
        seq_of("read_at").alias("read_seq"),
        holds(F.col("acked")).alias("acked"),
        holds(F.col("refused")).alias("refused"),
        holds(F.col("present")).alias("present"),
        alone.alias("alone"),
        (alone & ~is_read).alias("excused"),
    )
    operations = base.filter("sent and read_at is not null and op is not null").select("run", "op").distinct()
    in_doubt = F.col("sent") & ~F.col("refused") & (F.col("read_at").isNotNull() | holds(F.col("op_read")))
    told = base.join(operations.withColumn("op_read", F.lit(True)), ["run", "op"], "left").withColumn(
        "committed", F.col("acked") | in_doubt
    )
    return told.drop("op_read")


def longest_readers(reads: DataFrame, readers: DataFrame) -> DataFrame:
    """By key, the reader of the final phase that came furthest (`whole` is true); of several the one that began first."""
    read = reads.filter("final").groupBy(*KEY, "process").agg(F.sum(F.size("rs")).alias("size"))
    sizes = read.join(F.broadcast(readers), ["run", "process"])
    furthest = Window.partitionBy(*KEY).orderBy(F.desc("size"), "reader_seq")
    return (
        sizes.withColumn("number", F.row_number().over(furthest))
        .filter("number = 1")
        .select(*KEY, "process", F.lit(True).alias("whole"))
    )


def log_of(values: DataFrame, seen: DataFrame) -> DataFrame:
    """Polls feed it, and sends that must have committed; where several values are at an offset, the first found is picked."""
    acknowledged = values.filter("acked_at is not null and committed and not alone").select(
        *KEY, F.col("acked_at").alias("offset"), "value", (F.col("place") + LATER).alias("at")
    )
    found = (
        seen.select(*KEY, "offset", "value", "at")
        .unionAll(acknowledged)
        .groupBy(*KEY, "offset", "value")
        .agg(F.min("at").alias("at"))
    )
    ordered = Window.partitionBy(*KEY).orderBy("offset", "at")
    again = holds(F.lag("offset").over(ordered) == F.col("offset"))
    return found.select(
        *KEY,
        *("offset", "value"),
        F.dense_rank().over(Window.partitionBy(*KEY).orderBy("offset")).alias("rank"),
        (~again).alias("picked"),
        (again | holds(F.lead("offset").over(ordered) == F.col("offset"))).alias("shared"),
    )


def placed(values: DataFrame, log: DataFrame) -> DataFrame:
    """`first` and `last` rank of each value, its lowest offset, and whether it stands for that one (`leads`)."""
    ranks = log.groupBy(*VALUE).agg(
        F.min("rank").alias("first"),
        F.max("rank").alias("last"),
        F.min(F.col("offset") * 2 + F.when(F.col("picked"), 0).otherwise(1)).alias("lowest"),
    )
    return values.join(ranks, [*VALUE], "left").select(
        *values.columns,
        *("first", "last"),
        F.shiftright("lowest", 1).alias("offset"),
        holds(F.col("lowest") % 2 == 0).alias("leads"),
    )


def runs_of(history: DataFrame, promised: DataFrame) -> DataFrame:
    """One row a run: what it promised, as far as a query asks, and how far its history reaches."""
    phase, kind, group = F.col("phase"), F.col("kind"), F.col("group")
    some = (kind == "polled") & (F.size("records") > 0)

    def ever(condition: Column) -> Column:
        return F.coalesce(F.max(holds(condition)), F.lit(False))

    found = history.groupBy("run").agg(
        F.count(F.lit(1)).alias("records"),
        F.max("seq").alias("last_seq"),
        F.max("t").alias("ended_at"),
        F.max(F.when(phase == "end", F.col("seq"))).alias("end_seq"),
        F.max(F.when(phase == "final", F.col("seq"))).alias("heal_seq"),
        F.max(F.when(kind == "polled", F.col("t"))).alias("polls_end"),
        F.count(F.when(kind == "polled", 1)).alias("polls"),
        F.sum(F.when(some, F.size("records"))).alias("records_read"),
        F.min(F.when(phase == "final", F.col("t"))).alias("load_ended_at"),
        ever(F.col("final") & (some | kind.isin("assigned", "revoked", "lost"))).alias("final_read"),
        ever((kind == "send") | some).alias("has_values"),
        ever(
            kind.isin("processed", "committed") | (kind.isin("assigned", "revoked", "lost") & group.isNotNull())
        ).alias("has_group"),
        ever(kind.isin("processed", "committed") | ((kind == "assigned") & group.isNotNull())).alias("has_members"),
    )
    complete = F.col("end_seq").isNotNull()
    return (
        promised.join(found, "run", "left")
        .withColumn("complete", complete)
        .withColumn("last_is_end", holds(F.col("end_seq") == F.col("last_seq")))
        .withColumn("final_judged", complete & (F.col("final_read") | ~F.col("has_values")))
        .fillna(0, ["records", "ended_at", "polls", "polls_end", "records_read"])
        .fillna(False, ["final_read", "has_values", "has_group", "has_members"])
    )


def nonsense(attempts: DataFrame) -> DataFrame:
    """By run, the first record that no client can have made: `first` holds its number, what is wrong, the id and the value."""
    sends = attempts.filter("kind = 'send'")
    twice = (
        sends.groupBy("run", "value")
        .agg(F.min("seq").alias("sent_first"), F.count(F.lit(1)).alias("times"))
        .filter("times > 1")
    )
    again = sends.join(twice, ["run", "value"]).filter("seq > sent_first")
    in_use = sends.filter((F.col("prev.kind") == "send") & ~holds(F.col("prev.crash_seq") < F.col("seq")))
    open_before = holds((F.col("prev.kind") == "send") & ~holds(F.col("prev.crash_seq") < F.col("seq")))
    orphans = attempts.filter((F.col("kind") == "sent") & ~open_before)
    parts = [
        again.select("run", F.struct("seq", F.lit(0).alias("what"), "id", "value").alias("first")),
        in_use.select(
            "run", F.struct("seq", F.lit(1).alias("what"), "id", F.col("prev.value").alias("value")).alias("first")
        ),
        orphans.select("run", F.struct("seq", F.lit(2).alias("what"), "id", F.lit("").alias("value")).alias("first")),
    ]
    return reduce(DataFrame.unionAll, parts).groupBy("run").agg(F.min("first").alias("first"))


def build(history: DataFrame, promised: DataFrame, keep: Callable[[str, DataFrame], DataFrame]) -> Tables:
    """`keep` gets each table that several rules go over, and returns one that is not made again each time."""
    runs = keep("runs", runs_of(history, promised))
    parts = polled(history)
    keys = keep("partitions", keys_of(history, parts, promised))
    named = F.broadcast(keys.select(*TP, "k"))
    reads = keep("reads of a partition", parts.join(named, [*TP]).drop("topic", "partition"))
    attempts = keep("sends and completions", attempts_of(history))
    sends = sends_of(attempts).join(named, [*TP]).drop("topic", "partition")
    marks = of_kind(history, "watermark").join(named, [*TP]).select(*KEY, "seq", "leader_epoch")
    readers = keep("final readers", final_readers_of(history))
    seen = keep("values at an offset", seen_of(reads, readers))
    found = keep("values", values_of(sends, seen, epochs_of(sends, marks), runs))
    log = keep("offsets", log_of(found, seen))
    values = keep("values in their log", placed(found, log))
    return Tables(history, runs, keys, readers, attempts, sends, reads, values, log)
