"""One SQL query over the Parquet files of an ingest, read by Spark, which takes the files of finished micro-batches alone."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from tidelog.pipeline.jobs.causes import cause_of
from tidelog.pipeline.jobs.driver import JobError, spark_of
from tidelog.pipeline.jobs.finished import NothingFinished, check_output, nothing_in
from tidelog.pipeline.jobs.places import Places
from tidelog.pipeline.jobs.plans import Run

TABLE: Final = "records"
NO_FILES: Final = "UNABLE_TO_INFER_SCHEMA"
"""Spark raises it for finished micro-batches that held no record."""


@dataclass(frozen=True, slots=True)
class Answer:
    columns: tuple[str, ...]
    rows: Sequence[Any]
    """Texts in the order of the columns, or JSON objects."""
    more: bool
    """Rows were left out."""


def query(run: Run, directory: str, sql: str, rows_max: int, *, as_json: bool, phase: Callable[[str], None]) -> Answer:
    """ValueError when no ingest wrote to `directory` or Spark does not understand `sql`, JobError when there is nothing to
    read or the query fails. `phase` is told what is done."""
    phase("starting Spark")
    with spark_of(run, "tidelog query", {}, topics=False) as spark:
        phase(f"reading {directory}")
        found = _understood(spark, directory, sql)
        phase("running")
        answer = _answer(found, rows_max, as_json=as_json)
        phase("stopping Spark")
    return answer


def _understood(spark: Any, directory: str, sql: str) -> Any:
    """The DataFrame of the query, which nothing has run yet."""
    try:
        check_output(directory, Places(spark).names)
        spark.read.parquet(directory).createOrReplaceTempView(TABLE)
    except NothingFinished as error:
        raise JobError(str(error)) from None
    except AnalysisException as error:
        if error.getCondition() != NO_FILES:
            raise
        raise JobError(nothing_in(directory)) from None
    try:
        return spark.sql(sql)
    except AnalysisException as error:
        raise ValueError(cause_of(str(error))) from None


def _answer(found: Any, rows_max: int, *, as_json: bool) -> Answer:
    columns = tuple(found.columns)
    if as_json:
        line = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
        taken = [json.loads(row[0]) for row in found.select(line).head(rows_max + 1)]
    else:
        numbered = found.toDF(*map(str, range(len(columns))))  # two columns may have one name
        texts = [F.coalesce(F.col(name).cast("string"), F.lit("null")) for name in numbered.columns]
        taken = [tuple(row) for row in numbered.select(*texts).head(rows_max + 1)]
    return Answer(columns, taken[:rows_max], len(taken) > rows_max)
