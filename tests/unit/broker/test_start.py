"""A broker that starts: what goes on while it recovers its logs."""

import asyncio

from helpers.whole_cluster import whole_cluster
from tidelog.ids import TopicPartition


async def test_a_broker_recovers_its_logs_beside_its_event_loop() -> None:
    """Recovery may take longer than the timeout of its sessions with ZooKeeper, which the event loop keeps alive."""
    async with whole_cluster() as bed:
        name = await bed.topic()
        tp = TopicPartition(name, 0)
        async with bed.producer() as producer:
            await (await producer.send(name, b"v", partition=0))
        broker = next(node for node in bed.cluster.brokers if node.number != bed.cluster.leader(tp))
        broker.kill()
        broker.disk.slow("pread", 30.0, path=".log")
        before = broker.disk.stalled_s
        broker.start()
        await bed.ports.clock.sleep(20.0)
        assert broker.broker is not None and broker.broker.manager is None, "it is still at it"
        broker.disk.mend()
        await bed.ports.clock.sleep(60.0)
        assert bed.cluster.converged(frozenset())
        assert broker.disk.stalled_s == before, "the event loop has waited for no disk"


async def test_a_broker_that_recovers_can_be_stopped() -> None:
    async with whole_cluster() as bed:
        for _ in range(4):
            await bed.topic()
        broker = bed.cluster.brokers[0]
        broker.kill()
        broker.disk.slow("list_dir", 5.0, path="/data/t")
        broker.start()
        await bed.ports.clock.sleep(7.0)
        broker.terminate()
        await bed.ports.clock.sleep(3.0)
        assert broker.dead, "it has not waited for the other logs"
        broker.disk.mend()
        broker.start()


async def test_a_broker_starts_on_a_disk_that_is_full() -> None:
    """To the last byte, with no reserve left; it is read, and its retention makes room."""
    async with whole_cluster() as bed:
        name = await bed.topic()
        tp = TopicPartition(name, 0)
        values = [b"%d" % number * 200 for number in range(40)]
        async with bed.producer() as producer:
            for value in values:
                await (await producer.send(name, value, partition=0))
        brokers = bed.cluster.brokers
        await bed.ports.clock.sleep(5.0)
        for broker in brokers:
            broker.kill()
            broker.disk.remove("/data/.reserve")
            broker.disk.fill(0)
        for broker in brokers:
            broker.start()
        async with asyncio.timeout(120.0):
            await bed.admin.wait_until_led(name)
            assert await bed.values(name) == values
            await bed.admin.logs.delete_records({tp: 39})
            leader = bed.cluster.nodes[f"broker-{bed.cluster.leader(tp)}"]
            while leader.disk.room_bytes() < 1_000:
                await bed.ports.clock.sleep(1.0)
        assert await bed.values(name, start=39) == values[39:]
        for broker in brokers:
            broker.disk.mend()
