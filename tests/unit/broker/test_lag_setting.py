"""The lag limit of the ISR is the broker's setting."""

from dataclasses import replace

import pytest

from helpers.requirements import requirement
from tidelog.client.admin import Admin
from tidelog.client.producer import Producer
from tidelog.config import BrokerSettings
from tidelog.errors import TidelogError, TransportError
from tidelog.ids import TopicPartition
from tidelog.testing.sim_cluster import SimCluster
from tidelog.testing.sim_node import Timing
from tidelog.testing.views import stored_states

TP = TopicPartition("events", 0)


@requirement("KeepInSyncTime bounds the lag of an ISR member")
def test_the_lag_limit_is_10_s_by_default() -> None:
    assert BrokerSettings.replica_lag_time_max_ms == 10_000


@requirement("KeepInSyncTime bounds the lag of an ISR member")
@requirement("A slow follower leaves the ISR after the lag limit")
@pytest.mark.parametrize("lag_ms", [4_000, 12_000])
async def test_a_follower_that_stands_still_leaves_after_the_set_time(lag_ms: int) -> None:
    timing = replace(Timing.drawn(1), lag_ms=lag_ms, session_ms=30_000, suspect_hold_ms=30_000, keepalive_s=60.0)
    cluster = SimCluster(seed=1, timing=timing)
    cluster.start()
    ports = cluster.client_ports("admin")
    async with Admin(cluster.bootstrap, ports=ports) as admin:
        while True:
            try:
                await admin.create_topic(TP.topic, 1, 3)
                await admin.wait_until_led(TP.topic, in_sync=True)
                break
            except (TidelogError, TransportError, TimeoutError):
                await ports.clock.sleep(0.2)
    leader = cluster.leader(TP)
    follower = next(node for node in cluster.brokers if node.number != leader)
    follower.pause()
    began = ports.clock.now()
    async with Producer(cluster.bootstrap, ports=ports, acks=1) as producer:  # without a record no follower lags
        await (await producer.send(TP.topic, b"v"))
    while len(stored_states(cluster.zookeeper.dump())[TP].isr) == 3:
        await ports.clock.sleep(0.05)
    took_s = ports.clock.now() - began
    assert lag_ms / 1000 - 0.1 <= took_s <= lag_ms / 1000 + 2.5
    for node in cluster.nodes.values():
        node.kill()
