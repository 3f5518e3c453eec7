"""The whole table of runs with planted anomalies and of sound ones, judged here and, in one session, by Spark."""

import os
import subprocess
import sys

import pytest

from helpers.scripts import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(900)]


def test_both_judges_notice_what_is_planted_and_nothing_else() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "planted", "--spark"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "services"), str(ROOT / "scripts")])},
        capture_output=True,
        text=True,
        timeout=850,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "| nothing (sound) | - | 200 of 200 | 20 of 20 |" in done.stdout
