"""What a client knows of the cluster: whom it asks, how often, for how long, and what it believes."""

import asyncio

import pytest

from helpers.fake_broker import FakeCall, FakeCluster
from tidelog.client.errors import ClusterUnreachable
from tidelog.wire import messages as m
from unit.client.clients import producer


async def test_nobody_answers_says_what_to_do() -> None:
    cluster = FakeCluster()
    cluster.down.update(cluster.addresses)
    with pytest.raises(ClusterUnreachable, match=r"nothing answers at .*b1:9092.*`tidelog local up`"):
        async with producer(cluster, max_block_ms=300):
            pass


async def test_however_many_sends_wait_for_metadata_none_waits_longer_than_it_may() -> None:
    cluster = FakeCluster()
    now = asyncio.get_running_loop().time
    async with producer(cluster, max_block_ms=300) as p:
        cluster.down.update(cluster.addresses)
        begun = now()
        ends = await asyncio.gather(*(p.send("t", b"x") for _ in range(20)), return_exceptions=True)
        assert all(isinstance(end, ClusterUnreachable) for end in ends)
        assert now() - begun < 1.0


async def test_bootstrap_goes_round_to_a_broker_that_answers() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    cluster.down.add(2)
    cluster.paused.add(3)
    async with producer(cluster) as p:
        await (await p.send("t", b"x"))
    assert cluster.partition("t").values() == [b"x"]


async def test_refreshes_that_coincide_are_one_request() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with producer(cluster) as p:
        before = len(cluster.of("ClusterMetadata"))
        seen = p._metadata.version
        await asyncio.gather(*(p._metadata.refresh(seen) for _ in range(10)))
        assert len(cluster.of("ClusterMetadata")) == before + 1


async def test_metadata_of_an_older_leader_epoch_is_not_believed() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with producer(cluster) as p:
        await (await p.send("t", b"x"))
        cluster.elect("t", 0, 2)
        await p._metadata.refresh(p._metadata.version)

        async def stale(call: FakeCall) -> m.ClusterMetadataResponse:
            cluster.topics["t"].partitions[0].leader_epoch = 0
            cluster.topics["t"].partitions[0].leader = 1
            answer: m.ClusterMetadataResponse = await call.serve()
            cluster.topics["t"].partitions[0].leader_epoch = 1
            cluster.topics["t"].partitions[0].leader = 2
            return answer

        cluster.once("ClusterMetadata", stale)
        await p._metadata.refresh(p._metadata.version)
        led = p._metadata.leadership(p._partitions["t"][1][0])
        assert led is not None and (led.leader, led.leader_epoch) == (2, 1)
