"""A Spark session that knows the source `tidelog`."""

import os
import shutil
import sys
from typing import Final

from pyspark.errors import PySparkException as SparkError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from tidelog.pipeline import register

__all__ = ["SparkError", "spark_session", "submitted"]

LOCAL: Final = "local[*]"
LOOPBACK: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""Of a session whose executors are in this process: nobody else has to reach it."""

INSTALL: Final = "Debian: apt-get install openjdk-17-jre-headless"
NO_JAVA: Final = f"Java is missing, Spark needs 17 or later: install it ({INSTALL})"
NO_JVM: Final = f"its JVM ended at once; it needs Java 17 or later: that of JAVA_HOME, else that on PATH ({INSTALL})"


def submitted() -> bool:
    """Whether spark-submit has started the JVM, and this program from there."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def java_missing() -> str | None:
    """Says what to do where Spark would find no Java."""
    home = os.environ.get("JAVA_HOME")
    if not home:
        return None if shutil.which("java") else NO_JAVA
    java = os.path.join(home, "bin", "java")
    return None if shutil.which(java) else f"JAVA_HOME is {home}, and {java} is no program: set it right, or not at all"


def spark_session(
    app: str, master: str | None = None, settings: dict[str, str] | None = None, topics: bool = True
) -> SparkSession:
    """The session of this program; `settings` are Spark's own. Whoever made it stops it.

    `master` None: what spark-submit says when it runs the program, else LOCAL. Without `topics` it does not know the source,
    for which Spark starts a worker, two seconds of a short query.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers need this interpreter's packages
    chosen = master or (None if submitted() else LOCAL)
    builder = SparkSession.builder.appName(app)
    if chosen is not None:
        builder = builder.master(chosen)
    quiet = {
        **(LOOPBACK if chosen is not None and chosen.startswith("local") else {}),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    for key, value in {**quiet, **(settings or {})}.items():
        builder = builder.config(key, value)
    try:
        spark: SparkSession = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise PySparkRuntimeError(NO_JVM) from error
    if topics:
        register(spark)
    return spark
