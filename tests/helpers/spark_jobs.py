"""Jobs of the pipeline as processes of their own, and a Spark cluster of this machine's processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
import pyspark

from tidelog.cluster.free_ports import free_ports
from tidelog.cluster.wait import until
from tidelog.pipeline import jobs

START_S: Final = 240.0
"""A JVM and the first workers, on a machine that has other work; ten seconds where it has none."""

SPARK_BIN: Final = Path(pyspark.__path__[0]) / "bin"
HERE: Final = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
TERMINAL: Final = ("env", "--default-signal=INT")
"""Whoever runs the tests in the background has made SIGINT ignored, which is inherited."""


class JobProcess:
    """Started like a shell's job: in a process group of its own, which is what Ctrl-C reaches. What it says goes to a file."""

    def __init__(self, command: list[str], said: Path) -> None:
        self._said = said
        with said.open("wb") as file:
            self._process = subprocess.Popen(
                [*TERMINAL, *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **HERE},
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self._said.read_text()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """While the job runs."""
        until(lambda: self._process.poll() is not None or condition(), what, timeout_s=START_S, interval_s=0.2)
        assert self._process.poll() is None, self.said

    def wait(self) -> int:
        """Its exit code."""
        return self._process.wait(START_S)

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> int:
        """Ctrl-C: SIGINT for all of the group. Returns the exit code when no process of the job is left, whose children too."""
        family = self._family()
        os.killpg(self._process.pid, number)
        code = self.wait()
        _, left = psutil.wait_procs(family, timeout=60.0)
        assert not left, [each.cmdline() for each in left]
        return code

    def jvm(self) -> psutil.Process:
        (jvm,) = [each for each in self._family() if each.name() == "java"]
        return jvm

    def children(self) -> list[psutil.Process]:
        return self._family()[1:]

    def kill(self) -> None:
        """SIGKILL for everything; what was started last first, so that the JVM, which does the work, is not told of it."""
        for each in reversed(self._family()):
            each.kill()
        self._process.wait()

    def _family(self) -> list[psutil.Process]:
        if self._process.poll() is not None:
            return []
        driver = psutil.Process(self._process.pid)
        return [driver, *driver.children(recursive=True)]


@contextmanager
def run_job(said: Path, *words: str) -> Iterator[JobProcess]:
    """`tidelog pipeline run WORDS`; nothing of it is left at the end."""
    with _ended(JobProcess([sys.executable, "-m", "tidelog.cli.main", "pipeline", "run", *words], said)) as job:
        yield job


@contextmanager
def submit_job(said: Path, master: str, name: str, *words: str) -> Iterator[JobProcess]:
    """`spark-submit --master MASTER NAME.py WORDS`."""
    program = Path(jobs.__path__[0]) / f"{name}.py"
    with _ended(JobProcess([str(SPARK_BIN / "spark-submit"), "--master", master, str(program), *words], said)) as job:
        yield job


@contextmanager
def _ended(job: JobProcess) -> Iterator[JobProcess]:
    try:
        yield job
    finally:
        job.kill()


@contextmanager
def standalone(directory: Path) -> Iterator[str]:
    """A Spark master and one worker; yields the master's address at once, whoever asks there waits."""
    (port,) = free_ports(1)
    address = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    commands = {
        "master": [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"],
        "worker": [
            *(f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0"),
            *("--cores", "2", "--memory", "1g", "--work-dir", str(directory / "work"), address),
        ],
    }
    no_rest = {
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false"
    }  # it listens on a port of its own, always the same
    env = {**os.environ, **HERE, **no_rest, "SPARK_DAEMON_MEMORY": "256m"}
    started: list[subprocess.Popen[bytes]] = []
    try:
        for name, words in commands.items():
            with (directory / f"{name}.log").open("wb") as log:
                command = [str(SPARK_BIN / "spark-class"), *words]
                started.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env))
        yield address
    finally:
        for each in reversed(started):
            each.terminate()
            each.wait(60.0)
