"""Programs of their own, which find what this one does: tests of forks and of the end of a program."""

import os
import subprocess
import sys


def run_program(text: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=False)
