"""What a client knows of the cluster: whom it asks, how often, for how long, and what it believes."""

import asyncio
from dataclasses import replace

import pytest

from helpers.brokers import brokers
from helpers.requirements import requirement
from tidelog.client.admin import Admin
from tidelog.client.connections import Patience
from tidelog.client.consumer import Consumer
from tidelog.client.errors import ClusterUnreachable
from tidelog.errors import TidelogError
from tidelog.testing.intercept import Call
from tidelog.wire import messages as m
from unit.client.clients import producer


async def test_no_answer_names_each_address() -> None:
    cluster = await brokers()
    cluster.kill(*cluster.ids)
    with pytest.raises(ClusterUnreachable, match=r"nothing answers at .*broker-1:9092"):
        async with producer(cluster, max_block_ms=300):
            pass


@pytest.mark.parametrize(
    ("bootstrap", "why"),
    [
        ("broker-1:9092,broker-2:9092", "broker-1:9092, broker-2:9092 (connection refused)"),
        ("nohost:1", "nohost:1 (no such host, or no route to it)"),
        (
            "broker-1:9092,nohost:1",
            "broker-1:9092 (connection refused), nohost:1 (no such host, or no route to it)",
        ),
    ],
)
async def test_addresses_that_all_refuse_end_a_short_patience(bootstrap: str, why: str) -> None:
    cluster = await brokers()
    cluster.kill(*cluster.ids)
    ports = replace(cluster.ports, patience=Patience(unreachable_s=1.0))
    began = cluster.ports.clock.now()
    with pytest.raises(ClusterUnreachable) as caught:
        await Admin(bootstrap, ports=ports).start()
    assert str(caught.value) == f"nothing answers at {why}"
    assert 1.0 <= cluster.ports.clock.now() - began < 2.0


@pytest.mark.parametrize("state", ["paused", "up"])
async def test_one_address_that_may_answer_is_waited_for(state: str) -> None:
    cluster = await brokers()
    cluster.kill(1, 2)
    ports = replace(cluster.ports, patience=Patience(unreachable_s=1.0))
    if state == "paused":
        cluster.pause(3)
        asyncio.get_running_loop().call_later(5.0, cluster.resume, 3)
    await Admin(cluster.bootstrap, ports=ports, request_timeout_ms=10_000).start()


async def test_a_cluster_that_has_answered_is_waited_for() -> None:
    cluster = await brokers()
    ports = replace(cluster.ports, patience=Patience(unreachable_s=1.0))
    async with Admin(cluster.bootstrap, ports=ports, request_timeout_ms=10_000) as admin:
        cluster.kill(*cluster.ids)
        asyncio.get_running_loop().call_later(5.0, cluster.launch, *cluster.ids)
        await admin.list_topics()


async def test_a_client_that_tries_in_vain_says_why_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster = await brokers()
    cluster.kill(*cluster.ids)
    with pytest.raises(ClusterUnreachable):
        await Admin("broker-1:9092", ports=cluster.ports, request_timeout_ms=10_000).start()
    assert caplog.messages == ["nothing answers at broker-1:9092 (connection refused); still trying"]


async def test_an_unknown_topic_ends_a_short_patience(caplog: pytest.LogCaptureFixture) -> None:
    cluster = await brokers()
    for limit_s, ports in (
        (2.0, replace(cluster.ports, patience=Patience(unknown_topic_s=1.5))),
        (11.0, cluster.ports),
    ):
        began = cluster.ports.clock.now()
        async with Consumer(cluster.bootstrap, ports=ports, request_timeout_ms=10_000) as consumer:
            with pytest.raises(TidelogError, match="topic 'nope' does not exist"):
                await consumer.partitions_of("nope")
        assert limit_s - 2.0 < cluster.ports.clock.now() - began < limit_s
        assert caplog.messages == ["topic 'nope' does not exist; still trying"]
        caplog.clear()


async def test_however_many_sends_wait_for_metadata_none_waits_longer_than_it_may() -> None:
    cluster = await brokers()
    now = asyncio.get_running_loop().time
    async with producer(cluster, max_block_ms=300) as p:
        cluster.kill(*cluster.ids)
        begun = now()
        ends = await asyncio.gather(*(p.send("t", b"x") for _ in range(20)), return_exceptions=True)
        assert all(isinstance(end, ClusterUnreachable) for end in ends)
        assert now() - begun < 1.0


@requirement("A client with a dead bootstrap broker asks the next one")
async def test_bootstrap_goes_round_to_a_broker_that_answers() -> None:
    cluster = await brokers()
    await cluster.create("t", replicas=1)
    cluster.kill(2)
    cluster.pause(3)
    async with producer(cluster) as p:
        await (await p.send("t", b"x"))
    assert cluster.values("t") == [b"x"]


@requirement("A client with a dead bootstrap broker asks the next one")
@pytest.mark.parametrize("alive", [1, 2, 3])
async def test_addresses_are_asked_in_turn_until_one_answers(alive: int) -> None:
    cluster = await brokers()
    cluster.kill(*(broker for broker in cluster.ids if broker != alive))
    async with Admin(cluster.bootstrap, ports=cluster.ports):
        asked = [cluster.broker_of(call) for call in cluster.of("ClusterMetadata")]
    first = asked[0]
    assert asked == [(first - 1 + turn) % 3 + 1 for turn in range(len(asked))]
    assert asked.index(alive) == len(asked) - 1, "the one that answers is the last that is asked"


async def test_refreshes_that_coincide_are_one_request() -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with producer(cluster) as p:
        before = len(cluster.of("ClusterMetadata"))
        seen = p._metadata.version
        await asyncio.gather(*(p._metadata.refresh(seen) for _ in range(10)))
        assert len(cluster.of("ClusterMetadata")) == before + 1


async def test_metadata_of_an_older_leader_epoch_is_not_believed() -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with producer(cluster) as p:
        await (await p.send("t", b"x"))
        before: m.ClusterMetadataResponse = await cluster.of("ClusterMetadata")[-1].serve()
        assert before.topics[0].partitions[0].leader == 1
        await cluster.elect("t", 0, 2)
        await p._metadata.refresh(p._metadata.version)

        async def stale(_: Call) -> m.ClusterMetadataResponse:
            return before

        cluster.once("ClusterMetadata", stale)
        await p._metadata.refresh(p._metadata.version)
        led = p._metadata.leadership(p._partitions["t"][1][0])
        assert led is not None and (led.leader, led.leader_epoch) == (2, 1)
