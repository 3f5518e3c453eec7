"""G0 and G1c, and what they are with the order of processes and with time (1.4).

Where no operation has several sends or polls, edges of writes and reads make chains along the log, with polls as their leaves;
then any cycle of such edges and of time holds one stretch of a chain that ends before it begins: of a cycle's stretches, the one
with the earliest end is before the begin of every one, its own too. So a running maximum of begins and a running minimum of ends
along each chain say, for a million operations, where cycles are: between the two times of such stretches, merged to islands. What
lies on an island, nearly always nothing, goes to one task by run that looks for the cycles themselves, which no window can do.
Runs with such operations go there whole.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tidelog.chaos.checker.cycles import VARIANTS, Variant
from tidelog.chaos.checker.graph import Edges, Graph, cyclic_parts, shortest_cycle, with_time
from tidelog.chaos.checker.verdict import EXAMPLES_MAX
from tidelog.pipeline.jobs.audit.columns import KEY, before, of_kind, so_far
from tidelog.pipeline.jobs.audit.tables import Tables, rows_of

if TYPE_CHECKING:
    import pyarrow as pa

FOUND: Final = "run int, number int, rule string, count bigint, nodes array<string>, t double, operations array<bigint>"
"""The first few cycles of each rule, with how many it has; `nodes` of one in their order, in words."""
NODE: Final = ("run", "what", "at", "id", "name", "process", "op", "begin", "end", "next", "reader", "by")
CHAIN: Final = (*KEY, "chain")


def cycles(tables: Tables) -> DataFrame:
    """In FOUND."""
    values = _chained(tables)
    polls = _polls(tables, values)
    nodes = _values_as_nodes(values).unionByName(polls)
    operations = nodes.filter("op is not null").select("run").distinct().withColumn("whole", F.lit(True))
    islands = _islands(nodes)
    marked = nodes.join(F.broadcast(operations), "run", "left")
    on_island = marked.filter("whole is null").join(
        F.broadcast(islands),
        (marked.run == islands.island_run) & (marked.late > islands.low) & (marked.early < islands.high),
        "semi",
    )
    chosen = on_island.unionByName(marked.filter("whole")).select(*NODE, F.lit(None).cast("bigint").alias("read"))
    more = (
        rows_of(tables.reads.filter("op is not null"), *KEY, "seq", "op")
        .join(tables.values.select(*KEY, "value", "place"), [*KEY, "value"])
        .select("run", F.lit("read").alias("what"), "op", F.col("place").alias("read"), F.col("seq").alias("at"))
    )
    return chosen.unionByName(more, allowMissingColumns=True).groupBy("run").applyInArrow(_cycles_of_run, FOUND)


def _chained(tables: Tables) -> DataFrame:
    """Values that were sent, with `next` in their log and the latest begin before and earliest end after them in their chain.

    A value counts where it appears first. What must not have committed breaks the chain: of it there is no operation.
    """
    end = F.when(F.col("acked") | F.col("refused"), F.col("ended")).otherwise(F.lit(inf))
    sent = tables.values.filter("sent").select(
        *KEY,
        *("place", "value", "id", "process", "op", "began", "committed", "first"),
        end.alias("end"),
        F.when(F.col("committed"), F.col("read_seq")).alias("reader"),
        F.when(F.col("committed"), F.col("read_t")).alias("reader_end"),
        (F.col("leads") & F.col("committed")).alias("linked"),
    )
    in_key = Window.partitionBy(*KEY).orderBy("first")
    gaps = tables.values.filter("leads and not committed").select(*KEY, "first").withColumn("gap", F.lit(1))
    heads = sent.filter("linked").unionByName(gaps, allowMissingColumns=True)
    linked = (
        heads.withColumn("chain", F.coalesce(F.sum("gap").over(so_far(in_key)), F.lit(0))).filter("linked").drop("gap")
    )
    alone = sent.filter("not linked").withColumn("chain", -1 - F.col("place"))
    in_chain = Window.partitionBy(*CHAIN).orderBy("first")
    # Backwards, since Spark goes over all rows that follow anew for each row of a window that reaches to the end.
    from_its_end = Window.partitionBy(*CHAIN).orderBy(F.desc("first"))
    return linked.unionByName(alone).select(
        "*",
        F.lead("place").over(in_chain).alias("next"),
        F.max("began").over(so_far(in_chain)).alias("late"),
        F.min(F.least("end", "reader_end")).over(so_far(from_its_end)).alias("early"),
    )


def _values_as_nodes(values: DataFrame) -> DataFrame:
    return values.select(
        "run",
        F.lit("value").alias("what"),
        F.col("place").alias("at"),
        "id",
        F.col("value").alias("name"),
        *("process", "op"),
        F.col("began").alias("begin"),
        *("end", "next", "reader"),
        F.col("committed").alias("by"),
        *("late", "early"),
    )


def _polls(tables: Tables, values: DataFrame) -> DataFrame:
    latest_writer = (
        values.filter("reader is not null")
        .groupBy("run", F.col("reader").alias("seq"))
        .agg(F.max("late").alias("writer"))
    )
    polls = of_kind(tables.history, "polled").select(
        *("run", "seq", "id", "process", "began", "t"), F.when(F.size("records") > 0, F.col("op")).alias("op")
    )
    return polls.join(latest_writer, ["run", "seq"], "left").select(
        "run",
        F.lit("poll").alias("what"),
        F.col("seq").alias("at"),
        "id",
        F.lit("").alias("name"),
        *("process", "op"),
        F.col("began").alias("begin"),
        F.col("t").alias("end"),
        F.lit(None).cast("bigint").alias("next"),
        F.lit(None).cast("bigint").alias("reader"),
        F.lit(True).alias("by"),
        F.greatest("began", "writer").alias("late"),
        F.col("t").alias("early"),
    )


def _islands(nodes: DataFrame) -> DataFrame:
    """Stretches of time that something on a chain goes back over, merged where they overlap."""
    back = nodes.filter("late > early").select("run", F.col("early").alias("low"), F.col("late").alias("high"))
    order = Window.partitionBy("run").orderBy("low", "high")
    apart = F.when(F.max("high").over(before(order)) >= F.col("low"), 0).otherwise(1)
    merged = back.withColumn("apart", apart).withColumn("island", F.sum("apart").over(so_far(order)))
    return merged.groupBy(F.col("run").alias("island_run"), "island").agg(
        F.min("low").alias("low"), F.max("high").alias("high")
    )


class Cycle(NamedTuple):
    """In the order of FOUND, from `rule` on."""

    rule: str
    found: int
    """How many of this rule there are."""
    nodes: list[str]
    t: float
    operations: list[int]


class Operations:
    """The nodes of one run: values and polls in their order in the history, then operations of several of them.

    A value or a poll that belongs to such an operation leaves its own node without edges.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        values = sorted((row for row in rows if row["what"] == "value"), key=lambda row: int(row["at"]))
        polls = sorted((row for row in rows if row["what"] == "poll"), key=lambda row: int(row["at"]))
        self.rows = [*values, *polls]
        self.ops = sorted({row["op"] for row in self.rows if row["op"] is not None})
        self._node_of_op = {op: len(self.rows) + i for i, op in enumerate(self.ops)}
        self.members: dict[int, list[int]] = defaultdict(list)
        for node, row in enumerate(self.rows):
            if row["op"] is not None:
                self.members[row["op"]].append(node)
        self._values = {row["at"]: node for node, row in enumerate(values)}
        self._polls = {row["at"]: node for node, row in enumerate(polls, len(values))}
        self.begins = [row["begin"] for row in self.rows]
        self.ends = [row["end"] for row in self.rows]
        for op in self.ops:
            self.begins.append(min(self.begins[node] for node in self.members[op]))
            self.ends.append(max(self.ends[node] for node in self.members[op]))
        self.ww: dict[int, set[int]] = defaultdict(set)
        self.wr: dict[int, set[int]] = defaultdict(set)
        self._draw([row for row in rows if row["what"] == "read"])

    def node(self, own: int) -> int:
        op = self.rows[own]["op"]
        return own if op is None else self._node_of_op[op]

    def _draw(self, reads: Sequence[Mapping[str, Any]]) -> None:
        for own in self._values.values():
            row, node = self.rows[own], self.node(own)
            if row["next"] in self._values:
                self.ww[node].add(self.node(self._values[row["next"]]))
            if row["reader"] in self._polls:
                self.wr[node].add(self.node(self._polls[row["reader"]]))
        for read in reads:
            if (own_value := self._values.get(read["read"])) is not None and self.rows[own_value]["by"]:
                self.wr[self.node(own_value)].add(self._node_of_op[read["op"]])
        for edges in (self.ww, self.wr):
            for node in edges:
                edges[node].discard(node)

    def process(self, node: int) -> str:
        own = node if node < len(self.rows) else self.members[self.ops[node - len(self.rows)]][0]
        return str(self.rows[own]["process"])

    def told(self, node: int) -> str:
        if node >= len(self.rows):
            return f"operation {self.ops[node - len(self.rows)]}"
        row = self.rows[node]
        return f"send of {row['name']!r}" if row["what"] == "value" else f"poll {row['id']} of {row['process']}"

    def ids(self, node: int) -> list[int]:
        nodes = (node,) if node < len(self.rows) else self.members[self.ops[node - len(self.rows)]]
        return [self.rows[each]["id"] for each in nodes]

    def left(self) -> list[int]:
        """What is in a cycle or behind one."""
        graph = Graph(self.begins, self.ends)
        for node in range(len(self.begins)):
            graph.add(self.ww[node] | self.wr[node])
        return graph.left_by_peeling()


def _cycles_of_run(table: "pa.Table") -> "pa.Table":
    import pyarrow as pa

    rows = table.to_pylist()
    found = _named(Operations(rows)) if rows else []
    run = rows[0]["run"] if rows else 0
    rules, counts, nodes, times, ids = zip(*found, strict=True) if found else ((), (), (), (), ())
    columns = {
        "run": pa.array([run] * len(found), pa.int32()),
        "number": pa.array(range(len(found)), pa.int32()),
        "rule": pa.array(rules, pa.string()),
        "count": pa.array(counts, pa.int64()),
        "nodes": pa.array(nodes, pa.list_(pa.string())),
        "t": pa.array(times, pa.float64()),
        "operations": pa.array(ids, pa.list_(pa.int64())),
    }
    return pa.table(columns)


def _named(operations: Operations) -> list["Cycle"]:
    """A cycle has the smallest name that fits; the first few of each name are told."""
    left = operations.left()
    within = set(left)
    ww: Edges = {node: sorted(operations.ww[node] & within) for node in left}
    wr: Edges = {node: sorted(operations.wr[node] & within) for node in left}
    clients: dict[str, list[int]] = defaultdict(list)
    for node in left:
        clients[operations.process(node)].append(node)
    groups = {"": (), "process": tuple(clients.values()), "realtime": (left,)}
    named: dict[Variant, set[int]] = {}
    found: list[Cycle] = []
    for variant in VARIANTS:
        chosen = {node: [*(ww[node] if variant.ww else ()), *(wr[node] if variant.wr else ())] for node in left}
        edges = with_time(chosen, groups[variant.order], operations.begins, operations.ends)
        smaller: set[int] = set().union(*(nodes for other, nodes in named.items() if other.within(variant)))
        named[variant] = set()
        mine = 0
        for part in cyclic_parts(edges):
            named[variant].update(part)
            if smaller.isdisjoint(part):
                mine += 1
                if mine <= EXAMPLES_MAX:
                    found.append(_cycle(variant.name, operations, shortest_cycle(edges, min(part))))
        found = [each._replace(found=mine) if each.rule == variant.name else each for each in found]
    return found


def _cycle(rule: str, operations: Operations, nodes: Sequence[int]) -> Cycle:
    t = max((operations.begins[node] for node in nodes), default=0.0)
    ids = [each for node in nodes for each in operations.ids(node)]
    return Cycle(rule, 0, [operations.told(node) for node in nodes], t, ids)
