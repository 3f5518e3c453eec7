"""Clusters for runs: a local one of the wanted shape, shared by the runs that can share it, or the containers that are there."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from tidelog.chaos.scenario import ClusterShape
from tidelog.cluster.api import BROKER, Cluster, ClusterError, State
from tidelog.cluster.breaking import breaking
from tidelog.cluster.choice import COMPOSE, Choice
from tidelog.cluster.compose import ComposeCluster
from tidelog.cluster.local import LocalCluster, local_name
from tidelog.cluster.scrape_targets import ScrapeTargets

Say = Callable[[str], None]
USES_MAX: Final = 20
"""Topics of past runs stay; a cluster that has many of them is no longer the one that a scenario describes."""


@contextmanager
def opened(choice: Choice, root: Path) -> Iterator[Cluster]:
    """Lends a cluster that runs, which no other program may break meanwhile. ClusterError.

    root: where docker-compose.yml is.
    """
    if choice.project is not None:
        compose = ComposeCluster(root, choice.project)
        with closing(compose), breaking(f"{COMPOSE}{choice.project}"):
            yield compose
    elif choice.local is not None:
        with breaking(local_name(choice.local)):
            yield LocalCluster(choice.local)
    else:
        raise ClusterError("no cluster runs: `tidelog local up` or `make up` starts one")


class Clusters(Protocol):
    """A context manager: on the way out it ends what it has started."""

    def of(self, shape: ClusterShape, say: Say) -> Cluster:
        """A cluster whose processes all run. ClusterError."""
        ...

    def scrape_targets(self) -> ScrapeTargets | None:
        """Targets of the Prometheus beside the cluster; None: there is none. ClusterError."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LocalClusters:
    """At most one runs at a time."""

    def __init__(self, keep: Path | None = None) -> None:
        """`keep`: where the files of its processes stay; None: in a temporary directory, which goes with it."""
        self.outlive = False
        """On the way out the cluster is left running."""
        self._keep = keep
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._shape: ClusterShape | None = None
        self._cluster: LocalCluster | None = None
        self._uses = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.outlive and self._cluster is not None:
            self._cluster.leave_running()
        else:
            self._end()

    def of(self, shape: ClusterShape, say: Say) -> Cluster:
        if self._cluster is not None and self._covers(shape) and self._uses < USES_MAX and not _down(self._cluster):
            self._uses += 1
            return self._cluster
        self._end()
        agents = f" and {shape.agents} agents" if shape.agents else ""
        say(f"starting ZooKeeper, {shape.controllers} controllers, {shape.brokers} brokers{agents}")
        base = self._keep
        if base is None:
            self._folder = tempfile.TemporaryDirectory(prefix="tidelog-chaos-")
            base = Path(self._folder.name)
        self._cluster, self._shape, self._uses = LocalCluster(base), shape, 1
        self._cluster.up(
            brokers=range(shape.brokers),
            controllers=shape.controllers,
            zookeepers=shape.zookeepers,
            links_through_proxy=shape.proxy,
            settings=shape.settings,
            agents=shape.agents,
        )
        return self._cluster

    def scrape_targets(self) -> ScrapeTargets | None:
        return None

    def _covers(self, shape: ClusterShape) -> bool:
        """One whose links can be cut serves a scenario that cuts none."""
        return self._shape is not None and self._shape in (shape, replace(shape, proxy=True))

    def _end(self) -> None:
        if self._cluster is not None:
            self._cluster.down(grace_s=0.0)
            self._cluster = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


class Given:
    """A cluster that runs already, whatever a scenario would like."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def of(self, shape: ClusterShape, say: Say) -> Cluster:
        return self._cluster

    def scrape_targets(self) -> ScrapeTargets | None:
        return self._cluster.scrape_targets() if isinstance(self._cluster, ComposeCluster) else None


class ComposeClusters:
    """The one that `docker compose up` has made, whatever a scenario would like."""

    def __init__(self, root: Path, project: str) -> None:
        """ClusterError when no engine answers."""
        self._cluster = ComposeCluster(root, project)
        self._opened = ExitStack()
        self._breaking = breaking(f"{COMPOSE}{project}")

    def __enter__(self) -> Self:
        """ClusterError while another program breaks this cluster."""
        with ExitStack() as opened:
            opened.callback(self._cluster.close)
            opened.enter_context(self._breaking)
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def of(self, shape: ClusterShape, say: Say) -> Cluster:
        if shape.agents:
            raise ClusterError("the agents of the containers have their own topic and write no files for a run")
        there = len(self._cluster.names(BROKER))
        if there < shape.brokers:
            raise ClusterError(f"the Compose cluster has {there} brokers, not {shape.brokers}; `make up` starts it")
        if down := _down(self._cluster):
            raise ClusterError(f"{', '.join(down)} must run before a fault is made")
        return self._cluster

    def scrape_targets(self) -> ScrapeTargets | None:
        return self._cluster.scrape_targets()


def _down(cluster: Cluster) -> list[str]:
    return [row.name for row in cluster.status() if row.state is not State.RUNNING]
