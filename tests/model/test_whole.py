"""`make model` itself, at the bounds of reliability 3.3, 3.5, 3.6 and 5.2: the other tests here search smaller ones."""

import subprocess
import sys

import pytest

from tidelog.model.catalogue import all_checks


@pytest.mark.gate
@pytest.mark.timeout(3600)
def test_every_mutant_is_found_and_the_right_rules_hold_at_the_documented_bounds() -> None:
    done = subprocess.run([sys.executable, "-m", "tidelog.model"], capture_output=True, text=True, timeout=3500)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert f"{len(all_checks())} checks, " in done.stdout.splitlines()[-1]
