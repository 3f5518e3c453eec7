"""Where the rules put what they find: rows of one schema, that carry what an example needs to be told.

A row names values and polls; what is known of them is looked up for the few that are told, and put into words on the driver.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tidelog.chaos.checker.verdict import EXAMPLES_MAX

SCHEMA: Final = (
    "run int, rule string, by1 bigint, by2 bigint, by3 bigint, k int, t double, "
    "names array<string>, polls array<bigint>, numbers array<bigint>, words array<string>"
)
"""`by1` to `by3` order the findings of a rule; `names` are values of the key `k`, `polls` the numbers of their records."""


def finding(
    frame: DataFrame,
    rule: str | Column,
    *,
    by: Sequence[str | Column],
    k: str | None = "k",
    t: str | Column | None = None,
    names: Sequence[str] = (),
    polls: Sequence[str] = (),
    numbers: Sequence[str | Column] = (),
    words: Sequence[str] = (),
    listed: str | None = None,
) -> DataFrame:
    """`names`: columns with values, or `listed`, one with a list of them; `polls`: columns with record numbers of polls."""
    order = [*by, *(F.lit(0) for _ in range(3 - len(by)))]
    return frame.select(
        F.col("run"),
        (F.lit(rule) if isinstance(rule, str) else rule).alias("rule"),
        *(F.col(each) if isinstance(each, str) else each for each in order),
        (F.lit(None) if k is None else F.col(k)).cast("int"),
        (F.lit(None) if t is None else F.col(t) if isinstance(t, str) else t).cast("double"),
        (F.array(*names) if listed is None else F.col(listed)).cast("array<string>"),
        F.array(*polls).cast("array<bigint>"),
        F.array(*numbers).cast("array<bigint>"),
        F.array(*words).cast("array<string>"),
    ).toDF(*COLUMNS)


COLUMNS: Final = tuple(each.split()[0] for each in SCHEMA.split(", "))


def told(frames: Sequence[DataFrame]) -> DataFrame:
    """The first few of each rule and run, each with how many there are (`count`)."""
    findings = reduce(DataFrame.unionAll, frames)
    rule = Window.partitionBy("run", "rule")
    return (
        findings.withColumn("count", F.count(F.lit(1)).over(rule))
        .withColumn("number", F.row_number().over(rule.orderBy("by1", "by2", "by3")))
        .filter(F.col("number") <= EXAMPLES_MAX)
    )
