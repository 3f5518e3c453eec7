"""How the JVMs of Spark start here: they live for a minute or two, so that their start is most of what they cost."""

from typing import Final

SOON: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""The second compiler never pays back: without it a session with forty queries took 26 s of CPU instead of 53, an empty one 13
instead of 20."""

EVERYWHERE: Final = {"SPARK_SUBMIT_OPTS": SOON, "SPARK_LAUNCHER_OPTS": SOON, "SPARK_DAEMON_JAVA_OPTS": SOON}
"""Environment variables of Spark's scripts: for drivers, for what works out their command line, for masters and workers;
executors do not heed them."""
