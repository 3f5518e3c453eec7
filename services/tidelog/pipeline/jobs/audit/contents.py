"""What is in the log, and what should be: the rules over values and offsets of 1.4, lost as in 1.5, X1 and X3."""

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tidelog.ids import NO_OFFSET
from tidelog.pipeline.jobs.audit.columns import KEY, holds, place
from tidelog.pipeline.jobs.audit.findings import finding
from tidelog.pipeline.jobs.audit.tables import Tables, rows_of


def contents(tables: Tables) -> Iterator[DataFrame]:
    yield from _offsets(tables)
    yield from _reads(tables)
    yield _lost_writes(tables)
    yield from _unseen(tables)
    yield from _missing(tables)
    yield _final_differs(tables)


def _offsets(tables: Tables) -> Iterator[DataFrame]:
    shared = tables.log.filter("shared").groupBy(*KEY, "offset").agg(F.collect_list("value").alias("names"))
    yield finding(shared, "inconsistent-offsets", by=("k", "offset"), numbers=("offset",), listed="names")
    several = tables.of_runs(tables.values.filter("first <> last"), "idempotent")
    once = F.col("idempotent") & holds(F.col("acks") == "all")
    rule = F.when(once, "duplicate").otherwise("duplicate (not idempotent)")
    yield finding(several, rule, by=("place",), names=("value",))


def _reads(tables: Tables) -> Iterator[DataFrame]:
    read = tables.values.filter("read_at is not null and (refused or not sent)")
    yield finding(read, F.when(F.col("refused"), "G1a").otherwise("never-sent"), by=("place",), names=("value",))


def _lost_writes(tables: Tables) -> DataFrame:
    """`bound` is the highest first rank of a value that was read, which is the witness."""
    values = tables.values
    read = values.filter("read_at is not null")
    bounds = read.groupBy(*KEY).agg(F.max("first").alias("bound"))
    witnesses = (
        read.join(F.broadcast(bounds), [*KEY])
        .filter("first = bound")
        .groupBy(*KEY, "bound")
        .agg(F.min_by("value", "place").alias("witness"))
    )
    missed = values.filter("read_at is null and last is not null and committed and not excused")
    lost = missed.join(F.broadcast(witnesses), [*KEY]).filter("last <= bound")
    return finding(_kept(tables, lost, F.col("offset")), "lost-write", by=("place",), names=("value", "witness"))


def _kept(tables: Tables, frame: DataFrame, offset: Column) -> DataFrame:
    """Without what is below the log start: retention took it."""
    starts = frame.join(F.broadcast(tables.keys.select(*KEY, "log_start")), [*KEY])
    return starts.filter(~holds((offset > NO_OFFSET) & (offset < F.col("log_start"))))


def _unseen(tables: Tables) -> Iterator[DataFrame]:
    """At the end of the final phase: what was acknowledged and nobody has read is lost, or its consumers are stuck."""
    missed = tables.of_runs(tables.values.filter("read_at is null and acked"), "complete").filter("complete")
    rule = F.when(F.col("excused"), "allowed-loss").otherwise("unseen")
    yield finding(_kept(tables, missed, F.col("acked_at")), rule, by=("place",), names=("value",))


def _missing(tables: Tables) -> Iterator[DataFrame]:
    """X1: everything that was acknowledged or read is in the final read."""
    wanted = tables.values.filter("not present and not excused and (acked or read_at is not null)")
    missing = tables.of_runs(wanted, "final_judged").filter("final_judged")
    rule = F.when(F.col("acked"), "lost-acked").otherwise("final-incomplete")
    yield finding(_kept(tables, missing, F.col("offset")), rule, by=("place",), names=("value",))


def _final_differs(tables: Tables) -> DataFrame:
    """X1: all readers of the final phase saw the same; one that was thrown away must agree as far as it came."""
    final = tables.reads.filter("final")
    sizes = final.groupBy(*KEY, "process").agg(F.sum(F.size("rs")).alias("size"))
    every = (
        tables.keys.select(*KEY)
        .join(tables.readers, "run")
        .join(sizes, [*KEY, "process"], "left")
        .fillna(0, ["size"])
        .withColumn(
            "number",
            F.row_number().over(Window.partitionBy(*KEY).orderBy(F.desc("size"), "reader_seq")),
        )
    )
    longest = every.filter("number = 1").select(*KEY, F.col("process").alias("longest"), F.col("size").alias("whole"))
    pairs = every.filter("number > 1").join(longest, [*KEY])
    records = _numbered(final)
    mismatches = _first_mismatch(records, every)
    judged = pairs.join(mismatches, [*KEY, "process"], "left").filter(
        "at is not null or (whole <> size and not crashed)"
    )
    differ = tables.of_runs(judged, "final_judged", "polls_end").filter("final_judged")
    of_whole = records.select(*KEY, "i", F.col("process").alias("longest"), F.struct("offset", "value").alias("saw"))
    of_other = records.select(*KEY, "i", "process", F.struct("offset", "value").alias("other_saw"))
    shown = (
        differ.withColumn("i", F.coalesce("at", "size"))
        .join(of_whole, [*KEY, "i", "longest"], "left")
        .join(of_other, [*KEY, "i", "process"], "left")
    )
    return finding(
        shown,
        "final-differs",
        by=("k", "number"),
        t="polls_end",
        numbers=("i", "saw.offset", "other_saw.offset"),
        words=("longest", "process", "saw.value", "other_saw.value"),
    )


def _numbered(final: DataFrame) -> DataFrame:
    """Records of the final phase with their number `i` in what their reader saw of their key."""
    order = Window.partitionBy(*KEY, "process").orderBy(place(position="pos"))
    return rows_of(final, *KEY, "process", "seq").select(
        *KEY, *("process", "offset", "value"), (F.row_number().over(order) - 1).alias("i")
    )


def _first_mismatch(numbered: DataFrame, every: DataFrame) -> DataFrame:
    """By key and reader but the longest, the first record (`at`) in which it differs from the longest."""
    ranked = numbered.join(F.broadcast(every.select(*KEY, "process", "number")), [*KEY, "process"])
    whole = ranked.filter("number = 1").select(
        *KEY, "i", F.col("offset").alias("whole_offset"), F.col("value").alias("whole_value")
    )
    differ = (
        ranked.filter("number > 1").join(whole, [*KEY, "i"]).filter("offset <> whole_offset or value <> whole_value")
    )
    return differ.groupBy(*KEY, "process").agg(F.min("i").alias("at"))
