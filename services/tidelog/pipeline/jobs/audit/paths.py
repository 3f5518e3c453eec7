"""Which run a row comes from, by the file that it was read from."""

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def by_path(frame: DataFrame, paths: Mapping[int, Path], *columns: str) -> DataFrame:
    """`columns` of a frame that was read from `paths`, and `run`."""
    known = [(run, str(path.resolve())) for run, path in paths.items()]
    named = F.broadcast(frame.sparkSession.createDataFrame(known, "run int, plain string"))
    decoded = F.url_decode(F.regexp_replace(F.col("_metadata.file_path"), r"\+", "%2B"))
    read = frame.select(*columns, F.regexp_replace(decoded, "^file:/+", "/").alias("plain"))
    return read.join(named, "plain").drop("plain")


def location(path: Path) -> str:
    """For Spark, which takes it as it is: nothing in it is escaped."""
    return f"file://{path.resolve()}"
