"""Clients of a cluster in memory, and the values that they send."""

from typing import Any

from helpers.fake_cluster import FakeCluster
from tidelog.client.admin import Admin
from tidelog.client.producer import Producer


def producer(cluster: FakeCluster, **options: Any) -> Producer:
    return Producer(cluster.bootstrap, ports=cluster.ports, **options)


def admin(cluster: FakeCluster, **options: Any) -> Admin:
    return Admin(cluster.bootstrap, ports=cluster.ports, **options)


def values(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % i for i in range(start, start + count)]
