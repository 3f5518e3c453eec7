"""Topics into partitioned Parquet, each record exactly once for each checkpoint.

As a program:

    spark-submit --master spark://HOST:7077 .../tidelog/pipeline/jobs/ingest.py --topic events --output DIR --once

Spark's file sink writes the files of a micro-batch first and then names them in `_spark_metadata`, all at once. A run that
is killed leaves files that are not named there; the next run writes their records again. Spark reads what is named and
nothing else. Readers that do not know of `_spark_metadata` (pyarrow, DuckDB, a Hive table) also see what killed runs have left.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidelog.pipeline.jobs.causes import cause_of
from tidelog.pipeline.jobs.flags import INGEST
from tidelog.pipeline.jobs.plans import IngestPlan, ingest_plan
from tidelog.pipeline.jobs.program import run_program
from tidelog.pipeline.jobs.progress import OBSERVED
from tidelog.pipeline.jobs.values import CORRUPT, struct_of, text_of, whole_json


@dataclass(frozen=True, slots=True)
class Ingest:
    plan: IngestPlan

    name = "ingest"
    to = None

    @property
    def output(self) -> str:
        return self.plan.output

    def source_options(self) -> Mapping[str, str]:
        return {**self.plan.input.options(), **({"includeHeaders": "true"} if self.plan.include_headers else {})}

    def settings(self) -> Mapping[str, str]:
        return {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}  # other readers warn of Spark's own, INT96

    def writer(self, records: Any, servers: str) -> Any:
        _check_schema(self.plan.schema)
        rows = frame(records, self.plan)
        corrupt = F.count(CORRUPT if CORRUPT in rows.columns else F.lit(None))
        return (
            rows.observe(OBSERVED, corrupt.alias("corrupt"))
            .writeStream.format("parquet")
            .option("path", self.plan.output)
            .partitionBy(*self.plan.partition_by)
        )


def _check_schema(ddl: str | None) -> None:
    """ValueError says where Spark stops to understand it."""
    try:
        if ddl is not None:
            StructType.fromDDL(ddl)
    except PySparkException as error:
        raise ValueError(f"--schema {ddl!r}: {cause_of(str(error))}") from None


def frame(records: Any, plan: IngestPlan) -> Any:
    """The rows of the files: `value` in the plan's format, the raw bytes in CORRUPT where it has another, and the
    columns of the folders."""
    value = F.col("value")
    if plan.value_format == "string":
        records = _parsed(records, text_of(value))
    elif plan.value_format == "json":
        assert plan.schema is not None
        records = _parsed(records, struct_of(whole_json(text_of(value)), plan.schema))
    if "date" in plan.partition_by:
        records = records.withColumn("date", F.to_date("timestamp"))
    if "hour" in plan.partition_by:
        records = records.withColumn("hour", F.hour("timestamp"))
    return records


def _parsed(records: Any, parsed: Any) -> Any:
    both = {"value": parsed, CORRUPT: F.when(F.col("value").isNotNull() & parsed.isNull(), F.col("value"))}
    return records.withColumns(both)


def main(arguments: list[str]) -> int:
    return run_program("ingest", INGEST, arguments, lambda given: Ingest(ingest_plan(given)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
