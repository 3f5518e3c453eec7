"""A Compose cluster for the tests: a project and ports of its own, so that a cluster somebody works with is left alone."""

import fcntl
import functools
import json
import os
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import docker
from docker.errors import DockerException
from testcontainers.compose import DockerCompose

from helpers.scripts import ROOT
from tidelog.cluster.api import ClusterError
from tidelog.cluster.compose import PROJECT_LABEL, SERVICE_LABEL, ComposeCluster
from tidelog.cluster.container_exec import run_in
from tidelog.cluster.free_ports import free_ports
from tidelog.cluster.wait import until

PROJECT: Final = "tidelog-test"
PORTS: Final = (
    "BROKER_1_PORT",
    "BROKER_2_PORT",
    "BROKER_3_PORT",
    "BROKER_4_PORT",
    "BROKER_5_PORT",
    "PROMETHEUS_PORT",
    "GRAFANA_PORT",
    "WATCH_PORT",
    "SPARK_MASTER_PORT",
    "SPARK_HISTORY_PORT",
)
SPARK: Final = "spark"
"""The profile; so is the next one."""
GROW: Final = "grow"
ONE_OFF: Final = "com.docker.compose.oneoff"
LAST_LINES: Final = 60
HEALTHY_WITHIN_S: Final = 180.0
"""A ZooKeeper server that takes itself for the leader finds out after 20 s (`initLimit`), on a loaded machine several times."""


@functools.cache
def why_not() -> str | None:
    """The reason for which no container can be started here, or None."""
    try:
        docker.from_env().ping()
    except DockerException as error:
        return f"no Docker engine answers ({error}); scripts/docker_engine.sh can get one"
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode:
        return "the Compose plugin (v2) is missing; scripts/docker_engine.sh can get it"
    return None


class ComposeProject:
    """The running project: `faults` works on processes, `container` is the Docker SDK's own object."""

    def __init__(self, compose: DockerCompose, env_file: Path, settings: dict[str, str]) -> None:
        self.compose = compose
        self.env_file = env_file
        self.settings = settings
        self.docker: Any = docker.from_env()
        self.faults = ComposeCluster(ROOT, PROJECT)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"localhost:{self.settings[name]}" for name in PORTS[:3])

    def containers(self) -> dict[str, Any]:
        """The containers by service, without those of `docker compose run` and those that build an image and end."""
        labels = [f"{PROJECT_LABEL}={PROJECT}", f"{ONE_OFF}=False"]
        found = self.docker.containers.list(all=True, filters={"label": labels})
        by_service = {container.labels[SERVICE_LABEL]: container for container in found}
        return {name: container for name, container in by_service.items() if not name.endswith("-image")}

    def container(self, service: str) -> Any:
        return self.containers()[service]

    def run_in(self, service: str, *command: str) -> tuple[int, str]:
        """Exit code and output of `command` in the service's container; it may run more than once."""
        return run_in(self.container(service), command)

    def health(self, service: str) -> str:
        """healthy, unhealthy or starting."""
        return str(self.container(service).attrs["State"]["Health"]["Status"])

    def wait_health(self, service: str, wanted: str = "healthy", timeout_s: float = HEALTHY_WITHIN_S) -> None:
        try:
            until(lambda: self.health(service) == wanted, f"{service} {wanted}", timeout_s=timeout_s, interval_s=0.25)
        except ClusterError as error:
            container = self.container(service)
            said = container.logs(tail=LAST_LINES).decode(errors="replace")
            checks = container.attrs["State"]["Health"]["Log"][-3:]
            raise ClusterError(f"{error}\nits checks: {checks}\nits last words:\n{said}") from error

    def assert_without_rights(self, service: str) -> None:
        code, uid = self.run_in(service, "id", "-u")
        assert code == 0 and int(uid) >= 10_000, "a numeric user that no host has"
        _, status = self.run_in(service, "grep", "-E", "^(CapEff|CapBnd|NoNewPrivs)", "/proc/1/status")
        assert dict(line.split(":\t") for line in status.splitlines()) == {
            "CapBnd": "0000000000000000",
            "CapEff": "0000000000000000",
            "NoNewPrivs": "1",
        }
        for path in ("/written", "/usr/bin/written", "/etc/written"):
            code, output = self.run_in(service, "touch", path)
            assert code != 0 and "Read-only file system" in output
        assert self.run_in(service, "which", "curl")[0] != 0

    def prometheus(self, path: str, **query: str) -> Any:
        """`data` of the answer of Prometheus' HTTP interface."""
        url = f"http://127.0.0.1:{self.settings['PROMETHEUS_PORT']}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def environment(self) -> dict[str, str]:
        """With which the scripts work on this project."""
        return {**os.environ, "COMPOSE_PROJECT_NAME": PROJECT, **self.settings}

    def close(self) -> None:
        self.faults.close()
        self.docker.close()


@contextmanager
def only_run() -> Iterator[None]:
    """Waits for the run of another clone, which has the project and the tags of the images."""
    with Path(tempfile.gettempdir(), f"{PROJECT}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.__stderr__.write("the Compose tests of another run are under way: waiting for them\n")  # type: ignore[union-attr]
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def compose_project(env_file: Path) -> Iterator[ComposeProject]:
    """Builds, starts and finally removes the project with its volumes. `env_file` will hold its settings."""
    with only_run():
        yield from _project(env_file)


def _project(env_file: Path) -> Iterator[ComposeProject]:
    ports = free_ports(len(PORTS))
    settings = {name: str(port) for name, port in zip(PORTS, ports, strict=True)}
    env_file.write_text("".join(f"{k}={v}\n" for k, v in {"COMPOSE_PROJECT_NAME": PROJECT, **settings}.items()))
    subprocess.run([ROOT / "scripts/images.sh", "--quiet"], check=True)
    compose = DockerCompose(ROOT, env_file=str(env_file), wait=True)
    everything = DockerCompose(ROOT, env_file=str(env_file), profiles=[SPARK, GROW])
    everything.stop()  # what an interrupted run may have left
    try:
        start(compose)
        project = ComposeProject(compose, env_file, settings)
        try:
            yield project
        finally:
            project.close()
    finally:
        everything.stop()


def start(compose: DockerCompose) -> None:
    try:
        compose.start()
    except subprocess.CalledProcessError as error:
        # It says only which container is not healthy; the containers say why.
        raise AssertionError(f"{error.stderr.decode()[-500:]}\n{compose.get_logs()[0][-20_000:]}") from error
