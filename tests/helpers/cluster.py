"""Clusters of real processes for integration tests."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import psutil

from tidelog.cluster.api import BROKER, CONTROLLER, Cluster, State
from tidelog.cluster.local import LocalCluster

MakeCluster = Callable[..., LocalCluster]
"""Takes what `LocalCluster.up` takes and returns a cluster that serves; it is ended with its fixture."""

MANY_LINES: Final = 400
SHORT: Final = 200

_RUNNING: list[LocalCluster] = []


@contextmanager
def running_cluster(base: Path, *, sources: Mapping[str, Path] | None = None, **options: Any) -> Iterator[LocalCluster]:
    """`sources`: which processes run from another tree, say of another release."""
    with LocalCluster(base) as cluster:
        for name, services in (sources or {}).items():
            cluster.run_from(name, services)
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


def last_words(since: datetime, lines: int = 40) -> str:
    """What the processes of every cluster that runs now have printed since then, in the order of time; the newest lines.

    Few and short: of what a run prints, whoever looks at it elsewhere may have a part only.
    """
    found = sorted(
        (at, f"{cluster.base.parent.name}/{name}", text)
        for cluster in _RUNNING
        for name in (*cluster.names(CONTROLLER), *cluster.names(BROKER))
        for at, text in _dated(cluster.logs(name, MANY_LINES))
        if at >= since
    )
    return "\n".join(f"{at:%H:%M:%S.%f} {name} {text}"[:SHORT] for at, name, text in found[-lines:])


def _dated(log: str) -> Iterator[tuple[datetime, str]]:
    """Events with their time; what is none, as a traceback, has that of the event before it."""
    at = datetime.min.replace(tzinfo=UTC)
    for line in log.splitlines():
        text = line
        with suppress(ValueError, TypeError, KeyError):
            event = json.loads(line)
            at, text = datetime.fromisoformat(event["timestamp"]), f"{event['level']}: {event['event']}"
        yield at, text


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


def states(cluster: Cluster) -> dict[str, State]:
    return {row.name: row.state for row in cluster.status()}


def pid_of(cluster: Cluster, name: str) -> int | None:
    return next(row.pid for row in cluster.status() if row.name == name)
