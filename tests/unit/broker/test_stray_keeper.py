"""A stray is deleted only after a day, and only where ZooKeeper confirms that this broker has no such replica."""

from collections.abc import Awaitable, Callable

import pytest

from helpers.batches import batch
from helpers.broker import TOPIC_ID, BrokerBench
from tidelog.broker.stray_keeper import CHECK_S, KEPT_S, StrayKeeper
from tidelog.ids import BrokerId
from tidelog.ports.meta import Create, Op
from tidelog.runtime.zk_patterns import ensure_path
from tidelog.testing.clock import SimClock
from tidelog.testing.loop import SimProcess
from tidelog.testing.meta import SimMeta, SimZooKeeper
from tidelog.testing.rand import seeded
from tidelog.wire.batch import validate_produce
from tidelog.wire.znodes import TOPICS, TopicAssignment, encode_topic, topic_path

Store = Callable[[list[Op]], Awaitable[SimMeta]]


async def stored(ops: list[Op]) -> SimMeta:
    meta = SimZooKeeper(seeded(1, "zookeeper")).client()
    await meta.start()
    await ensure_path(meta, TOPICS)
    if ops:
        await meta.multi(ops)
    return meta


def topic(topic_id: bytes, *replicas: int) -> list[Op]:
    row = tuple(BrokerId(each) for each in replicas)
    return [Create(topic_path("events"), encode_topic(TopicAssignment(topic_id, (row,))))]


def bench_with_stray() -> BrokerBench:
    bench = BrokerBench(clock=SimClock())
    bench.told()
    bench.host.append(validate_produce(batch(b"record"), batch_bytes_max=1 << 20), -1, acks=1)
    bench.manager.set_strays_aside(frozenset())
    assert len(bench.manager.strays) == 1
    return bench


@pytest.mark.parametrize(
    ("ops", "kept"),
    [
        ([], False),
        (topic(b"\xcc" * 16, 1), False),
        (topic(TOPIC_ID, 2, 3), False),
        (topic(TOPIC_ID, 2, 1), True),
        ([Create(topic_path("events"), b"{")], True),
    ],
    ids=["deleted", "made again", "moved away", "still here", "unreadable"],
)
async def test_zookeeper_confirms_what_is_deleted(ops: list[Op], kept: bool) -> None:
    bench, meta, process = bench_with_stray(), await stored(ops), SimProcess("broker")
    process.start("strays", StrayKeeper(1, bench.manager, meta, bench.clock).run())
    await bench.clock.sleep(KEPT_S - CHECK_S)
    assert len(bench.manager.strays) == 1, "not before the time is over"
    await bench.clock.sleep(3 * CHECK_S)
    assert len(bench.manager.strays) == int(kept)
    assert not process.supervisor.failures


async def test_a_store_that_is_away_confirms_nothing() -> None:
    bench, meta, process = bench_with_stray(), await stored([]), SimProcess("broker")
    process.start("strays", StrayKeeper(1, bench.manager, meta, bench.clock).run())
    meta.cut()
    await bench.clock.sleep(KEPT_S + 3 * CHECK_S)
    assert len(bench.manager.strays) == 1
    meta.heal()
    await bench.clock.sleep(3 * CHECK_S)
    assert not bench.manager.strays and not process.supervisor.failures
