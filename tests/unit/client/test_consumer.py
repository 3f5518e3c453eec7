"""The consumer against brokers in memory: positions, long polls, resets, damage."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from helpers.brokers import Brokers, brokers, forgotten_meanwhile, no_tasks_left
from helpers.requirements import requirement
from tidelog.client.consumer import Consumer
from tidelog.client.errors import BadBatchError, ClientClosed, LogTruncationError, PositionOutOfRangeError
from tidelog.client.producer import Producer
from tidelog.client.records import Record, encode_batch
from tidelog.errors import ErrorCode, TidelogError, UnknownTopicOrPartitionError
from tidelog.ids import TopicPartition
from tidelog.testing.disk import Crash
from tidelog.testing.intercept import Call
from tidelog.wire import messages as m
from tidelog.wire.batch import Codec, iter_batches

T0 = TopicPartition("t", 0)


def consumer(cluster: Brokers, **options: Any) -> Consumer:
    return Consumer(cluster.bootstrap, ports=cluster.ports, **options)


async def fill(
    cluster: Brokers, partition: int = 0, *, batches: int = 5, each: int = 10, codec: Codec = Codec.NONE
) -> None:
    for _ in range(batches):
        first = cluster.end("t", partition)
        records = (Record(None, b"%d" % (first + i), (), 1000 + first + i) for i in range(each))
        await cluster.append("t", partition, encode_batch(records, codec))


async def drain(c: Consumer, count: int) -> list[int]:
    out: list[int] = []
    while len(out) < count:
        got = await c.poll(max_records=7, timeout_s=5)
        assert got, f"only {len(out)} of {count} records came"
        out.extend(r.offset for r in got)
    return out


async def test_every_record_comes_once_and_in_order() -> None:
    cluster = await brokers()
    await cluster.create("t", partitions=4)
    for p in range(4):
        await fill(cluster, p)
    async with no_tasks_left(), consumer(cluster, partition_bytes=300) as c:
        await c.assign(await c.partitions_of("t"))
        seen: dict[int, list[int]] = {}
        for _ in range(200):
            for r in await c.poll(max_records=7, timeout_s=0.1):
                assert r.value == b"%d" % r.offset
                seen.setdefault(r.partition, []).append(r.offset)
        assert seen == {p: list(range(50)) for p in range(4)}


async def test_a_long_poll_ends_when_a_record_arrives() -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with consumer(cluster, max_wait_ms=5000) as c:
        await c.assign([T0])
        assert await c.poll(timeout_s=0.2) == []
        polling = asyncio.ensure_future(c.poll(timeout_s=5))
        await cluster.clock.sleep(1)
        began = cluster.clock.now()
        await fill(cluster, batches=1)
        assert len(await polling) == 10
        assert cluster.clock.now() - began < 0.05
        assert len(cluster.of("Fetch")) <= 3


async def test_several_partitions_of_a_leader_share_a_fetch() -> None:
    cluster = await brokers(1)
    await cluster.create("t", partitions=8)
    async with consumer(cluster) as c:
        await c.assign(await c.partitions_of("t"))
        assert await c.poll(timeout_s=0.3) == []
        assert [len(call.request.partitions) for call in cluster.of("Fetch")] == [8]


async def test_records_below_the_asked_offset_are_dropped() -> None:
    cluster = await brokers()
    await cluster.create("t")
    await fill(cluster)
    async with consumer(cluster) as c:
        await c.assign([T0])
        c.seek(T0, 23)
        assert await drain(c, 27) == list(range(23, 50))
        assert await c.position(T0) == 50
        c.seek(T0, 5)
        assert await drain(c, 45) == list(range(5, 50))


async def test_a_seek_makes_the_answer_that_is_on_its_way_void() -> None:
    cluster = await brokers(latency_s=0.025)
    await cluster.create("t")
    await fill(cluster)
    async with consumer(cluster) as c:
        await c.assign([T0])
        c.seek(T0, 40)
        await cluster.clock.sleep(0.02)  # the fetch from 40 is on its way
        c.seek(T0, 5)
        assert await drain(c, 45) == list(range(5, 50))


async def test_positions_and_offsets_can_be_asked_for() -> None:
    cluster = await brokers()
    await cluster.create("t", partitions=2)
    await fill(cluster)
    await cluster.admin.logs.delete_records({T0: 10})
    async with consumer(cluster) as c:
        await c.assign([T0, TopicPartition("t", 1)])
        assert await c.beginning_offsets([T0]) == {T0: 10}
        assert await c.end_offsets(c.assignment) == {T0: 50, TopicPartition("t", 1): 0}
        assert (await c.offsets_for_times({T0: 1025}))[T0] == (25, 1025, 0)
        assert (await c.offsets_for_times({T0: 9999}))[T0].offset == -1
        assert await c.position(T0) == 10
        await c.seek_to_end()
        assert await c.position(T0) == 50


async def test_a_seek_does_not_wait_for_a_long_poll_at_the_end() -> None:
    cluster = await brokers()
    await cluster.create("t", partitions=2)
    await fill(cluster)
    async with consumer(cluster, max_wait_ms=300_000) as c:
        await c.assign([T0, TopicPartition("t", 1)])
        for offset in range(5):
            await c.seek_to_end(T0)
            assert await c.poll(1, timeout_s=0.05) == []
            c.seek(T0, offset)
            assert [record.offset for record in await c.poll(1, timeout_s=5)] == [offset]


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 10), ("latest", 50)])
async def test_an_offset_that_left_the_log_follows_the_reset_policy(
    reset: str, expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = await brokers()
    await cluster.create("t")
    await fill(cluster)
    await cluster.admin.logs.delete_records({T0: 10})
    async with consumer(cluster, auto_offset_reset=reset) as c:
        await c.assign([T0])
        c.seek(T0, 3)
        await c.poll(max_records=1, timeout_s=0.2)
        await fill(cluster, batches=1)
        c.seek(T0, 1000)
        first = await c.poll(max_records=1, timeout_s=0.3)
        assert [r.offset for r in first] == ([expected] if reset == "earliest" else [])
        assert await c.position(T0) == (expected + 1 if reset == "earliest" else 60)
    said = f"t-0: offset 1000 is not in the log, which holds offsets 10 to 60: reading goes on at the {reset}"
    assert caplog.text.count(said) == 1


async def test_without_a_reset_policy_the_error_names_the_range() -> None:
    cluster = await brokers()
    await cluster.create("t")
    await fill(cluster)
    async with consumer(cluster, auto_offset_reset="error") as c:
        await c.assign([T0])
        with pytest.raises(TidelogError, match="t-0: no position: seek first"):
            await c.poll(timeout_s=1)
        c.seek(T0, 99)
        with pytest.raises(
            PositionOutOfRangeError, match="t-0: offset 99 is not in the log, which holds offsets 0 to 50"
        ):
            await c.poll(timeout_s=1)
        c.seek(T0, 49)
        assert await drain(c, 1) == [49]


@pytest.mark.parametrize("reset", ["earliest", "error"])
async def test_kip_320_a_truncation_below_the_position_is_found(reset: str) -> None:
    cluster = await brokers(log_flush_interval_ms=1_000)
    await cluster.create("t", replicas=1)
    await fill(cluster, batches=3)
    await cluster.clock.sleep(3.0)  # they are on the disk
    await fill(cluster, batches=2)
    async with consumer(cluster, auto_offset_reset=reset) as c:
        await c.assign([T0])
        c.seek(T0, 0)
        assert await drain(c, 50) == list(range(50))
        # the leader comes back without the last 20 records and appends others
        await cluster.lose_power(1)
        await fill(cluster, batches=3)
        if reset == "error":
            with pytest.raises(LogTruncationError) as caught:
                await c.poll(timeout_s=5)
            assert caught.value.diverging_offset == 30
            c.seek(T0, caught.value.diverging_offset)
        assert await drain(c, 30) == list(range(30, 60))


async def test_a_damaged_batch_is_reported_with_its_place_and_can_be_skipped() -> None:
    cluster = await brokers()
    await cluster.create("t")
    await fill(cluster)
    batch = cluster.batches("t")[2]
    cluster.damage(batch, batch[:-1] + bytes([batch[-1] ^ 1]))
    async with consumer(cluster) as c:
        await c.assign([T0])
        assert await drain(c, 20) == list(range(20))
        for _ in range(2):  # until the caller decides
            with pytest.raises(
                BadBatchError, match=r"t-0: bad batch at offset 20: crc.*seek to 30 to skip it"
            ) as caught:
                await c.poll(timeout_s=1)
        assert await c.position(T0) == 20
        c.seek(T0, caught.value.next_offset)
        assert await drain(c, 20) == list(range(30, 50))


async def test_a_fault_inside_a_batch_with_a_good_crc_is_reported_with_its_place() -> None:
    from crc32c import crc32c

    cluster = await brokers()
    await cluster.create("t")
    for codec in Codec:
        await fill(cluster, batches=1, codec=codec)
    for batch in cluster.batches("t"):
        inside = batch[:61] + bytes(b ^ 0x5A for b in batch[61:])
        cluster.damage(batch, inside[:17] + crc32c(inside[21:]).to_bytes(4, "big") + inside[21:])
    async with consumer(cluster) as c:
        await c.assign([T0])
        for i in range(len(Codec)):
            with pytest.raises(BadBatchError, match=f"bad batch at offset {10 * i}:") as caught:
                await c.poll(timeout_s=1)
            c.seek(T0, caught.value.next_offset)


async def test_the_reader_follows_its_leader() -> None:
    cluster = await brokers(session_ms=2_000)
    await cluster.create("t")
    await fill(cluster)
    async with consumer(cluster, max_wait_ms=100) as c:
        await c.assign([T0])
        assert await drain(c, 50) == list(range(50))
        await cluster.elect("t", 0, 2)
        await fill(cluster, batches=1)
        assert await drain(c, 10) == list(range(50, 60))
        cluster.kill(2)
        await cluster.settle()
        assert cluster.leader("t") == 1
        await fill(cluster, batches=1)
        began = cluster.clock.now()
        assert await drain(c, 10) == list(range(60, 70))
        assert cluster.clock.now() - began < 1
        await cluster.restart(2)
        cluster.pause(1)
        await cluster.clock.sleep(3.0)  # its session has ended
        assert cluster.leader("t") == 2
        await fill(cluster, batches=1)
        assert await drain(c, 10) == list(range(70, 80))


@requirement("A published message survives failures of servers")
@requirement("After a leader crash the next leader serves acknowledged messages")
@pytest.mark.parametrize("crash", Crash)
async def test_every_acknowledged_record_is_read_from_the_next_leader(crash: Crash) -> None:
    cluster = await brokers()
    await cluster.create("t")
    for follower in (2, 3):
        cluster.part(1, follower)
        cluster.later(1.0, cluster.rejoin, 1, follower)
    await fill(cluster)
    cluster.node(1).kill(crash)
    await cluster.settle()
    assert cluster.leader("t") == 2
    async with consumer(cluster) as c:
        await c.assign([T0])
        assert await drain(c, 50) == list(range(50))


async def test_a_leader_that_leaves_the_metadata_before_it_is_asked_costs_a_retry() -> None:
    cluster = await brokers()
    await cluster.create("t")
    await fill(cluster)
    async with consumer(cluster) as c:
        forgotten_meanwhile(c, 1, "fetch-1")
        await c.assign([T0])
        assert await drain(c, 50) == list(range(50))


async def test_a_broker_that_has_heard_of_some_partitions_only_is_asked_again() -> None:
    """Just after a creation; the producer too, when it is told where to send."""

    cluster = await brokers()
    await cluster.create("t")
    async with consumer(cluster) as c, Producer(cluster.bootstrap, ports=cluster.ports) as producer:
        await asyncio.gather(c.partitions_of("t"), producer.partitions_of("t"))
        growing = asyncio.create_task(cluster.grow("t", 3))
        sending = asyncio.create_task(producer.send("t", b"v", partition=1))
        await c.assign([TopicPartition("t", 2)])
        assert (await (await sending)).partition == 1
        await growing


async def test_unknown_topics_and_partitions_are_refused_at_assign() -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with consumer(cluster, request_timeout_ms=300) as c:
        with pytest.raises(TidelogError, match="topic 'nope' does not exist"):
            await c.assign([TopicPartition("nope", 0)])
        with pytest.raises(TidelogError, match="partitions 0 to 0, partition 4 does not exist"):
            await c.assign([TopicPartition("t", 4)])
        with pytest.raises(ValueError, match="offset -5 is negative"):
            c.seek(T0, -5)


async def test_a_deleted_topic_ends_its_reader() -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with consumer(cluster, request_timeout_ms=2000, max_wait_ms=100) as c:
        await c.assign([T0])
        assert await c.poll(timeout_s=0.2) == []
        await cluster.delete("t")
        with pytest.raises(TidelogError, match="topic 't' does not exist"):
            await c.poll(timeout_s=30)


@pytest.mark.parametrize("other", [False, True])
async def test_a_topic_that_is_known_again_is_read_on(other: bool) -> None:
    """For a while a broker has told that there is none: it had just started. Another topic of the name is none of its own."""
    cluster = await brokers()
    await cluster.create("t")
    await fill(cluster)

    async def unknown(call: Call) -> Any:
        if call.method != "ClusterMetadata" or "t" not in call.request.topics:
            return NotImplemented
        answer = await call.serve()
        missing = m.TopicMetadata(topic="t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return replace(answer, topics=(missing,))

    async with consumer(cluster, request_timeout_ms=2000, max_wait_ms=100) as c:
        await c.assign([T0])
        read = await drain(c, 50)
        cluster.faults.append(unknown)
        await cluster.elect("t", 0, 2)
        with pytest.raises(UnknownTopicOrPartitionError):
            await c.poll(timeout_s=30)
        if other:
            await cluster.delete("t")
            await cluster.create("t")
        await fill(cluster)
        cluster.faults.remove(unknown)
        await cluster.clock.sleep(2)
        if other:
            with pytest.raises(UnknownTopicOrPartitionError):
                await c.poll(timeout_s=1)
        else:
            assert [*read, *await drain(c, 50)] == list(range(100))


async def test_iteration_goes_on_for_ever() -> None:
    cluster = await brokers()
    await cluster.create("t")
    await fill(cluster)
    async with consumer(cluster) as c:
        await c.assign([T0])
        seen = []
        async for record in c:
            seen.append(record.offset)
            if len(seen) == 50:
                break
        assert seen == list(range(50))


async def test_calls_during_and_after_stop_raise_one_error() -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with no_tasks_left():
        c = consumer(cluster)
        await c.start()
        await c.assign([T0])
        waiting = [asyncio.create_task(c.poll(timeout_s=3600)) for _ in range(2)]
        await cluster.clock.sleep(1)
        await asyncio.gather(c.stop(), c.stop())
        await c.stop()
        for call in (*waiting, c.poll(), anext(c), c.assign([T0]), c.position(T0), c.end_offsets([T0])):
            with pytest.raises(ClientClosed):
                await call
        with pytest.raises(ClientClosed):
            c.seek(T0, 0)


async def test_a_loop_that_is_left_skips_no_record() -> None:
    cluster = await brokers()
    await cluster.create("t")
    await fill(cluster)
    async with consumer(cluster) as c:
        await c.assign([T0])
        seen = []
        for _ in range(2):
            async for record in c:
                seen.append(record.offset)
                if len(seen) % 10 == 0:
                    break
        with pytest.raises(ZeroDivisionError):
            async for record in c:
                seen.append(record.offset)
                raise ZeroDivisionError("of the application")
        assert seen == list(range(21))
        assert await c.position(T0) == 21
        assert [r.offset for r in await c.poll(max_records=2)] == [21, 22]


@pytest.mark.parametrize("codec", list(Codec))
async def test_compression_round_trip_through_producer_and_consumer(codec: Codec) -> None:
    cluster = await brokers()
    await cluster.create("t")
    sent = [(b"k%d" % (i % 7), b"value %d " % i * 20) for i in range(300)]
    async with Producer(cluster.bootstrap, ports=cluster.ports, compression=codec.name.lower(), linger_ms=5) as p:
        for key, value in sent:
            await p.send("t", value, key=key, headers=[("n", b"1")])
    headers = [h for batch in cluster.batches("t") for _, h in iter_batches(batch)]
    assert {h.codec for h in headers} == {codec}
    async with consumer(cluster) as c:
        await c.assign([T0])
        got: list[tuple[bytes | None, bytes | None]] = []
        while len(got) < 300:
            got.extend([(r.key, r.value) for r in await c.poll()])
        assert got == sent


async def test_fetch_batches_gives_whole_batches_of_exactly_the_range() -> None:
    cluster = await brokers()
    await cluster.create("t")
    await fill(cluster, batches=20)
    async with no_tasks_left(), consumer(cluster, partition_bytes=500) as c:
        for start, end in ((0, 200), (13, 187), (50, 51), (60, 60), (199, 200)):
            chunks = [chunk async for chunk in c.fetch_batches("t", 0, start, end)]
            headers = [h for chunk in chunks for _, h in iter_batches(chunk)]
            expected = [] if start == end else list(range(start // 10 * 10, end, 10))
            assert [h.base_offset for h in headers] == expected


async def test_fetch_batches_survives_an_election_and_refuses_a_hole() -> None:
    cluster = await brokers()
    await cluster.create("t")
    await fill(cluster, batches=20)
    async with no_tasks_left(), consumer(cluster, partition_bytes=500) as c:
        bases: list[int] = []
        async for chunk in c.fetch_batches("t", 0, 0, 200):
            bases.extend(h.base_offset for _, h in iter_batches(chunk))
            if 50 in bases and cluster.leader("t") == 1:
                await cluster.elect("t", 0, 2)
                cluster.kill(1)
        assert bases == list(range(0, 200, 10))
        await cluster.admin.logs.delete_records({T0: 40})
        with pytest.raises(PositionOutOfRangeError, match="offset 0 is not in the log, which holds offsets 40 to 200"):
            async for _ in c.fetch_batches("t", 0, 0, 200):
                pass
        with pytest.raises(TidelogError) as caught:
            async for _ in c.fetch_batches("t", 0, 200, 300):
                pass
        assert caught.value.code is ErrorCode.OFFSET_NOT_AVAILABLE
