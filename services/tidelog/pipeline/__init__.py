"""The data pipeline on Spark. Importing it costs nothing: PySpark is imported by who uses it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Makes `format("tidelog")` known to a session.

    Switches on that Spark hands filters to Python sources, in this session: it refuses sources that could use them otherwise.
    """
    from tidelog.pipeline.source import TidelogSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(TidelogSource)
