"""The data pipeline on Spark. Importing it costs nothing: PySpark is imported by who uses it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Makes `format("tidelog")` known to a session."""
    from tidelog.pipeline.source import TidelogSource

    spark.dataSource.register(TidelogSource)
