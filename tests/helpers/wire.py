"""One partition of a cluster of real processes, spoken to as a foreign client would; and what bad input must not change."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import psutil

from helpers.batches import batch
from helpers.cluster import unique_topic
from tidelog.client.admin import Admin
from tidelog.cluster.api import BROKER, CONTROLLER, bootstrap_servers, broker_name
from tidelog.cluster.local import LocalCluster
from tidelog.errors import ErrorCode
from tidelog.ids import Address
from tidelog.runtime.rpc_channel import GrpcChannel
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.wire import messages as m
from tidelog.wire import services as s

EXTERNAL, INTERNAL = "EXTERNAL", "INTERNAL"
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Bed:
    """Partition 0 of `topic`, led by `leader` in `epoch`."""

    cluster: LocalCluster
    topic: str
    topic_id: bytes
    leader: int
    follower: int
    epoch: int

    @classmethod
    async def make(cls, cluster: LocalCluster) -> "Bed":
        topic = unique_topic("bad-input")
        async with Admin(bootstrap_servers(cluster)) as admin:
            await admin.create_topic(topic, 1, 3)
            found = await admin.wait_until_led(topic, in_sync=True)
        (p,) = found.partitions
        return cls(
            cluster, topic, found.topic_id, p.leader, next(r for r in p.replicas if r != p.leader), p.leader_epoch
        )

    def address(self, broker: int, listener: str = EXTERNAL) -> Address:
        return self.cluster.plan[broker_name(broker)].addresses[listener]

    def pids(self) -> dict[str, int | None]:
        return {row.name: row.pid for row in self.cluster.status() if row.kind in (BROKER, CONTROLLER)}

    def produce(self, *parts: m.ProducePartition, **fields: Any) -> m.ProduceRequest:
        """A valid request of one record, but for `fields` of it or of its partition."""
        part = m.ProducePartition(topic=self.topic, partition=0, leader_epoch=-1, records=batch(b"good"))
        part, rest = _changed(part, fields)
        return replace(m.ProduceRequest(acks=-1, timeout_ms=10_000, partitions=parts or (part,)), **rest)

    def fetch(self, *parts: m.FetchPartition, part_max_bytes: int = 1 << 20, **fields: Any) -> m.FetchRequest:
        part = m.FetchPartition(
            topic=self.topic, partition=0, leader_epoch=-1, offset=0, last_fetched_epoch=-1, max_bytes=part_max_bytes
        )
        size = fields.pop("max_bytes", 1 << 20)
        part, rest = _changed(part, fields)
        request = m.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=size, partitions=parts or (part,))
        return replace(request, **rest)

    async def end(self, channel: GrpcChannel) -> int:
        """The high watermark; with acks=all it is the log's end between two requests."""
        part = m.ListOffsetsPartition(topic=self.topic, partition=0, leader_epoch=-1, timestamp=-1)
        answer = await channel.call(s.REPLICA_SERVICE_LIST_OFFSETS, m.ListOffsetsRequest(partitions=(part,)), TIMEOUT_S)
        (result,) = answer.results
        assert result.error_code is ErrorCode.NONE, result
        return result.offset

    @asynccontextmanager
    async def unharmed(
        self, broker: int | None = None, listener: str = EXTERNAL, *, keeps_connection: bool = True
    ) -> AsyncIterator[GrpcChannel]:
        """A channel to `broker` (the leader) for bad requests.

        Afterwards every process is the same, nothing has been appended, and the next valid request on the same connection
        is served.
        """
        broker = self.leader if broker is None else broker
        address, pids = self.address(broker, listener), self.pids()
        net = GrpcNet()
        channel, leader = net.channel(address, purpose="test"), net.channel(self.address(self.leader), purpose="test")
        try:
            end = await self.end(leader)
            await channel.call(s.COORDINATOR_SERVICE_CLUSTER_METADATA, m.ClusterMetadataRequest(), TIMEOUT_S)
            connection = _connections(address)
            yield channel
            await channel.call(s.COORDINATOR_SERVICE_CLUSTER_METADATA, m.ClusterMetadataRequest(), TIMEOUT_S)
            if keeps_connection:
                assert _connections(address) == connection, "the connection was broken"
            via = channel if broker == self.leader else leader
            (sent,) = (await via.call(s.REPLICA_SERVICE_PRODUCE, self.produce(), TIMEOUT_S)).results
            assert (sent.error_code, sent.base_offset) == (ErrorCode.NONE, end), sent
            (got,) = (await via.call(s.REPLICA_SERVICE_FETCH, self.fetch(offset=end), TIMEOUT_S)).results
            assert got.error_code is ErrorCode.NONE and b"good" in got.records, got
        finally:
            await channel.close()
            await leader.close()
        assert self.pids() == pids


def said(result: Any, code: ErrorCode, *words: str) -> None:
    assert result.error_code is code, result
    for word in words:
        assert word in result.error_message, result.error_message[:500]
    assert len(result.error_message) < 1000


def creation(name: str, *, assign: int | None = None, **fields: Any) -> m.CreateTopicsRequest:
    """`assign`: one partition with this broker as its only replica."""
    numbers: dict[str, Any] = {"num_partitions": 1, "replication_factor": 3}
    if assign is not None:
        fields["assignments"] = (m.PartitionAssignment(partition=0, replicas=(assign,)),)
        fields["configs"] = (m.ConfigEntry(key="min.insync.replicas", value="1"),)
    if "assignments" in fields:
        numbers = {"num_partitions": -1, "replication_factor": -1}
    return m.CreateTopicsRequest(topics=(m.NewTopic(name=name, **{**numbers, **fields}),), timeout_ms=0)


def rows(*assigned: tuple[int, tuple[int, ...]]) -> dict[str, Any]:
    return {"assignments": tuple(m.PartitionAssignment(partition=p, replicas=r) for p, r in assigned)}


def _changed(part: Any, fields: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """`part` with those of `fields` that it has, and the others."""
    own = {key: value for key, value in fields.items() if hasattr(part, key)}
    return replace(part, **own), {key: value for key, value in fields.items() if key not in own}


def _connections(address: Address) -> set[int]:
    """Our ends of the connections to `address`, by port."""
    return {
        c.laddr.port
        for c in psutil.Process().net_connections("tcp")
        if c.raddr and tuple(c.raddr) == tuple(address) and c.status == psutil.CONN_ESTABLISHED
    }
