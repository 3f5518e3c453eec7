"""Each request that reads or writes records says which client it is of; nothing of that is in a header."""

from helpers.brokers import brokers
from helpers.requirements import requirement
from tidelog.client.consumer import Consumer
from tidelog.ids import TopicPartition
from unit.client.clients import producer


@requirement("Version, correlation and client ids need no request header")
async def test_reads_and_writes_name_their_client() -> None:
    cluster = await brokers(1)
    await cluster.create("t")
    async with producer(cluster, client_id="me") as p:
        await (await p.send("t", b"v"))
    async with Consumer(cluster.bootstrap, ports=cluster.ports, client_id="me") as c:
        await c.assign([TopicPartition("t", 0)])
        assert len(await c.poll(timeout_s=1)) == 1
    for method in ("InitProducerId", "Produce", "Fetch"):
        assert {call.request.client_id for call in cluster.of(method)} == {"me"}, method
