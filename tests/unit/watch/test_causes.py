"""Chains of causes across processes, in a cluster in memory."""

from helpers.batches import batch
from helpers.brokers import Brokers, brokers
from helpers.chains import chain
from tidelog.ids import TopicPartition
from tidelog.watch.text import merged
from tidelog.wire import messages as m

TP = TopicPartition("events", 0)


async def with_records() -> Brokers:
    cluster = await brokers(3)
    await cluster.create("events")
    await cluster.append("events", 0, batch(b"1"))
    return cluster


async def test_a_new_leader_goes_back_to_a_suspicion() -> None:
    cluster = await with_records()
    old = cluster.leader("events")
    cluster.kill(old)
    await cluster.until(lambda: cluster.leader("events") not in (-1, old), "another broker leads")
    new = f"broker-{cluster.leader('events')}"
    await cluster.append("events", 0, batch(b"2"))
    events = merged(cluster.world.rings)
    (leads,) = (
        told for told in events if isinstance(told.event.fields, m.BecameLeader) and told.event.fields.leader_epoch == 1
    )
    controller = cluster.controller.name
    assert chain(events, leads) == [
        (controller, "BrokerSuspected"),
        (controller, "LeaderChosen"),
        (controller, "StoreWritten"),
        (controller, "OrderSent"),
        (new, "OrderReceived"),
        (new, "BecameLeader"),
    ]


async def test_a_smaller_isr_goes_back_to_its_leader() -> None:
    cluster = await with_records()
    leader = cluster.leader("events")
    slow = next(broker for broker in cluster.ids if broker != leader)
    cluster.part(leader, slow)
    await cluster.append("events", 0, batch(b"2"), acks=1)
    await cluster.until(lambda: len(cluster.states[TP].isr) == 2, "the follower is out")
    await cluster.wait(1.0)
    events = merged(cluster.world.rings)
    answered = [told for told in events if isinstance(told.event.fields, m.IsrAnswered)]
    controller = cluster.controller.name
    assert chain(events, answered[-1]) == [
        (f"broker-{leader}", "LagNoticed"),
        (f"broker-{leader}", "IsrProposed"),
        (controller, "IsrChosen"),
        (controller, "StoreWritten"),
        (f"broker-{leader}", "IsrAnswered"),
    ]
    assert answered[-1].event.cause is not None
