"""Protocol events of a run in its file."""

from pathlib import Path

from helpers.brokers import brokers
from tidelog.chaos.protocol_log import PROTOCOL, ProtocolLog
from tidelog.chaos.steps import of_partition, read_events
from tidelog.ids import TopicPartition


async def test_an_election_is_kept_with_what_led_to_it(tmp_path: Path) -> None:
    cluster = await brokers(3)
    await cluster.create("events")
    ports = cluster.ports_of("run")
    began = ports.clock.now()
    for node in cluster.world.nodes.values():
        node.clock.wall_offset_ms = 0
    async with ProtocolLog(tmp_path / PROTOCOL, cluster.bootstrap, ports, ["events"], began):
        await cluster.wait(2.0)
        cluster.kill(cluster.leader("events"))
        killed_at = ports.clock.now() - began
        await cluster.until(lambda: cluster.leader("events") > 1, "another broker leads")
        await cluster.wait(1.0)
    kept = of_partition(read_events(tmp_path), TopicPartition("events", 0))
    kinds = dict.fromkeys(event.kind for event in kept if event.t > killed_at)
    steps = ["BrokerSuspected", "LeaderChosen", "StoreWritten", "OrderSent", "OrderReceived", "BecameLeader"]
    assert [kind for kind in kinds if kind in steps] == steps
    assert killed_at < kept[-1].t < ports.clock.now() - began


async def test_without_a_broker_that_answers_the_file_is_empty(tmp_path: Path) -> None:
    cluster = await brokers(1)
    cluster.kill(1)
    ports = cluster.ports_of("run")
    async with ProtocolLog(tmp_path / PROTOCOL, cluster.bootstrap, ports, ["events"], ports.clock.now()):
        await cluster.wait(2.0)
    assert read_events(tmp_path) == []
