"""X5: one owner, commits that never go back and never run ahead, nothing passed over, and nothing twice without a reason.

Where a group or a member stands is a running maximum over its records in a key. A tenure is a member's time with a key, from one
assignment to the next. What was processed before a span began is a union of stretches that grows; how much of the span lies in
it is counted offset by offset, for the few spans that begin below where the group was.
"""

from collections.abc import Iterator
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tidelog.pipeline.jobs.audit.columns import KEY, before, holds, of_kind, place, so_far
from tidelog.pipeline.jobs.audit.findings import finding
from tidelog.pipeline.jobs.audit.tables import Tables

GROUP: Final = ("run", "group", "k")
TENURE: Final = (*GROUP, "process", "tenure")
TERM: Final = ("coordinator_epoch", "generation")
BUCKET: Final = 1024


def groups(tables: Tables) -> Iterator[DataFrame]:
    owned, spans, commits = _owned(tables), _spans(tables), _commits(tables)
    touched = _touched(tables, owned, spans, commits)
    yield _two_owners(owned)
    yield _commits_fell(commits, touched)
    yield _commits_ahead(tables, spans, commits)
    yield from _duplicates(tables, _in_tenures(tables, spans, commits))
    yield _skipped(tables, spans, commits, touched)


def _owned(tables: Tables) -> DataFrame:
    """A row a key that an assignment to a member of a group names."""
    records = of_kind(tables.history, "assigned").filter(F.col("group").isNotNull())
    named = records.select(
        *("run", "group", "process", "seq", "t", *TERM), F.explode(F.array_distinct("owned")).alias("tp")
    )
    return tables.numbered(named.select("*", "tp.topic", "tp.partition").drop("tp"))


def _spans(tables: Tables) -> DataFrame:
    """A row a stretch that a member processed; `end` is exclusive."""
    each = of_kind(tables.history, "processed").select(
        *("run", "group", "process", "seq", "t"), F.posexplode("spans").alias("pos", "span")
    )
    return tables.numbered(
        each.select(
            *("run", "group", "process", "seq", "t", "span.topic", "span.partition"),
            place(position="pos").alias("at"),
            F.col("span.first").alias("start"),
            (F.col("span.last") + 1).alias("end"),
        )
    )


def _commits(tables: Tables) -> DataFrame:
    each = of_kind(tables.history, "committed").select(
        *("run", "group", "process", "seq", "t", "outcome", *TERM), F.posexplode("positions").alias("pos", "position")
    )
    return tables.numbered(
        each.select(
            *("run", "group", "process", "seq", "t", "outcome", *TERM, "position.topic", "position.partition"),
            place(position="pos").alias("at"),
            F.col("position.offset").alias("offset"),
        )
    )


def _touched(tables: Tables, owned: DataFrame, spans: DataFrame, commits: DataFrame) -> DataFrame:
    """By group and key, when the group first had to do with it, and when with anything (`group_at`)."""
    claims = owned.select(*GROUP, place(position="k").alias("at"))
    every = claims.unionAll(spans.select(*GROUP, "at")).unionAll(commits.select(*GROUP, "at"))
    records = of_kind(tables.history, "assigned", "processed", "committed").filter(F.col("group").isNotNull())
    groups_at = records.groupBy("run", "group").agg(F.min(place()).alias("group_at"))
    return every.groupBy(*GROUP).agg(F.min("at").alias("key_at")).join(F.broadcast(groups_at), ["run", "group"])


def _two_owners(owned: DataFrame) -> DataFrame:
    term = Window.partitionBy(*GROUP, *TERM).orderBy("seq")
    claims = owned.filter("generation is not null and coordinator_epoch is not null")
    others = claims.withColumn("owner", F.first("process").over(so_far(term))).filter("owner <> process")
    return finding(
        others,
        "group-two-owners",
        by=("seq", "k"),
        t="t",
        numbers=("generation", "coordinator_epoch"),
        words=("group", "process", "owner"),
    )


def _commits_fell(commits: DataFrame, touched: DataFrame) -> DataFrame:
    """In the order of terms, not of time: the answer to an evicted member's commit may come long after its term."""
    order = Window.partitionBy(*GROUP).orderBy(*TERM, "at")
    highest = F.max(F.struct("offset", *TERM, "at", "process")).over(before(order))
    fell = (
        commits.filter("outcome = 'ok'")
        .withColumn("highest", highest)
        .filter("offset < highest.offset")
        .join(F.broadcast(touched), [*GROUP])
        .withColumn("turn", F.row_number().over(Window.partitionBy(*GROUP).orderBy(*TERM, "at")))
    )
    return finding(
        fell,
        "group-commit-fell",
        by=("group_at", "key_at", "turn"),
        t="t",
        numbers=("offset", "highest.offset", "generation"),
        words=("group", "process", "highest.process"),
    )


def _commits_ahead(tables: Tables, spans: DataFrame, commits: DataFrame) -> DataFrame:
    """What was refused for certain has committed nothing, yet must not have run ahead either."""
    starts = (
        tables.numbered(
            tables.of_runs(of_kind(tables.history, "watermark"), "records_expire")
            .filter("records_expire and log_start > 0")
            .select("run", "topic", "partition", "log_start", "seq")
        )
        .groupBy(*KEY, "log_start")
        .agg(F.min("seq").alias("seq"))
        .groupBy(*KEY)
        .agg(F.collect_list(F.struct("seq", "log_start")).alias("starts"))
    )
    moves = spans.select(
        *GROUP, "seq", "at", "t", "process", "end", F.lit(None).alias("offset"), F.lit(None).alias("outcome")
    )
    asks = commits.select(*GROUP, "seq", "at", "t", "process", F.lit(None).alias("end"), "offset", "outcome")
    order = before(Window.partitionBy(*GROUP).orderBy("at"))
    stood = (
        moves.unionAll(asks)
        .withColumn("done", F.coalesce(F.max("end").over(order), F.lit(0)))
        .withColumn("committed", F.max(F.when(F.col("outcome") != "fail", F.col("offset"))).over(order))
        .filter("offset is not null")
        .join(F.broadcast(starts), [*KEY], "left")
    )
    start = F.array_max(
        F.transform(F.filter("starts", lambda each: each.seq < F.col("seq")), lambda each: each.log_start)
    )
    ahead = stood.filter(F.col("offset") > F.greatest("done", "committed", start))
    return finding(
        ahead,
        "group-commit-ahead",
        by=("at",),
        t="t",
        numbers=("offset", F.col("done") - 1),
        words=("group", "process"),
    )


def _in_tenures(tables: Tables, spans: DataFrame, commits: DataFrame) -> DataFrame:
    """Spans with their tenure, where the group was and what it had `committed` when that began, and `next`: after what the
    member has processed."""
    acknowledged = commits.filter("outcome = 'ok'").select(*GROUP, "at", F.col("offset").alias("commit"))
    events = (
        spans.select(*GROUP, "process", "at", "t", "start", "end")
        .unionByName(_tenures(tables), allowMissingColumns=True)
        .unionByName(acknowledged, allowMissingColumns=True)
    )
    of_group = before(Window.partitionBy(*GROUP).orderBy("at"))
    stood = (
        events.withColumn("done", F.coalesce(F.max("end").over(of_group), F.lit(0)))
        .withColumn("known", F.coalesce(F.max("commit").over(of_group), F.lit(0)))
        .filter(F.col("commit").isNull())
    )
    of_member = Window.partitionBy(*GROUP, "process").orderBy("at")
    tenured = stood.withColumn("tenure", F.sum(F.when(F.col("end").isNull(), 1).otherwise(0)).over(so_far(of_member)))
    tenure = Window.partitionBy(*TENURE).orderBy("at")
    return (
        tenured.withColumn("found_at", F.first("done").over(so_far(tenure)))
        .withColumn("committed", F.first("known").over(so_far(tenure)))
        .withColumn("next", F.coalesce(F.max("end").over(before(tenure)), F.lit(0)))
        .filter("end is not null")
    )


def _tenures(tables: Tables) -> DataFrame:
    """Assignments of a key to a member that did not have it."""
    records = of_kind(tables.history, "assigned", "revoked", "lost").filter(F.col("group").isNotNull())
    owned = F.col("owned")
    named = records.select("run", "process", F.explode(owned).alias("tp")).distinct()
    keys = tables.numbered(named.select("run", "process", "tp.topic", "tp.partition")).join(
        F.broadcast(tables.keys), [*KEY]
    )
    each = (
        records.select("run", "group", "process", "seq", "t", "kind", "owned")
        .join(keys, ["run", "process"])
        .withColumn(
            "named", F.exists("owned", lambda o: (o.topic == F.col("topic")) & (o.partition == F.col("partition")))
        )
    )
    changes = each.filter("named or kind = 'assigned'").withColumn("owns", F.expr("named and kind = 'assigned'"))
    order = Window.partitionBy("run", "process", "k").orderBy("seq")
    had = holds(F.lag("owns").over(order))
    return (
        changes.withColumn("begins", F.col("owns") & ~had)
        .filter("begins")
        .select(*GROUP, "process", "t", place().alias("at"))
    )


def _duplicates(tables: Tables, spans: DataFrame) -> Iterator[DataFrame]:
    again = spans.filter("start < next")
    yield finding(
        again,
        "group-duplicates",
        by=("at", F.lit(0)),
        t="t",
        numbers=("start", F.col("next") - 1),
        words=("group", "process"),
    )
    fresh = spans.withColumn("fresh", F.greatest("start", "next")).filter("fresh < end and fresh < done")
    offsets = fresh.withColumn("offset", F.explode(F.sequence("fresh", F.least("end", "done") - 1)))
    covers = spans.select(
        *GROUP,
        F.col("at").alias("covered_at"),
        F.col("start").alias("covered_from"),
        F.col("end").alias("covered_to"),
        F.explode(F.sequence(F.expr(f"start div {BUCKET}"), F.expr(f"greatest(start, end - 1) div {BUCKET}"))).alias(
            "bucket"
        ),
    )
    known = offsets.withColumn("bucket", F.expr(f"offset div {BUCKET}")).join(covers, [*GROUP, "bucket"])
    again = (
        known.filter("covered_at < at and covered_from <= offset and offset < covered_to")
        .withColumn("taken_over", F.col("offset") < F.col("found_at"))
        .select(*TENURE, "at", "t", "fresh", "committed", "offset", "taken_over")
        .distinct()
    )
    yield finding(
        again.filter("offset < committed").dropDuplicates([*TENURE, "at"]),
        "group-duplicates",
        by=("at", F.lit(1)),
        t="t",
        numbers=("fresh", "committed"),
        words=("group", "process"),
    )
    repeated = again.groupBy(*TENURE, "taken_over", "at", "t").agg(F.count(F.lit(1)).alias("count"))
    total = F.sum("count").over(so_far(Window.partitionBy(*TENURE, "taken_over").orderBy("at")))
    crossing = (
        tables.of_runs(repeated, "in_hand_max")
        .withColumn("total", total)
        .filter("total - count <= in_hand_max and in_hand_max < total")
    )
    yield finding(
        crossing,
        "group-duplicates",
        by=("at", F.when(F.col("taken_over"), 2).otherwise(3)),
        t="t",
        numbers=("total", "in_hand_max"),
        words=("group", "process"),
    )


def _skipped(tables: Tables, spans: DataFrame, commits: DataFrame, touched: DataFrame) -> DataFrame:
    """Values that were acknowledged, are in the log at last, and lie in no span. Every key of a group's topics is the group's."""
    of_topics = (
        touched.select("run", "group", "k", "group_at")
        .join(F.broadcast(tables.keys), [*KEY])
        .select("run", "group", "group_at", "topic")
        .distinct()
        .join(F.broadcast(tables.keys), ["run", "topic"])
        .select(*GROUP, "group_at", "log_start")
    )
    done = spans.groupBy(*GROUP).agg(F.max("end").alias("done"))
    offered = commits.filter("outcome <> 'fail'").groupBy(*GROUP).agg(F.max("offset").alias("committed"))
    stand = (
        of_topics.join(done, [*GROUP], "left")
        .join(offered, [*GROUP], "left")
        .withColumn("position", F.greatest(F.coalesce("done", F.lit(0)), F.coalesce("committed", F.lit(0))))
    )
    wanted = (
        tables.log.filter("picked")
        .join(F.broadcast(tables.of_runs(stand, "complete")), [*KEY])
        .filter("offset >= log_start and (offset < position or complete)")
    )
    missed = _in_no_span(wanted, spans).join(
        tables.values.filter(F.col("acked")).select(*KEY, "value", "present", F.col("offset").alias("found")),
        [*KEY, "value"],
    )
    judged = tables.of_runs(missed, "final_judged").filter(F.col("present") | ~F.col("final_judged"))
    rule = F.when(F.col("offset") < F.col("position"), "group-skipped").otherwise("group-unprocessed")
    return finding(
        judged,
        rule,
        by=("group_at", "k", "offset"),
        names=("value",),
        numbers=("position", "offset"),
        words=("group",),
    )


def _in_no_span(offsets: DataFrame, spans: DataFrame) -> DataFrame:
    """Rows whose offset is not below the highest end of a span that starts at or before it."""
    begins = spans.groupBy(*GROUP, F.col("start").alias("offset")).agg(F.max("end").alias("end"))
    both = offsets.unionByName(begins, allowMissingColumns=True)
    order = Window.partitionBy(*GROUP).orderBy("offset", F.col("end").isNull())
    reached = both.withColumn("reached", F.max("end").over(so_far(order)))
    return reached.filter("end is null and (reached is null or reached <= offset)").drop("end", "reached")
