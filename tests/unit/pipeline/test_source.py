"""The source as Spark's planning process sees it."""

import subprocess
import sys

PLANNED = """
import sys
from tidelog.pipeline.source import TidelogSource
source = TidelogSource({"kafka.bootstrap.servers": "a:1", "subscribe": "t"})
source.streamReader(source.schema())
print(sorted({"pandas", "pyarrow", "numpy", "grpc"} & set(sys.modules)))
"""


def test_a_plan_of_a_stream_imports_nothing_for_columns() -> None:
    done = subprocess.run([sys.executable, "-c", PLANNED], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
