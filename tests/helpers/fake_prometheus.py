"""The container of a Prometheus that runs on this machine: the script of its image changes a directory of the test."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from helpers.scripts import ROOT

IMAGE_FILES: Final = ROOT / "images" / "prometheus"


class PrometheusContainer:
    name = "tidelog-prometheus-1"

    def __init__(self, directory: Path) -> None:
        """`directory` is that of its data."""
        self._directory = directory

    def exec_run(self, command: Sequence[str]) -> tuple[int, bytes]:
        environment = {**os.environ, "PATH": f"{IMAGE_FILES}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(command, cwd=self._directory, env=environment, capture_output=True, check=False)
        return done.returncode, done.stdout
