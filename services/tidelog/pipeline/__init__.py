"""The data pipeline on Spark. Importing it costs nothing: PySpark is imported by who uses it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Makes `format("tidelog")` known to a session, and to the thread that calls it.

    Spark looks up a Python sink in the session that is active in the thread which starts a query. That is the thread which made
    the session and no other, so each thread that starts queries calls this.

    Switches on that Spark hands filters to Python sources, in this session: it refuses sources that could use them otherwise.
    """
    from tidelog.pipeline.source import TidelogSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(TidelogSource)
    spark.createDataFrame([], "none INT")  # of what PySpark offers, what makes a session the active one of its thread
