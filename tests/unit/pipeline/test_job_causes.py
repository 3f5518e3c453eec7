"""The reason in one line; the samples are what Spark 4.3 said."""

import pytest

from tidelog.pipeline.jobs.causes import LENGTH_MAX, cause_of

PLANNING = """\
[STREAM_FAILED] Query [id = d42e0b04-54ec-49e8-a03c-ebf6fd51131d, runId = 07331ad8-8441-4b6e-b9fb-887a0f1ea3b1] terminated \
with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform latestOffset: \
Traceback (most recent call last):
  File "/x/pyspark/sql/streaming/python_streaming_source_runner.py", line 200, in main
    latest_offset_func(reader, infile, outfile)
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/x/tidelog/pipeline/lookups.py", line 84, in check
    raise DataLossError(text)
tidelog.pipeline.offsets.DataLossError: events-0: offsets 5 to 9 are gone. Set failOnDataLoss=false to go on
 SQLSTATE: 38000"""

CHAINED = """\
An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/a.py", line 1, in f
    g()
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/x/a.py", line 3, in f
    raise ValueError("no partition of events is led")
ValueError: no partition of events is led
"""

UNREACHABLE = """\
Traceback (most recent call last):
  File "/x/tidelog/client/metadata.py", line 110, in refresh
    raise ClusterUnreachable(asked, why)
tidelog.client.errors.ClusterUnreachable: nothing answers at 127.0.0.1:19092 (unavailable): is the cluster up?
"""

JVM = """\
An error occurred while calling o64.start.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
Caused by: java.lang.IllegalStateException: Task failed while writing rows
\tat org.apache.spark.sql.execution.datasources.FileFormatWriter.executeTask(FileFormatWriter.scala:1)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\t... 43 more
"""

CALLED = """\
An error occurred while calling o205.create.
: java.io.IOException: Mkdirs failed to create file:/proc/nope/_checkpoint (exists=false, cwd=file:/x)
\tat org.apache.hadoop.fs.ChecksumFileSystem.create(ChecksumFileSystem.java:1)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


@pytest.mark.parametrize(
    "text, cause",
    [
        (PLANNING, "events-0: offsets 5 to 9 are gone. Set failOnDataLoss=false to go on"),
        (CHAINED, "no partition of events is led"),
        (UNREACHABLE, "nothing answers at 127.0.0.1:19092 (unavailable): is the cluster up?"),
        (JVM, "No space left on device"),
        (CALLED, "Mkdirs failed to create file:/proc/nope/_checkpoint (exists=false, cwd=file:/x)"),
        ("[PARSE_SYNTAX_ERROR] Syntax error at or near 'STRIN'. SQLSTATE: 42601", "Syntax error at or near 'STRIN'."),
        (
            "[STREAM_FAILED] Query [id = d4, runId = 07] terminated with exception: Python worker failed to connect back. "
            "SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: ingest",
            "Python worker failed to connect back.",
        ),
        (
            "[PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'. SQLSTATE: 42601 (line 1, pos 0)\n\n== SQL ==\nSELEC x",
            "Syntax error at or near 'SELEC'. (line 1, pos 0)",
        ),
        (
            "[UNRESOLVED_COLUMN] A column with name `nope` cannot be resolved. SQLSTATE: 42703; line 1 pos 7;\n'P",
            "A column with name `nope` cannot be resolved. line 1 pos 7",
        ),
        ("[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03", "Path does not exist: file:/x."),
        ("", "Spark failed and did not say why"),
    ],
)
def test_the_innermost_reason_is_told_alone(text: str, cause: str) -> None:
    assert cause_of(text) == cause


def test_a_reason_is_no_longer_than_a_few_lines() -> None:
    assert len(cause_of("x" * 10_000)) == LENGTH_MAX + 3
    assert cause_of("Traceback (most recent call last):\n  File\nSomethingOdd: it broke\n") == "SomethingOdd: it broke"
