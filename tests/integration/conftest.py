"""Clusters for integration tests: one that all tests share and leave as they found it, and as many own ones as a test needs."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from helpers.cluster import MakeCluster, last_words, running_cluster
from helpers.group_wire import GroupBed
from helpers.scene import left_as_found
from helpers.wire import Bed
from tidelog.cluster.api import bootstrap_servers
from tidelog.cluster.local import LocalCluster


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Brokers 0, 1 and 2. Whoever kills or pauses something starts it again and waits until every ISR is full."""
    with running_cluster(tmp_path_factory.mktemp("shared") / "cluster") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def module_cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A module's own, with its SETTINGS, for faults."""
    base = tmp_path_factory.mktemp("module") / "cluster"
    with running_cluster(
        base, links_through_proxy=True, settings=request.module.SETTINGS, agents=getattr(request.module, "AGENTS", 0)
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(module_cluster: LocalCluster) -> Iterator[LocalCluster]:
    with left_as_found(module_cluster) as found:
        yield found


@pytest.fixture(scope="session")
def shared_servers(shared_cluster: LocalCluster) -> str:
    return bootstrap_servers(shared_cluster)


@pytest.fixture(scope="module")
def bed(shared_cluster: LocalCluster) -> Bed:
    """A partition of the shared cluster to send bad requests to."""
    return asyncio.run(Bed.make(shared_cluster))


@pytest.fixture(scope="module")
def group_bed(shared_cluster: LocalCluster) -> Iterator[GroupBed]:
    with GroupBed.make(shared_cluster) as bed:
        yield bed


@pytest.fixture
def groups(group_bed: GroupBed) -> GroupBed:
    """A group to send bad requests about, of which nobody has heard before."""
    return group_bed.with_group()


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[MakeCluster]:
    with ExitStack() as stack:

        def make(**options: Any) -> LocalCluster:
            return stack.enter_context(running_cluster(tmp_path / "cluster", **options))

        yield make


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    report = yield
    if report.failed and "integration" in item.keywords:
        began_at = datetime.fromtimestamp(call.start, UTC)
        report.sections.append((f"last words of the clusters of {item.nodeid}", last_words(began_at)))
    return report
