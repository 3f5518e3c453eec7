"""One SQL query over the Parquet files of an ingest, read by Spark, which takes the files of finished micro-batches alone."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import functions as F

from tidelog.pipeline.jobs.driver import spark_of
from tidelog.pipeline.jobs.plans import Run

TABLE: Final = "records"


@dataclass(frozen=True, slots=True)
class Answer:
    columns: tuple[str, ...]
    rows: Sequence[Any]
    """Texts in the order of the columns, or JSON objects."""
    more: bool
    """Rows were left out."""


def query(run: Run, directory: str, sql: str, rows_max: int, *, as_json: bool) -> Answer:
    """JobError when there is nothing to read, or the query is not understood."""
    with spark_of(run, "tidelog query", {}) as spark:
        spark.read.parquet(directory).createOrReplaceTempView(TABLE)
        found = spark.sql(sql)
        columns = tuple(found.columns)
        if as_json:
            line = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
            taken = [json.loads(row[0]) for row in found.select(line).head(rows_max + 1)]
        else:
            numbered = found.toDF(*map(str, range(len(columns))))  # two columns may have one name
            texts = [F.coalesce(F.col(name).cast("string"), F.lit("null")) for name in numbered.columns]
            taken = [tuple(row) for row in numbered.select(*texts).head(rows_max + 1)]
    return Answer(columns, taken[:rows_max], len(taken) > rows_max)
