"""Event-time windows over topics, back into a topic as JSON records.

As a program:

    spark-submit --master spark://HOST:7077 .../tidelog/pipeline/jobs/aggregate.py --topic events --to per-minute \\
        --window '1 minute' --group-by .city --sum .amount --checkpoint DIR

A result is {"window_start": ..., "window_end": ..., GROUP: ..., "count": ..., "sum_FIELD": ...}; its key is the group. What is
not known is left out: the group of records that have none, the sum of a field that no record has. Numbers are taken with up to
19 digits before the point and nine behind it; others count as corrupt, as what is no JSON does.

Spark repeats a micro-batch that was not finished; the sink finds out which of its results are in the topic already, so that
each is there once (--delivery exactly-once, the default), or writes them again (at-least-once).
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import functions as F

from tidelog.pipeline.jobs.flags import AGGREGATE
from tidelog.pipeline.jobs.plans import OUTPUT_MODE, AggregatePlan, Field, Measure, aggregate_plan
from tidelog.pipeline.jobs.program import run_program
from tidelog.pipeline.jobs.progress import OBSERVED
from tidelog.pipeline.jobs.values import TIMES, number_of, text_of, time_of, whole_json

SHUFFLE_PARTITIONS: Final = "8"
"""Tasks that hold windows, fixed with the checkpoint. Spark's 200 would be 200 files of state in each micro-batch."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    plan: AggregatePlan

    name = "aggregate"
    output = None

    @property
    def to(self) -> str:
        return self.plan.to

    def source_options(self) -> Mapping[str, str]:
        return self.plan.input.options()

    def settings(self) -> Mapping[str, str]:
        return {"spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS}

    def writer(self, records: Any, servers: str) -> Any:
        rows = columns(records, self.plan)
        corrupt = F.count(F.when(F.col("corrupt"), 1))
        return (
            results(rows.observe(OBSERVED, corrupt.alias("corrupt")).drop("corrupt"), self.plan)
            .writeStream.format("tidelog")
            .option("kafka.bootstrap.servers", servers)
            .option("topic", self.plan.to)
            .option("delivery", self.plan.delivery)
            .outputMode(OUTPUT_MODE)
        )


def columns(records: Any, plan: AggregatePlan) -> Any:
    """One row a record: `at`, `group` (BINARY, UTF-8 of what is no key), what is measured by its name in the result, and
    `corrupt`: whether something that the plan asks for is there and cannot be read."""
    json = whole_json(text_of(F.col("value")))
    fields = [measure.of for measure in plan.measures if measure.of is not None]
    asked = [*fields, *(each for each in (plan.event_time, plan.group_by) if isinstance(each, Field))]
    at = F.col("timestamp") if plan.event_time is None else time_of(json, plan.event_time)
    broken = [json.isNull()] if asked else []
    broken += [F.get_json_object(json, f.json_path).isNotNull() & number_of(json, f).isNull() for f in fields]
    corrupt = F.lit(False) if not broken else _any(broken)
    return records.select(
        at.alias("at"),
        _group(json, plan.group_by).alias("group"),
        *(_measured(json, measure).alias(measure.name) for measure in plan.measures if measure.function != "count"),
        (corrupt | at.isNull()).alias("corrupt"),
    )


def results(rows: Any, plan: AggregatePlan) -> Any:
    """`key` and `value` of the records that are written."""
    windows = rows.withWatermark("at", f"{plan.watermark_ms} milliseconds").groupBy(
        F.window("at", f"{plan.window_ms} milliseconds", f"{plan.slide_ms} milliseconds").alias("window"),
        F.col("group"),
    )
    found = windows.agg(*(_function(measure) for measure in plan.measures))
    group = plan.group_name()
    value = F.struct(
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        *([text_of(F.col("group")).alias(group)] if group is not None else []),
        *(F.col(f"`{measure.name}`") for measure in plan.measures),
    )
    return found.select(F.col("group").alias("key"), F.to_json(value, {"timestampFormat": TIMES}).alias("value"))


def _any(conditions: list[Any]) -> Any:
    found = conditions[0]
    for each in conditions[1:]:
        found = found | each
    return found


def _group(json: Any, by: str | Field | None) -> Any:
    if by is None:
        return F.lit(None).cast("binary")
    text = F.get_json_object(json, by.json_path) if isinstance(by, Field) else F.col(by).cast("string")
    return F.col("key") if by == "key" else text.cast("binary")


def _measured(json: Any, measure: Measure) -> Any:
    return F.octet_length("value").cast("long") if measure.of is None else number_of(json, measure.of)


def _function(measure: Measure) -> Any:
    if measure.function == "count":
        return F.count(F.lit(1)).alias("count")
    found = {"sum": F.sum, "min": F.min, "max": F.max}[measure.function](f"`{measure.name}`")
    return (found if measure.of is None else found.cast("double")).alias(measure.name)


def main(arguments: list[str]) -> int:
    return run_program("aggregate", AGGREGATE, arguments, lambda given: Aggregate(aggregate_plan(given)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
