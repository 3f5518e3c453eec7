"""Where a contract test of the Net port runs: real gRPC on loopback, or the simulated network."""

from typing import Protocol

from tidelog.ids import Address
from tidelog.ports.net import Net, Route, Server
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.testing.net import SimNetwork
from tidelog.testing.rand import seeded
from tidelog.wire import messages as m
from tidelog.wire.services import (
    BROKER_CONTROL_LIVENESS,
    COORDINATOR_SERVICE_CLUSTER_METADATA,
    REPLICA_SERVICE_REPLICA_FETCH,
)

ECHO = COORDINATOR_SERVICE_CLUSTER_METADATA
STREAM = BROKER_CONTROL_LIVENESS
CHUNKS = REPLICA_SERVICE_REPLICA_FETCH


def ask(text: str = "") -> m.ClusterMetadataRequest:
    return m.ClusterMetadataRequest(group_id=text)


def answer(text: str = "") -> m.ClusterMetadataResponse:
    return m.ClusterMetadataResponse(cluster_id=text, coordinator_id=-1, controller_id=-1)


def ping(number: int) -> m.LivenessPing:
    return m.LivenessPing(controller_id=number, controller_epoch=0)


def pong(number: int) -> m.LivenessPong:
    return m.LivenessPong(broker_id=number, broker_epoch=0)


def chunk(number: int) -> m.ReplicaFetchResponse:
    """64 KiB of records."""
    part = m.ReplicaChunk(
        topic="t",
        partition=0,
        leader_epoch=0,
        high_watermark=0,
        log_start_offset=0,
        diverging_epoch=-1,
        diverging_end_offset=-1,
        offset=number,
        dropped_to=0,
        records=bytes(65536),
    )
    return m.ReplicaFetchResponse(chunk=number, partitions=(part,))


class World(Protocol):
    bugs: list[str]

    @property
    def net(self) -> Net:
        """Of the process that serves."""
        ...

    @property
    def caller(self) -> Net:
        """Of the process that calls."""
        ...

    async def serve(self, *routes: Route, port: int = 0) -> Server: ...


class GrpcWorld:
    def __init__(self) -> None:
        self.bugs: list[str] = []
        self.net: Net = GrpcNet(on_bug=self.bugs.append)
        self.caller: Net = GrpcNet()

    async def serve(self, *routes: Route, port: int = 0) -> Server:
        return await self.net.serve(Address("127.0.0.1", port), routes)


class SimWorld:
    def __init__(self) -> None:
        self.bugs: list[str] = []
        network = SimNetwork(seeded(1, "net"))
        self.net: Net = network.node("server", on_bug=self.bugs.append)
        self.caller: Net = network.node("client")

    async def serve(self, *routes: Route, port: int = 0) -> Server:
        return await self.net.serve(Address("server", port), routes)
