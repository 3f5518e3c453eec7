"""Protocol events of replicas: lag, a high watermark that stands still, truncation, requests of older epochs, failover."""

from collections.abc import Sequence
from typing import Any

import pytest

from helpers.batches import batch
from helpers.brokers import Brokers, brokers
from helpers.chains import chain
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.values import Message
from tidelog.watch.order import Told
from tidelog.watch.text import merged, sentence
from tidelog.wire import messages as m
from tidelog.wire.services import (
    REPLICA_SERVICE_LIST_OFFSETS,
    REPLICA_SERVICE_OFFSET_FOR_LEADER_EPOCH,
    REPLICA_SERVICE_PRODUCE,
)

TP = TopicPartition("events", 0)


async def with_records(**configs: Any) -> Brokers:
    cluster = await brokers(3)
    await cluster.create("events", **configs)
    await cluster.append("events", 0, batch(b"1"))
    return cluster


def found(events: Sequence[Told], kind: type[Message], broker: int | None = None) -> list[Told]:
    name = "" if broker is None else f"broker-{broker}"
    return [told for told in events if isinstance(told.event.fields, kind) and name in ("", told.process)]


def said(events: Sequence[Told]) -> list[str]:
    return [sentence(told.event) for told in events]


async def elected_anew(cluster: Brokers) -> int:
    old = cluster.leader("events")
    cluster.kill(old)
    await cluster.until(lambda: cluster.leader("events") not in (-1, old), "another broker leads")
    await cluster.append("events", 0, batch(b"2"))
    return old


async def test_a_leader_notices_that_a_follower_lags_behind() -> None:
    cluster = await with_records()
    leader = cluster.leader("events")
    slow = next(broker for broker in cluster.ids if broker != leader)
    cluster.part(leader, slow)
    await cluster.append("events", 0, batch(b"2"), acks=1)
    await cluster.until(lambda: len(cluster.states[TP].isr) == 2, "the follower is out")
    (lag,) = found(merged(cluster.world.rings), m.LagNoticed)
    fields = lag.event.fields
    assert isinstance(fields, m.LagNoticed) and lag.process == f"broker-{leader}"
    assert (fields.broker_id, fields.offset, fields.log_end) == (slow, 1, 2)
    assert 10_000 < fields.behind_ms < 12_000


async def test_a_high_watermark_stays_while_too_few_are_in_sync() -> None:
    cluster = await with_records(min_insync_replicas="2")
    leader = cluster.leader("events")
    others = [broker for broker in cluster.ids if broker != leader]
    cluster.kill(*others)
    await cluster.until(lambda: len(cluster.states[TP].isr) == 1, "its leader is alone")
    await cluster.wait(1.0)
    events = merged(cluster.world.rings)
    frozen = found(events, m.HighWatermarkFrozen, leader)
    assert said(frozen) == ["high watermark of events-0 stays at 1: 1 replica in sync, min.insync.replicas is 2"]
    assert not found(events, m.HighWatermarkFreed)
    cluster.node(others[0]).start()
    await cluster.until(lambda: len(cluster.states[TP].isr) == 2, "a follower is back")
    await cluster.wait(1.0)
    events = merged(cluster.world.rings)
    freed = found(events, m.HighWatermarkFreed, leader)
    assert said(freed) == ["high watermark of events-0 may advance again: 2 replicas in sync, min.insync.replicas is 2"]
    assert len(found(events, m.HighWatermarkFrozen)) == 1, "on the transition only"


async def test_a_failover_has_six_steps() -> None:
    cluster = await with_records()
    leader = cluster.leader("events")
    for broker in cluster.ids:
        if broker != leader:
            cluster.part(leader, broker)
    await cluster.append("events", 0, batch(b"lost"), acks=1)
    await elected_anew(cluster)
    for broker in cluster.ids:
        if broker != leader:
            cluster.rejoin(leader, broker)
    cluster.node(leader).start()
    await cluster.until(lambda: len(cluster.states[TP].isr) == 3, "the old leader follows")
    events = merged(cluster.world.rings)
    new = f"broker-{cluster.leader('events')}"
    steps = [(each.process, it.step) for each in events if isinstance(it := each.event.fields, m.FailoverStep)]
    controller = cluster.controller.name
    assert sorted(steps, key=lambda each: each[1]) == [
        *((controller, step) for step in (1, 2, 3, 4)),
        (new, 5),
        (f"broker-{leader}", 6),
    ]
    cut = found(events, m.LogTruncated, leader)
    assert said(cut) == ["events-0: truncates its log from 2 to 1 (epoch 0 of the leader ends there)"]


async def test_a_request_of_an_older_epoch_is_fenced() -> None:
    cluster = await with_records()
    await elected_anew(cluster)
    leader = cluster.leader("events")
    channel = cluster.ports.net.channel(cluster.node(leader).address, purpose="test")
    part = m.ProducePartition(topic="events", partition=0, leader_epoch=0, records=batch(b"3"))
    request = m.ProduceRequest(acks=1, timeout_ms=1_000, partitions=(part,))
    for _ in range(20):
        (result,) = (await channel.call(REPLICA_SERVICE_PRODUCE, request, 10.0)).results
        assert result.error_code is ErrorCode.FENCED_LEADER_EPOCH
    fenced = found(merged(cluster.world.rings), m.RequestFenced, leader)
    assert said(fenced) == ["refuses Produce for events-0: epoch 0 is older than 1, FENCED_LEADER_EPOCH"]


@pytest.mark.parametrize("name", ["ListOffsets", "OffsetForLeaderEpoch"])
async def test_a_question_of_an_older_epoch_is_fenced(name: str) -> None:
    cluster = await with_records()
    await elected_anew(cluster)
    leader = cluster.leader("events")
    channel = cluster.ports.net.channel(cluster.node(leader).address, purpose="test")
    for epoch in [2, *[0] * 20]:
        at = m.ListOffsetsPartition(topic="events", partition=0, leader_epoch=epoch, timestamp=-1)
        end = m.EpochPartition(topic="events", partition=0, current_leader_epoch=epoch, leader_epoch=0)
        if name == "ListOffsets":
            listed = await channel.call(REPLICA_SERVICE_LIST_OFFSETS, m.ListOffsetsRequest(partitions=(at,)), 10.0)
            code = listed.results[0].error_code
        else:
            asked = m.OffsetForLeaderEpochRequest(partitions=(end,))
            ends = await channel.call(REPLICA_SERVICE_OFFSET_FOR_LEADER_EPOCH, asked, 10.0)
            code = ends.results[0].error_code
        assert code is (ErrorCode.UNKNOWN_LEADER_EPOCH if epoch else ErrorCode.FENCED_LEADER_EPOCH)
    fenced = found(merged(cluster.world.rings), m.RequestFenced, leader)
    assert said(fenced) == [f"refuses {name} for events-0: epoch 0 is older than 1, FENCED_LEADER_EPOCH"]


async def test_a_leader_hears_of_its_successor_from_a_follower() -> None:
    cluster = await with_records()
    old = cluster.leader("events")
    new = next(broker for broker in cluster.ids if broker != old)
    cluster.world.network.cut(cluster.controller.name, f"broker-{old}")
    cluster.later(2.0, cluster.heal)
    await cluster.elect("events", 0, new)
    deposed = found(merged(cluster.world.rings), m.LeaderDeposed, old)
    assert said(deposed) == ["events-0: leads no more in epoch 0, a follower knows epoch 1"]


async def test_a_controller_is_elected_by_a_write() -> None:
    cluster = await with_records()
    events = merged(cluster.world.rings)
    (loaded,) = found(events, m.ControllerLoaded)
    assert [kind for _, kind in chain(events, loaded)] == ["StoreWritten", "ControllerElected", "ControllerLoaded"]
    assert said(found(events, m.StoreWritten))[0].endswith("(controller epoch)")


async def test_a_broker_registers_again_after_its_session() -> None:
    cluster = await with_records()
    meta = cluster.node(1).meta
    assert meta is not None
    cluster.world.zookeeper.expire(meta.session_id)
    await cluster.wait(5.0)
    events = merged(cluster.world.rings)
    first, second = found(events, m.BrokerRegistered, 1)
    assert [kind for _, kind in chain(events, first)] == ["StoreWritten", "BrokerRegistered"]
    lost = found(events, m.SessionLost, 1)
    assert said(lost) == ["has lost its ZooKeeper session, and /brokers/ids/1 with it"]
    assert events.index(lost[0]) < events.index(second)
