"""A Spark session that knows the source `tidelog`."""

import os
import sys
from typing import Final

from pyspark.sql import SparkSession

from tidelog.pipeline import register

LOCAL: Final = "local[*]"


def spark_session(app: str, master: str = LOCAL, settings: dict[str, str] | None = None) -> SparkSession:
    """The session of this program; `settings` are Spark's own. Whoever made it stops it."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers need this interpreter's packages
    builder = SparkSession.builder.appName(app).master(master)
    quiet = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    for key, value in {**quiet, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    register(spark)
    return spark
