"""scripts/chaos/kill_leader.sh on the Compose cluster."""

import subprocess
import sys

from helpers.compose import PROJECT, ComposeProject
from helpers.scripts import ROOT
from tidelog.cluster.api import State


def test_the_script_ends_with_a_verdict_and_the_cluster_as_it_was(project: ComposeProject) -> None:
    script = ROOT / "scripts" / "chaos" / "kill_leader.py"
    arguments = [sys.executable, str(script), "--on", "compose", "--project", PROJECT, "--down", "3"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every promise was kept." in done.stdout
    assert {row.state for row in project.faults.status()} == {State.RUNNING}
