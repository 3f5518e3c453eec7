"""No series outlives its topic or group: whatever brokers and controllers export, a new family too."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client.samples import Sample

from tidelog.client.admin import Admin
from tidelog.client.connections import ClientPorts
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.testing.sim_cluster import SimCluster

OF_SUBJECTS = frozenset({"topic", "partition", "group"})
SETTLED_S = 10.0
"""Longer than an offset, a lag or a new high watermark takes."""


def samples(cluster: SimCluster) -> list[tuple[str, Sample]]:
    """Samples of every process that are about a topic, a partition or a group, with their node."""
    return [
        (name, sample)
        for name, node in cluster.nodes.items()
        for family in node.registry.collect()
        for sample in family.samples
        if not OF_SUBJECTS.isdisjoint(sample.labels)
    ]


def sizes(cluster: SimCluster) -> Counter[str]:
    """Series of each name over all processes: leaders and coordinators may be others than before."""
    return Counter(sample.name for _, sample in samples(cluster))


def about(cluster: SimCluster, subject: str) -> set[str]:
    return {f"{node}: {each.name}" for node, each in samples(cluster) if subject in each.labels.values()}


@asynccontextmanager
async def running() -> AsyncIterator[tuple[SimCluster, Admin]]:
    """Three brokers, two controllers, and a topic with a group that stay."""
    cluster = SimCluster(seed=1)
    cluster.start()
    ports = cluster.client_ports("client")
    admin = Admin(cluster.bootstrap, ports=ports)
    async with admin:
        await ports.clock.sleep(5.0)
        async with used(cluster, admin, ports, "stays"):
            await ports.clock.sleep(SETTLED_S)
            yield cluster, admin
    for node in cluster.nodes.values():
        assert node.process is not None and not node.process.supervisor.failures
        node.kill()


@asynccontextmanager
async def used(cluster: SimCluster, admin: Admin, ports: ClientPorts, name: str) -> AsyncIterator[None]:
    """A topic of this name that is written, and read by a group of this name."""
    await admin.create_topic(name, 4, 3)
    await admin.wait_until_led(name)
    async with (
        Producer(cluster.bootstrap, ports=ports) as producer,
        Consumer(cluster.bootstrap, group=name, topics=[name], auto_offset_reset="earliest", ports=ports) as consumer,
    ):
        for number in range(40):
            await producer.send(name, b"record", b"%d" % number)
        await producer.flush()
        received = 0
        while received < 40:
            received += len(await consumer.poll())
        await consumer.commit()
        yield


async def test_series_of_a_deleted_topic_and_group_go() -> None:
    async with running() as (cluster, admin):
        before, ports = sizes(cluster), cluster.client_ports("another client")
        async with used(cluster, admin, ports, "goes"):
            await ports.clock.sleep(SETTLED_S)
            grown = sizes(cluster)
            assert {name for name in grown if grown[name] <= before[name]} == set(), "every family has seen it"
        await admin.delete_topic("goes")
        await ports.clock.sleep(SETTLED_S)
        assert {each.name for _, each in samples(cluster) if each.labels.get("topic") == "goes"} == set()
        await admin.groups.delete("goes")
        assert about(cluster, "goes") == set()
        assert sizes(cluster) == before
        assert about(cluster, "stays")
