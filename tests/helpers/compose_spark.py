"""The Spark cluster of the Compose project: profile spark, started for the tests that need it."""

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from testcontainers.compose import DockerCompose

from helpers.compose import SPARK, ComposeProject, start
from helpers.scripts import ROOT
from tidelog.cluster.wait import until

WORKERS: Final = ("spark-worker-1", "spark-worker-2")
JOB: Final = "pipeline"
CLUSTER: Final = ("spark-master", *WORKERS, "spark-history")
SERVICES: Final = (*CLUSTER, JOB)
MASTER: Final = "spark://spark-master:7077"
WITHIN_S: Final = 600.0
"""A JVM and its first workers, on a machine that has other work."""


class ComposeSpark:
    def __init__(self, project: ComposeProject, compose: DockerCompose) -> None:
        self.project = project
        self._command = compose.compose_command_property

    def run(self, said: Path, *words: str, answer: Path | None = None) -> "subprocess.Popen[bytes]":
        """`tidelog WORDS` in a container like that of the service `pipeline`. Its standard error goes to `said`, its standard
        output to `answer` or nowhere."""
        command = [*self._command, "run", "--rm", "--no-TTY", "--no-deps", JOB, "tidelog", *words]
        with said.open("wb") as errors, (answer or Path(os.devnull)).open("wb") as output:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, cwd=ROOT)

    def workers(self) -> set[str]:
        """Hosts that the master knows to be alive."""
        return {worker["host"] for worker in self.master()["workers"] if worker["state"] == "ALIVE"}

    def wait_workers(self, *hosts: str) -> None:
        until(lambda: self.workers() == set(hosts), f"{hosts} at the master", timeout_s=WITHIN_S, interval_s=0.5)

    def master(self) -> Any:
        """Its own view: workers and applications."""
        return self._page("SPARK_MASTER_PORT", "/json/")

    def history(self, path: str) -> Any:
        """From the interface of the history server, below /applications."""
        return self._page("SPARK_HISTORY_PORT", f"/api/v1/applications{path}")

    def _page(self, port: str, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.project.settings[port]}{path}", timeout=WITHIN_S) as page:
            return json.load(page)


@contextmanager
def compose_spark(project: ComposeProject) -> Iterator[ComposeSpark]:
    """Builds the image, starts the services beside those of `project`, and ends them."""
    subprocess.run([ROOT / "scripts/images.sh", "--quiet", SERVICES[0]], check=True)
    env_file = str(project.env_file)
    compose = DockerCompose(ROOT, profiles=[SPARK], env_file=env_file, wait=True, services=list(CLUSTER))
    try:
        start(compose)
        compose.services = list(SERVICES)  # behind both workers, so that the job has a core of each
        start(compose)
        yield ComposeSpark(project, compose)
    finally:
        subprocess.run([*compose.compose_command_property, "rm", "--stop", "--force", *SERVICES], check=True, cwd=ROOT)
