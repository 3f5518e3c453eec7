"""Each benchmark for about a second, so that none rots. Its figures mean nothing here; that there are some does."""

import os
import re
import subprocess
import sys

import pytest

from bench.__main__ import GROUPS
from helpers.scripts import ROOT

LINE = re.compile(
    r"^(\S+) (ratio=[0-9.e+-]+ \(ours .+, reference .+, n=\d+\) min=\S+ max=\S+, target .+|no ratio: .+)$"
)


GIVE_UP_S = 400.0
"""Limit of a benchmark that hangs: STREAM starts a JVM and nine queries."""


@pytest.mark.integration
@pytest.mark.timeout(GIVE_UP_S + 20)
@pytest.mark.parametrize("names", GROUPS, ids=lambda names: "-".join(names))
def test_a_benchmark_runs_and_prints_its_lines(names: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "bench", "--smoke", "--only", ",".join(names)]
    environment = {**os.environ, "PYTHONPATH": "scripts"}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=GIVE_UP_S)
    assert ran.returncode == 0, ran.stderr[-3000:]
    lines = ran.stdout.splitlines()
    assert lines[0].startswith("grpcio 1.")
    printed = {found[1] for line in lines if (found := LINE.match(line))}
    assert set(names) <= printed, ran.stdout
