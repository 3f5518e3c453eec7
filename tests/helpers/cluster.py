"""Clusters of real processes for integration tests."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tidelog.cluster.api import State
from tidelog.cluster.local import LocalCluster

MakeCluster = Callable[..., LocalCluster]
"""Takes what `LocalCluster.up` takes and returns a cluster that serves; it is ended with its fixture."""

_RUNNING: list[LocalCluster] = []


@contextmanager
def running_cluster(base: Path, **options: Any) -> Iterator[LocalCluster]:
    with LocalCluster(base) as cluster:
        _RUNNING.append(cluster)
        try:
            cluster.up(**options)
            yield cluster
        finally:
            _RUNNING.remove(cluster)


def end_faults(cluster: LocalCluster) -> None:
    """Cuts are healed, who is paused goes on, and who is dead is started."""
    if cluster.plan.links:
        cluster.heal()
    for row in cluster.status():
        if row.state is State.PAUSED:
            cluster.resume(row.name)
        elif row.state is State.STOPPED:
            cluster.start(row.name)


def last_words(lines: int = 30) -> str:
    """What every process of every cluster that runs now wrote last; for the report of a failed test."""
    return "\n".join(
        f"--- {cluster.base.name}/{name}\n{cluster.logs(name, lines)}"
        for cluster in _RUNNING
        for name in cluster.names()
    )


def processes_of(base: Path) -> list[psutil.Process]:
    """Every live process that was started for the cluster in `base`, whoever is its parent now."""
    found = []
    for process in psutil.process_iter(["cwd", "cmdline", "status"]):
        about = [process.info["cwd"] or "", *(process.info["cmdline"] or ())]
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(str(base) in text for text in about):
            found.append(process)
    return found


def unique_topic(prefix: str = "test") -> str:
    """Tests share clusters, so each uses topics of its own."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"
