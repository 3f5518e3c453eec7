"""A Compose cluster for the tests: a project and ports of its own, so that a cluster somebody works with is left alone."""

import functools
import json
import subprocess
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
from tidelog.cluster.compose import PROJECT_LABEL, SERVICE_LABEL, ComposeCluster
from tidelog.cluster.container_exec import run_in
from tidelog.cluster.free_ports import free_ports
from tidelog.cluster.wait import until

PROJECT: Final = "tidelog-test"
PORTS: Final = ("BROKER_1_PORT", "BROKER_2_PORT", "BROKER_3_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT")
HEALTHY_WITHIN_S: Final = 90.0


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

    def __init__(self, compose: DockerCompose, settings: dict[str, str]) -> None:
        self.compose = compose
        self.settings = settings
        self.docker: Any = docker.from_env()
        self.faults = ComposeCluster(ROOT, PROJECT)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"localhost:{self.settings[name]}" for name in PORTS[:3])

    def containers(self) -> dict[str, Any]:
        found = self.docker.containers.list(all=True, filters={"label": f"{PROJECT_LABEL}={PROJECT}"})
        return {container.labels[SERVICE_LABEL]: container for container in found}

    def container(self, service: str) -> Any:
        return self.containers()[service]

    def run_in(self, service: str, *command: str) -> tuple[int, str]:
        """Exit code and output of `command` in the service's container; it may run more than once."""
        return run_in(self.container(service), command)

    def health(self, service: str) -> str:
        """healthy, unhealthy or starting."""
        return str(self.container(service).attrs["State"]["Health"]["Status"])

    def wait_health(self, service: str, wanted: str = "healthy", timeout_s: float = HEALTHY_WITHIN_S) -> None:
        until(lambda: self.health(service) == wanted, f"{service} {wanted}", timeout_s=timeout_s, interval_s=0.25)

    def prometheus(self, path: str, **query: str) -> Any:
        """`data` of the answer of Prometheus' HTTP interface."""
        url = f"http://127.0.0.1:{self.settings['PROMETHEUS_PORT']}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def close(self) -> None:
        self.faults.close()
        self.docker.close()


@contextmanager
def compose_project(env_file: Path) -> Iterator[ComposeProject]:
    """Builds, starts and finally removes the project with its volumes. `env_file` will hold its settings."""
    ports = free_ports(len(PORTS))
    settings = {name: str(port) for name, port in zip(PORTS, ports, strict=True)}
    env_file.write_text("".join(f"{k}={v}\n" for k, v in {"COMPOSE_PROJECT_NAME": PROJECT, **settings}.items()))
    subprocess.run([ROOT / "scripts/images.sh", "--quiet"], check=True)
    compose = DockerCompose(ROOT, env_file=str(env_file), wait=True)
    compose.stop()  # what an interrupted run may have left
    try:
        _start(compose)
        project = ComposeProject(compose, settings)
        try:
            yield project
        finally:
            project.close()
    finally:
        compose.stop()


def _start(compose: DockerCompose) -> None:
    try:
        compose.start()
    except subprocess.CalledProcessError as error:
        # It says only which container is not healthy; the containers say why.
        raise AssertionError(f"{error.stderr.decode()[-500:]}\n{compose.get_logs()[0][-20_000:]}") from error
