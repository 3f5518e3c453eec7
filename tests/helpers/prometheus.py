"""A real Prometheus for tests: of this machine, or in its container where only a Docker engine is there."""

import json
import math
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dashboards.proof import Series
from helpers.images import image
from helpers.scripts import ROOT
from tidelog.cluster.free_ports import free_ports
from tidelog.cluster.wait import until
from tidelog.ids import Address

IMAGE = image("prometheus")
READY_S = 30.0
DEPLOYED = ROOT / "deploy" / "prometheus"
INSIDE = "/etc/tidelog-test"
"""Where the container finds what it is to read."""


class Prometheus:
    def __init__(self, address: Address) -> None:
        self._url = f"http://{address}"

    def _get(self, path: str, **parameters: str | float) -> Any:
        url = f"{self._url}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.loads(answer.read())["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{parameters}: {error.read().decode()}") from None

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=10):
                return True
        except OSError:  # an HTTPError is one: it starts
            return False

    def series(self, query: str, begin: float, end: float, step_s: float = 1.0) -> list[Series]:
        """Each series in a range of Unix times, without what is no number."""
        found = self._get("/api/v1/query_range", query=query, start=begin, end=end, step=step_s)
        return [
            Series(each["metric"], [(at, float(v)) for at, v in each["values"] if math.isfinite(float(v))])
            for each in found["result"]
        ]

    def newest(self, query: str) -> list[float]:
        """The newest value of each series: a scrape is a second behind."""
        return [float(each["value"][1]) for each in self._get("/api/v1/query", query=query)["result"]]

    def rules(self) -> dict[str, str]:
        """{name of a rule: ok, or why it could not be evaluated}."""
        groups = self._get("/api/v1/rules")["groups"]
        found = [rule for group in groups for rule in group["rules"]]
        return {
            rule["name"]: rule["health"] if rule["health"] == "ok" else str(rule.get("lastError")) for rule in found
        }

    def label_values(self, label: str, match: str) -> list[str]:
        return list(self._get(f"/api/v1/label/{label}/values", **{"match[]": match}))

    def targets(self) -> dict[str, str]:
        """{scrape URL: health or the last error}."""
        active = self._get("/api/v1/targets")["activeTargets"]
        return {t["scrapeUrl"]: t["health"] if t["health"] == "up" else t["lastError"] for t in active}


def why_not() -> str | None:
    """Why no Prometheus can be started here; None if one can. Its package brings promtool."""
    if shutil.which("prometheus") and shutil.which("promtool"):
        return None
    if shutil.which("docker") is None:
        return "Prometheus is not installed (Debian: apt-get install prometheus), and there is no docker"
    asked = subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True, text=True)
    if asked.returncode != 0:
        return f"Prometheus is not installed (Debian: apt-get install prometheus), and docker: {asked.stderr.strip()}"
    return None


def promtool(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs it in `directory`, which holds what it reads. Call `why_not` first."""
    command = ["promtool"]
    if shutil.which("promtool") is None:
        mounted = [f"--volume={directory}:{INSIDE}:ro", f"--workdir={INSIDE}", "--network=none"]
        user = f"--user={os.getuid()}:{os.getgid()}"  # the directory may be for its owner alone
        command = ["docker", "run", "--rm", *mounted, user, IMAGE, "promtool"]
    return subprocess.run([*command, *arguments], cwd=directory, capture_output=True, text=True)


def configuration(jobs: Mapping[str, Sequence[Address]], files: Mapping[str, str]) -> str:
    """JSON is YAML."""
    scrapes = [
        {"job_name": job, "static_configs": [{"targets": [str(address) for address in addresses]}]}
        for job, addresses in jobs.items()
    ]
    scrapes += [{"job_name": job, "file_sd_configs": [{"files": [pattern]}]} for job, pattern in files.items()]
    every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    return json.dumps({"global": every, "rule_files": ["rules/*.yml"], "scrape_configs": scrapes})


@contextmanager
def prometheus_server(
    directory: Path, jobs: Mapping[str, Sequence[Address]], files: Mapping[str, str] | None = None
) -> Iterator[Prometheus]:
    """Scrapes `jobs`, and the targets in `files`, each second, with the rules of the Compose cluster. Call `why_not` first."""
    (port,) = free_ports(1)
    config = directory / "prometheus.yml"
    config.write_text(configuration(jobs, files or {}))
    shutil.copytree(DEPLOYED / "rules", directory / "rules")
    arguments = [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    if program := shutil.which("prometheus"):
        command = [program, *arguments, f"--config.file={config}", f"--storage.tsdb.path={directory / 'tsdb'}"]
    else:
        command = [
            "docker",
            "run",
            "--rm",
            "--network=host",
            "--tmpfs=/tmp",
            f"--volume={config}:{INSIDE}/prometheus.yml:ro",
            f"--volume={directory / 'rules'}:{INSIDE}/rules:ro",
            IMAGE,
        ]
        command += ["prometheus", *arguments, f"--config.file={INSIDE}/prometheus.yml", "--storage.tsdb.path=/tmp/tsdb"]
    with running(command, port) as server:
        yield server


@contextmanager
def running(command: Sequence[str], port: int) -> Iterator[Prometheus]:
    """The server that a command starts, which listens at a port of loopback, until it has ended."""
    process = subprocess.Popen(command)
    try:
        server = Prometheus(Address("127.0.0.1", port))
        until(lambda: server.ready() or process.poll() is not None, "Prometheus", timeout_s=READY_S, interval_s=0.1)
        assert process.poll() is None, "Prometheus does not start; see its output"
        yield server
    finally:
        process.terminate()
        process.wait(30)
