"""The mistakes of the fault model and the known holes, planted in the code: each that was noticed once is noticed again."""

import os
import subprocess
import sys

import pytest

from mutants.patching import ROOT

pytestmark = [pytest.mark.sim, pytest.mark.gate]


@pytest.mark.timeout(3600)
def test_every_planted_mistake_that_was_noticed_before_is_noticed_again() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mutants"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "services"), str(ROOT / "scripts")])},
        capture_output=True,
        text=True,
        timeout=3500,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
