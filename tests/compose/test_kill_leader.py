"""scripts/chaos/kill_leader.sh on the Compose cluster."""

import os
import subprocess
import sys

from helpers.compose import PROJECT, ComposeProject
from helpers.scripts import ROOT
from tidelog.cluster.api import State


def test_the_script_ends_with_a_verdict_and_the_cluster_as_it_was(project: ComposeProject) -> None:
    script = ROOT / "scripts" / "chaos" / "inject.py"
    arguments = [sys.executable, str(script), "kill-leader", "--for", "3s"]
    env = {**os.environ, "TIDELOG_BOOTSTRAP_SERVERS": project.bootstrap_servers}
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=200, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"on the containers of project {PROJECT}\n" in done.stderr, "the brokers say so"
    assert done.stdout.splitlines()[-1].startswith("SOUND: ") and "Traceback" not in done.stderr
    assert {row.state for row in project.faults.status()} == {State.RUNNING}
