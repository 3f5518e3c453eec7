"""Targets in words: what may be said, and which processes are meant when it is due."""

import pytest

from helpers.aio import run
from helpers.chaos_bed import FakeAdmin, fake_bed
from helpers.fake_cluster import FakeCluster
from tidelog.chaos.faults.processes import Kill
from tidelog.chaos.targets import check_hits, parse, resolve
from tidelog.cluster.api import ClusterError, State


def found(text: str, cluster: FakeCluster | None = None, admin: FakeAdmin | None = None) -> tuple[str, ...]:
    return run(resolve(parse(text), fake_bed(cluster, admin)))


@pytest.mark.parametrize(
    "text, names",
    [
        ("leader of 0", ("broker-1",)),
        ("leader of 1", ("broker-2",)),
        ("followers of 0", ("broker-2", "broker-3")),
        ("controller", ("controller-1",)),
        ("active controller", ("controller-1",)),
        ("standby controller", ("controller-2",)),
        ("coordinator of g", ("broker-3",)),
        ("zookeeper leader", ("zookeeper-2",)),
        ("zookeeper follower", ("zookeeper-1", "zookeeper-3")),
        ("all brokers", ("broker-1", "broker-2", "broker-3")),
        ("all zookeepers", ("zookeeper-1", "zookeeper-2", "zookeeper-3")),
        ("broker-2", ("broker-2",)),
        ("controller and leader of 0", ("controller-1", "broker-1")),
        ("leader of 0 and broker-1", ("broker-1",)),
        ("client", ("client",)),
        ("clients", ("client",)),
    ],
)
def test_a_target_is_found_by_its_role(text: str, names: tuple[str, ...]) -> None:
    assert found(text) == names


def test_everything_is_every_process() -> None:
    assert found("everything") == tuple(FakeCluster().names())


@pytest.mark.parametrize(
    "text, pool, size",
    [
        ("follower of 0", {"broker-2", "broker-3"}, 1),
        ("any broker", {"broker-1", "broker-2", "broker-3"}, 1),
        ("minority brokers", {"broker-1", "broker-2", "broker-3"}, 1),
        ("majority zookeepers", {"zookeeper-1", "zookeeper-2", "zookeeper-3"}, 2),
    ],
)
def test_where_any_will_do_the_seed_decides(text: str, pool: set[str], size: int) -> None:
    bed = fake_bed()
    drawn = [run(resolve(parse(text), bed)) for _ in range(60)]
    assert all(len(set(names)) == size for names in drawn)
    assert {name for names in drawn for name in names} == pool
    again = fake_bed()
    assert drawn == [run(resolve(parse(text), again)) for _ in range(60)]


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("leader of 2", "t-2 has no leader now"),
        ("leader of 7", "'t' has 3 partitions, none with number 7"),
        ("broker-9", r"no process broker-9.*broker-1"),
        ("all agents", "none now"),
        ("controller", "none now"),
        ("broker-1 and all agents", "none now"),
    ],
)
def test_a_target_that_is_not_there_is_an_error(text: str, complaint: str) -> None:
    admin = FakeAdmin()
    admin.controller = -1
    with pytest.raises(ClusterError, match=complaint):
        found(text, admin=admin)


def test_a_role_is_not_given_to_who_does_not_run() -> None:
    cluster = FakeCluster()
    cluster.states["controller-2"] = State.STOPPED
    cluster.states["zookeeper-2"] = State.PAUSED
    for text in ("standby controller", "zookeeper leader"):
        with pytest.raises(ClusterError, match="none now"):
            found(text, cluster)


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("leader of", "leader of N"),
        ("lead broker", "no target 'lead broker'"),
        ("all broker", "did you mean 'all brokers'"),
        ("", "no target ''"),
        ("leader of 0 and ", "no target ''"),
        ("leader of x", "no target"),
        ("prometheus-1", "no target"),
    ],
)
def test_what_no_cluster_can_have_is_refused_before_it_starts(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse(text)


@pytest.mark.parametrize("text", ["client", "leader of 0 and clients"])
def test_a_fault_is_not_aimed_at_what_it_cannot_hit(text: str) -> None:
    with pytest.raises(ValueError, match=r"'kill' hits zookeepers, controllers, brokers, agents; .* is a "):
        check_hits(Kill, parse(text))
    check_hits(Kill, parse("everything"))
