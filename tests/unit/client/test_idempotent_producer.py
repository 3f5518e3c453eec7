"""HOLE-28 from the client: every record once and in order, whatever is lost on the way; and what it says when it cannot."""

import asyncio
import random
from typing import Any

import pytest

from helpers.brokers import Brokers, brokers, no_tasks_left
from helpers.logs import contents
from helpers.requirements import requirement
from tidelog.client.errors import DeliveryError
from tidelog.client.producer import Producer
from tidelog.client.records import Record, encode_batch
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.testing.intercept import Call
from tidelog.wire import messages as m
from tidelog.wire.batch import BatchHeader, numbered, read_header
from unit.client.clients import Flights, producer, values


def stored(cluster: Brokers, partition: int = 0) -> list[BatchHeader]:
    return [read_header(batch) for batch in cluster.batches("t", partition)]


def epochs(cluster: Brokers, partition: int = 0) -> list[int]:
    return sorted({header.producer_epoch for header in stored(cluster, partition)})


async def settle(p: Producer) -> None:
    """One acknowledged record: from here on several batches may be in flight."""
    await (await p.send("t", b"first", partition=0))


@requirement("A leader killed between append and ack stores all or nothing")
@requirement("A killed leader loses no acknowledged record")
@requirement("Connection resets never duplicate a record of an idempotent producer")
@requirement("A producer batch that is sent again is stored once")
async def test_a_lost_answer_stores_nothing_twice() -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with no_tasks_left(), producer(cluster, batch_bytes=200) as p:
        cluster.lose_answer("Produce", times=5)
        acks = [await p.send("t", v) for v in values(200)]
        done = await asyncio.gather(*acks)
    assert cluster.values("t") == values(200)
    assert [d.offset for d in done] == list(range(200))
    assert {h.producer_id for h in stored(cluster)} == {0}


@requirement("A producer batch that is sent again is stored once")
async def test_sequences_count_the_records_of_each_partition() -> None:
    cluster = await brokers()
    await cluster.create("t", partitions=2)
    async with producer(cluster) as p:
        for _ in range(3):
            for partition in (0, 1, 1):
                await p.send("t", b"v", partition=partition)
            await p.flush()
    assert [h.base_sequence for h in stored(cluster, 0)] == [0, 1, 2]
    assert [h.base_sequence for h in stored(cluster, 1)] == [0, 2, 4]


@requirement("A producer batch that is sent again is stored once")
@pytest.mark.parametrize(("idempotent", "most"), [(True, 5), (False, 1)])
async def test_five_batches_of_a_partition_are_in_flight(idempotent: bool, most: int) -> None:
    cluster = await brokers(1)
    await cluster.create("t")
    flights = Flights(cluster)
    async with producer(cluster, batch_bytes=200, enable_idempotence=idempotent) as p:
        await settle(p)
        for v in values(300):
            await p.send("t", v)
        await p.flush()
    assert cluster.values("t") == [b"first", *values(300)]
    assert flights.most == most


@requirement("A producer batch that is sent again is stored once")
async def test_one_batch_is_in_flight_until_the_producer_is_known() -> None:
    # A leader that has never heard of it takes any sequence: of two, the second could be stored without the first.
    cluster = await brokers()
    await cluster.create("t")
    cluster.refuse_produce(ErrorCode.NOT_ENOUGH_REPLICAS, times=6)
    flights = Flights(cluster)
    async with producer(cluster, batch_bytes=200) as p:
        for v in values(100):
            await p.send("t", v)
        await asyncio.sleep(0.1)
        assert flights.most <= 1
        assert len({c.request.partitions[0].records for c in cluster.of("Produce")}) == 1
        await p.flush()
    assert cluster.values("t") == values(100)


@requirement("A producer batch that is sent again is stored once")
@pytest.mark.parametrize(("idle_s", "beside"), [(300.0, 0), (3.0, 4)])
async def test_after_a_while_the_leader_may_have_forgotten(idle_s: float, beside: int) -> None:
    """Then it takes any sequence for a beginning, as at first."""
    cluster = await brokers(producer_id_expiration_ms=2_000 if idle_s > 10 else 86_400_000)
    await cluster.create("t")
    async with producer(cluster, batch_bytes=200) as p:
        await settle(p)
        await cluster.clock.sleep(idle_s)
        others = []

        async def lost(_: Call) -> Any:
            before = len(cluster.of("Produce"))
            await cluster.clock.sleep(0.5)
            others.append(len(cluster.of("Produce")) - before)
            raise TransportError("UNAVAILABLE", "connection reset")

        cluster.once("Produce", lost)
        acks = [await p.send("t", v) for v in values(100)]
        await asyncio.gather(*acks)
    assert cluster.values("t") == [b"first", *values(100)]
    assert others == [beside]


@requirement("Retries across leader changes keep records unique and in order")
@pytest.mark.parametrize("seed", range(40))
async def test_a_retry_storm_with_changing_leaders_stores_every_record_once_and_in_order(seed: int) -> None:
    rand = random.Random(seed)
    cluster = await brokers(seed=seed)
    await cluster.create("t", partitions=2)

    async def trouble(call: Call) -> Any:
        if call.method != "Produce":
            return NotImplemented
        await cluster.clock.sleep(rand.random() * 0.02)  # requests overtake each other
        match rand.randrange(8):
            case 0:
                raise TransportError("UNAVAILABLE", "lost before")
            case 1:
                await call.serve()
                raise TransportError("UNAVAILABLE", "lost after")
            case 2:
                await cluster.elect("t", rand.randrange(2), rand.choice([1, 2, 3]))
                return NotImplemented
            case 3:
                await call.serve()
                return await call.serve()  # arrives twice
        return NotImplemented

    cluster.faults.append(trouble)
    async with no_tasks_left(), producer(cluster, batch_bytes=200) as p:
        acks = []
        for v in values(150):
            acks += [await p.send("t", v, partition=n) for n in (0, 1)]
            if rand.random() < 0.1:
                await cluster.clock.sleep(0.01)
        await asyncio.gather(*acks)
    for partition in (0, 1):
        assert cluster.values("t", partition) == values(150)
        assert epochs(cluster, partition) == [0], "nothing was lost, so nothing is numbered anew"


@requirement("A leader crash after the append keeps all copies or none")
@pytest.mark.parametrize("copied", [True, False])
async def test_a_leader_that_dies_before_its_answer_leaves_one_record(copied: bool) -> None:
    cluster = await brokers()
    await cluster.create("t")

    async def die(call: Call) -> Any:
        serving = asyncio.ensure_future(call.serve())
        await cluster.until(lambda: cluster.end("t") == 2, "it is appended")
        if copied:
            await cluster.until(lambda: {cluster.host("t", 0, b).log.log_end_offset for b in (2, 3)} == {2}, "copied")
        cluster.kill(1)
        await asyncio.wait([serving])
        serving.exception()
        raise TransportError("UNAVAILABLE", "it died before it answered")

    async with producer(cluster) as p:
        await settle(p)
        if not copied:
            for follower in (2, 3):
                cluster.part(1, follower)
        cluster.once("Produce", die)
        assert (await (await p.send("t", b"v"))).offset == 1
    assert cluster.leader("t") != 1
    await cluster.restart(1)
    assert cluster.values("t") == [b"first", b"v"]
    assert len({contents(cluster.host("t", 0, broker).log) for broker in cluster.ids}) == 1


@requirement("A producer batch that is sent again is stored once")
async def test_after_a_loss_in_the_log_the_rest_is_numbered_anew() -> None:
    cluster = await brokers(log_flush_interval_ms=1_000)
    await cluster.create("t", partitions=2, replicas=1)
    async with producer(cluster, batch_bytes=200) as p:
        for partition in (0, 1):
            await (await p.send("t", b"first", partition=partition))
        await cluster.clock.sleep(3.0)  # it is on the disk
        await (await p.send("t", b"lost", partition=0))
        await cluster.lose_power(1)
        await p._metadata.refresh(p._metadata.version)  # what an epoch refuses that has ended may have been written
        for v in values(100):
            await p.send("t", v, partition=0)
        await p.flush()
        await (await p.send("t", b"last", partition=1))
    assert cluster.values("t", 0) == [b"first", *values(100)]
    assert epochs(cluster, 0) == [0, 1]
    assert epochs(cluster, 1) == [0], "the other partition has nothing to do with it"


@requirement("A producer batch that is sent again is stored once")
async def test_after_a_loss_what_may_come_late_is_not_sent_under_another_number() -> None:
    cluster = await brokers(log_flush_interval_ms=1_000)
    await cluster.create("t", replicas=1)
    sent = asyncio.Event()

    async def lose(call: Call) -> Any:
        sent.set()
        raise TransportError("UNAVAILABLE", "lost, or late")

    async with producer(cluster) as p:
        await settle(p)
        await cluster.clock.sleep(3.0)  # it is on the disk
        await (await p.send("t", b"lost"))
        await cluster.lose_power(1)
        cluster.once("Produce", lose)
        late = await p.send("t", b"late")
        await sent.wait()
        after = [await p.send("t", v) for v in values(3)]
        with pytest.raises(DeliveryError, match="records before it are missing") as failed:
            await late
        assert not failed.value.outcome_known
        assert [ack.offset for ack in await asyncio.gather(*after)] == [1, 2, 3]
    assert cluster.values("t") == [b"first", *values(3)]


@requirement("A producer batch that is sent again is stored once")
async def test_a_batch_that_was_refused_for_good_leaves_no_gap() -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with producer(cluster) as p:
        await settle(p)
        cluster.refuse_produce(ErrorCode.INVALID_RECORD)
        with pytest.raises(DeliveryError) as refused:
            await (await p.send("t", b"bad"))
        assert refused.value.outcome_known
        await (await p.send("t", b"good"))
    assert cluster.values("t") == [b"first", b"good"]
    assert epochs(cluster) == [0, 1]


@requirement("Connection resets never duplicate a record of an idempotent producer")
@requirement("A producer batch that is sent again is stored once")
@pytest.mark.parametrize("appended", [True, False])
async def test_what_follows_a_batch_of_unknown_outcome_is_stored_once(appended: bool) -> None:
    cluster = await brokers(1)
    await cluster.create("t")
    dark = True

    async def fault(call: Call) -> Any:
        if not dark or call.method != "Produce":
            return NotImplemented
        if appended:
            await call.serve()
        raise TransportError("UNAVAILABLE", "lost")

    async with producer(cluster, delivery_timeout_ms=300) as p:
        await settle(p)
        cluster.faults.append(fault)
        with pytest.raises(DeliveryError) as lost:
            await (await p.send("t", b"doubtful"))
        assert not lost.value.outcome_known
        dark = False
        done = await asyncio.gather(*[await p.send("t", v) for v in values(3)])
    assert [d.offset for d in done] == [1 + appended, 2 + appended, 3 + appended]
    assert cluster.values("t") == [b"first", *([b"doubtful"] if appended else []), *values(3)]


@requirement("A producer batch that is sent again is stored once")
async def test_a_batch_that_never_left_takes_no_sequence() -> None:
    cluster = await brokers()
    await cluster.create("t", replicas=1)
    async with producer(cluster, delivery_timeout_ms=200) as p:
        await settle(p)
        cluster.kill(1)
        await cluster.settle()
        await p._metadata.refresh(p._metadata.version)
        with pytest.raises(DeliveryError) as expired:
            await (await p.send("t", b"late"))
        assert expired.value.outcome_known
        await cluster.restart(1)
        await p._metadata.refresh(p._metadata.version)
        await (await p.send("t", b"good"))
    assert cluster.values("t") == [b"first", b"good"]


@requirement("A producer batch that is sent again is stored once")
async def test_split_batches_are_numbered_anew_and_keep_their_order() -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with producer(cluster, batch_bytes=2000) as p:
        await settle(p)
        await cluster.admin.alter_configs("t", {"max.message.bytes": "400"})
        for v in values(2000):
            await p.send("t", v)
        await p.flush()
    assert cluster.values("t") == [b"first", *values(2000)]


@requirement("A producer batch that is sent again is stored once")
async def test_another_producer_with_the_id_ends_this_one() -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with producer(cluster) as p:
        await settle(p)
        thief = numbered(encode_batch([Record(None, b"thief", (), 5)]), stored(cluster)[0].producer_id, 9, 0)
        await cluster.append("t", 0, thief)
        with pytest.raises(DeliveryError) as fenced:
            await (await p.send("t", b"mine"))
        assert fenced.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        with pytest.raises(TidelogError, match="another producer has taken over"):
            await p.send("t", b"mine")
    assert cluster.values("t") == [b"first", b"thief"]


@requirement("A producer batch that is sent again is stored once")
@pytest.mark.parametrize("code", [ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
async def test_a_leader_that_cannot_tell_leaves_the_outcome_open(code: ErrorCode) -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with producer(cluster) as p:
        await settle(p)
        cluster.refuse_produce(code, append=True)
        with pytest.raises(DeliveryError) as failed:
            await (await p.send("t", b"doubtful"))
        assert (failed.value.code, failed.value.outcome_known) == (code, False)
        await (await p.send("t", b"good"))
    assert cluster.values("t") == [b"first", b"doubtful", b"good"]


@requirement("A producer batch that is sent again is stored once")
async def test_after_the_last_epoch_comes_a_new_id() -> None:
    cluster = await brokers()
    await cluster.create("t")

    async def old(call: Call) -> m.InitProducerIdResponse:
        return m.InitProducerIdResponse(producer_id=7, producer_epoch=2**15 - 1)

    cluster.once("InitProducerId", old)
    async with producer(cluster) as p:
        await settle(p)
        cluster.refuse_produce(ErrorCode.INVALID_RECORD)
        with pytest.raises(DeliveryError):
            await (await p.send("t", b"bad"))
        await (await p.send("t", b"good"))
    assert [(h.producer_id, h.producer_epoch) for h in stored(cluster)] == [
        (7, 2**15 - 1),
        (0, 0),
    ]


@requirement("A producer batch that is sent again is stored once")
async def test_records_wait_for_a_producer_id() -> None:
    cluster = await brokers()
    await cluster.create("t")
    for _ in range(7):

        async def refuse(call: Call) -> m.InitProducerIdResponse:
            return m.InitProducerIdResponse(
                error_code=ErrorCode.REQUEST_TIMED_OUT, error_message="none yet", producer_id=-1, producer_epoch=-1
            )

        cluster.once("InitProducerId", refuse)
    async with no_tasks_left(), producer(cluster) as p:
        assert (await (await p.send("t", b"v"))).offset == 0
    assert len(cluster.of("InitProducerId")) == 8


@requirement("A producer batch that is sent again is stored once")
async def test_a_cluster_without_producer_ids_is_named() -> None:
    cluster = await brokers()
    await cluster.create("t")

    async def unknown(call: Call) -> Any:
        raise TransportError("UNIMPLEMENTED", "no such method")

    cluster.once("InitProducerId", unknown)
    async with no_tasks_left(), producer(cluster) as p:
        with pytest.raises(TidelogError, match="no producer id can be had"):
            await (await p.send("t", b"v"))
        with pytest.raises(TidelogError, match="no producer id can be had"):
            await p.send("t", b"v")


@requirement("A producer batch that is sent again is stored once")
@pytest.mark.parametrize("acks", [0, 1])
async def test_idempotence_needs_acks_all(acks: int) -> None:
    cluster = await brokers()
    await cluster.create("t")
    with pytest.raises(ValueError, match="enable_idempotence needs acks all"):
        producer(cluster, acks=acks, enable_idempotence=True)
    async with producer(cluster, acks=acks) as p:
        await (await p.send("t", b"v"))
    assert cluster.of("InitProducerId") == []
    assert stored(cluster)[0].producer_id == -1


@requirement("A producer batch that is sent again is stored once")
async def test_a_batch_of_another_producer_is_not_renumbered() -> None:
    cluster = await brokers()
    await cluster.create("t")
    batch = numbered(encode_batch([Record(None, b"v", (), 5)]), 77, 0, 0)
    async with producer(cluster) as p:
        with pytest.raises(ValueError, match="names a producer already"):
            await p.produce_encoded("t", 0, batch)
    async with producer(cluster, enable_idempotence=False) as p:
        await (await p.produce_encoded("t", 0, batch))
    assert stored(cluster)[0].producer_id == 77
