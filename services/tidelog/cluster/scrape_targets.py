"""Targets of the Prometheus of the containers beside those of its configuration, by the script `target` of its image."""

import contextlib
import socket
from typing import Any, Final

from docker.errors import DockerException

from tidelog.cluster.api import ClusterError
from tidelog.cluster.container_exec import run_in
from tidelog.ids import Address

ANSWERS_WITHIN_S: Final = 1.0


class ScrapeTargets:
    def __init__(self, container: Any, host: str) -> None:
        """`host` is the address of this machine as the container reaches it."""
        self._container = container
        self.host = host

    def add(self, job: str, address: Address) -> None:
        """ClusterError when Prometheus does not run, as with the other methods."""
        self._run("add", job, str(address))

    def remove(self, job: str, address: Address) -> None:
        self._run("remove", job, str(address))

    def remove_unserved(self, job: str) -> None:
        """A program that was killed has left its target behind."""
        for each in self._run("list", job).split():
            host, _, port = each.rpartition(":")
            try:
                with contextlib.closing(socket.create_connection((host, int(port)), ANSWERS_WITHIN_S)):
                    pass
            except OSError:
                self._run("remove", job, each)

    def _run(self, *words: str) -> str:
        try:
            code, said = run_in(self._container, ["target", *words])
        except DockerException as error:
            raise ClusterError(f"the targets of {self._container.name}: {error}") from error
        if code:
            raise ClusterError(f"the targets of {self._container.name}: {said.strip()}")
        return said
