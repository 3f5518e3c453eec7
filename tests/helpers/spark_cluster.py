"""A standalone Spark cluster of real processes for tests: a master, and workers of one core that are killed and started again."""

import json
import os
import signal
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from helpers.spark_jvm import SOON
from tidelog.cluster.free_ports import free_ports
from tidelog.cluster.guard import Guard
from tidelog.cluster.os_process import OsProcess, tail
from tidelog.cluster.wait import until

WITHIN_S: Final = 600.0
HOST: Final = "127.0.0.1"
DAEMON_MB: Final = 256
EXECUTOR_MB: Final = 512
PATIENT: Final = f"{int(WITHIN_S)}s"
"""Spark's own limit of 120 s for an answer is short for a start on a machine that does much else."""
SETTINGS: Final = {
    "spark.network.timeout": PATIENT,
    "spark.rpc.askTimeout": PATIENT,
    "spark.driver.bindAddress": HOST,
    "spark.driver.host": HOST,
    "spark.driver.extraJavaOptions": SOON,
    "spark.executor.extraJavaOptions": SOON,
    "spark.executor.memory": f"{EXECUTOR_MB}m",
    "spark.cores.max": "2",
}
"""Of a session whose driver is this program."""


@dataclass
class SparkCluster:
    base: Path
    workers: Sequence[str]
    port: int
    web_port: int
    _processes: dict[str, OsProcess] = field(default_factory=dict)

    @property
    def master(self) -> str:
        return f"spark://{HOST}:{self.port}"

    def start(self, *names: str) -> None:
        """Returns when every worker that runs is known to the master."""
        for name in names:
            process = self._processes.setdefault(name, OsProcess(name, self.base / name))
            process.start([str(_home() / "bin" / "spark-class"), *self._arguments(name)], _environment())
        self._wait_known()

    def kill(self, name: str) -> None:
        """SIGKILL to it and to its executors; returns when the master has noticed."""
        self._processes[name].signal(signal.SIGKILL)
        self._processes[name].wait_gone(WITHIN_S)
        self._wait_known()

    def busy(self) -> int:
        """Cores that executors have."""
        return sum(int(worker["coresused"]) for worker in self.alive())

    def alive(self) -> list[dict[str, Any]]:
        """Workers, as the master sees them; none while it does not answer, or not yet as itself.

        Its web server runs before its pages are attached one by one: until /json/ is, the page of / answers for it.
        """
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.web_port}/json/", timeout=10) as page:
                return [worker for worker in json.load(page)["workers"] if worker["state"] == "ALIVE"]
        except (OSError, json.JSONDecodeError):
            return []

    def end(self) -> None:
        running = [process for process in self._processes.values() if process.find() is not None]
        for process in running:
            process.signal(signal.SIGKILL)
        for process in running:
            process.wait_gone(WITHIN_S)

    def last_words(self, lines: int = 40) -> str:
        logs = [process.log_file for process in self._processes.values()]
        logs += sorted(self.base.glob("*/app-*/*/stderr"))
        return "\n".join(f"--- {log.relative_to(self.base)}\n{tail(log, lines)}" for log in logs)

    def _arguments(self, name: str) -> list[str]:
        own = ["--host", HOST, "--webui-port"]
        if name not in self.workers:
            return ["org.apache.spark.deploy.master.Master", *own, str(self.web_port), "--port", str(self.port)]
        limits = ["--cores", "1", "--memory", f"{EXECUTOR_MB}m", "--work-dir", str(self.base / name)]
        return ["org.apache.spark.deploy.worker.Worker", *own, "0", *limits, self.master]

    def _wait_known(self) -> None:
        """Until the master knows those workers that run, and no others."""
        running = [name for name in self.workers if name in self._processes and self._processes[name].find()]

        def known() -> bool:
            for name, process in self._processes.items():
                assert process.exit_code in (None, -signal.SIGKILL), f"{name} ended:\n{tail(process.log_file, 40)}"
            return len(self.alive()) == len(running)

        until(known, f"{len(running)} workers at the master", timeout_s=WITHIN_S)


@contextmanager
def running_spark_cluster(base: Path, workers: int = 2) -> Iterator[SparkCluster]:
    port, web_port = free_ports(2)
    cluster = SparkCluster(base, [f"worker-{n + 1}" for n in range(workers)], port, web_port)
    base.mkdir(parents=True, exist_ok=True)
    guard = Guard(base)
    try:
        cluster.start("master", *cluster.workers)
        yield cluster
    except BaseException as error:
        error.add_note(cluster.last_words())
        raise
    finally:
        cluster.end()
        guard.release()


def _home() -> Path:
    found = find_spec("pyspark")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


def _environment() -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("TIDELOG_", "SPARK_"))}
    own = {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": f"{SOON} -Dspark.network.timeout={PATIENT} -Dspark.rpc.askTimeout={PATIENT}",
        "SPARK_DAEMON_MEMORY": f"{DAEMON_MB}m",
        "SPARK_LAUNCHER_OPTS": SOON,
        "SPARK_LOCAL_IP": HOST,
    }
    return inherited | own
