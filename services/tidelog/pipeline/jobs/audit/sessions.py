"""The order in which one client saw, and one client sent: Jepsen's int-, poll- and send- rules (1.4), by windows.

What a consumer has read of a key is the row before in a window over its reads and its changes of ownership; where offsets jump,
the distance of their ranks in the version order says what was passed over.
"""

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tidelog.pipeline.jobs.audit.columns import KEY, VALUE, before, holds, latest, of_kind, place
from tidelog.pipeline.jobs.audit.findings import finding
from tidelog.pipeline.jobs.audit.tables import Tables, rows_of

CLIENT = ("run", "process", "k")


def sessions(tables: Tables) -> Iterator[DataFrame]:
    yield _polls(tables)
    yield _sends(tables)
    yield _precommitted(tables)


def _polls(tables: Tables) -> DataFrame:
    ranks = tables.ranks()
    jumps = (
        _jumps(tables)
        .join(ranks, [*KEY, "offset"])
        .join(ranks.select(*KEY, F.col("offset").alias("before"), F.col("rank").alias("rank_before")), [*KEY, "before"])
        .withColumn("distance", F.col("rank") - F.col("rank_before"))
        .filter("distance <> 1")
    )
    forward, subscribed = F.col("distance") > 1, F.col("subscribed")
    rule = (
        F.when(F.col("inner"), F.when(forward, "int-poll-skip").otherwise("int-nonmonotonic-poll"))
        .when(subscribed, F.when(forward, "poll-skip (subscribed)").otherwise("nonmonotonic-poll (subscribed)"))
        .otherwise(F.when(forward, "poll-skip").otherwise("nonmonotonic-poll"))
    )
    return finding(
        jumps,
        rule,
        by=("at", "number"),
        t="t",
        polls=("seq",),
        numbers=("offset", "before", "distance"),
    )


def _jumps(tables: Tables) -> DataFrame:
    """Records that were read after another one, at an offset that is not the next.

    A key that a client lost has no position (`taken`, `gone`); one that an assignment names again keeps it. Within a poll
    whatever changed hands meanwhile may jump.
    """
    reads = tables.reads.select(
        *CLIENT,
        *("seq", "t", "began", "op", "first", "last"),
        F.lit("read").alias("what"),
        place(position="pos").alias("at"),
        F.col("group").isNotNull().alias("subscribed"),
        _inner_jumps().alias("inner_jumps"),
    )
    events = reads.unionByName(_changes(tables), allowMissingColumns=True)
    order = Window.partitionBy(*CLIENT).orderBy("at")
    position = latest(F.when(F.col("what") != "named", F.struct("what", "last")), before(order))
    stood = events.withColumn("position", position)
    has_position = holds(F.col("position.what") == "read")
    changed = F.when(
        (F.col("what") == "taken")
        | ((F.col("what") == "gone") & has_position)
        | ((F.col("what") == "named") & ~has_position),
        F.col("t"),
    )
    read = (
        stood.withColumn("changed", changed)
        .withColumn("changed_at", latest(F.col("changed"), before(order)))
        .withColumn("op_before", latest(F.when(F.col("what") == "read", F.col("op")), before(order)))
        .filter("what = 'read'")
        .withColumn("before", F.when(F.col("position.what") == "read", F.col("position.last")))
    )
    kept = ("run", "k", "seq", "t", "at", "subscribed")
    outer = read.filter("first <> before + 1").select(
        *kept,
        *("before", F.col("first").alias("offset")),
        holds(F.col("op") == F.col("op_before")).alias("inner"),
        F.lit(0).cast("bigint").alias("number"),
    )
    unchanged = ~holds(F.col("changed_at") >= F.col("began"))
    inner = read.filter(unchanged & (F.size("inner_jumps") > 0)).select(*kept, F.explode("inner_jumps").alias("jump"))
    return outer.unionByName(
        inner.select(
            *kept,
            F.col("jump.before").alias("before"),
            F.col("jump.offset").alias("offset"),
            F.lit(True).alias("inner"),
            F.col("jump.number").alias("number"),
        )
    )


def _inner_jumps() -> Column:
    pairs = F.transform(
        F.slice("rs", 2, F.size("rs")),
        lambda r, i: F.struct(
            F.get("rs", i)["offset"].alias("before"), r.offset.alias("offset"), (i + 1).cast("bigint").alias("number")
        ),
    )
    return F.filter(pairs, lambda pair: pair.offset != pair.before + 1)


def _changes(tables: Tables) -> DataFrame:
    """What became of the keys that a client has read whenever its assignment changed."""
    keys = tables.reads.select(*CLIENT).distinct()
    known = keys.join(F.broadcast(tables.keys), ["run", "k"])
    records = of_kind(tables.history, "assigned", "revoked", "lost").select(
        "run", "process", "seq", "t", "kind", "owned"
    )
    named = F.exists("owned", lambda o: (o.topic == F.col("topic")) & (o.partition == F.col("partition")))
    what = F.when(F.col("kind") == "assigned", F.when(named, "named").otherwise("gone")).when(named, "taken")
    changes = records.join(known, ["run", "process"]).withColumn("what", what).filter("what is not null")
    return changes.select(*CLIENT, "seq", "t", "what", place().alias("at"))


def _sends(tables: Tables) -> DataFrame:
    """By process and key, in the order of the attempts; what failed for certain, or what nobody saw, says nothing."""
    seen = tables.of_runs(tables.values.filter("first is not null and sent and not refused"), "idempotent")
    order = Window.partitionBy("run", "process", "k").orderBy("place")
    columns = ("first", "op", "acked", "acks", "value")
    pairs = seen.select(*seen.columns, *(F.lag(name).over(order).alias(f"{name}_before") for name in columns)).filter(
        "first_before is not null"
    )
    same = holds(F.col("op") == F.col("op_before"))
    back, ahead = F.col("first") < F.col("first_before"), F.col("first") > F.col("first_before") + 1
    late = ~F.col("acked_before") & ~(F.col("idempotent") & (F.col("acks_before") == "all"))
    rule = F.when(same, F.when(back, "int-nonmonotonic-send").when(ahead, "int-send-skip")).when(
        back, F.when(late, "nonmonotonic-send (unknown)").otherwise("nonmonotonic-send")
    )
    broken = pairs.withColumn("rule", rule).filter("rule is not null")
    return finding(broken, F.col("rule"), by=("place",), t="began", names=("value_before", "value"))


def _precommitted(tables: Tables) -> DataFrame:
    """An operation read its own send."""
    reads = rows_of(tables.reads.filter("op is not null"), *KEY, "seq", "op")
    own = reads.join(tables.values.filter("op is not null").select(*VALUE, F.col("op").alias("own")), [*VALUE])
    return finding(
        own.filter("op = own"),
        "precommitted-read",
        by=(place(position="pos"),),
        names=("value",),
        polls=("seq",),
        numbers=("op",),
    )
