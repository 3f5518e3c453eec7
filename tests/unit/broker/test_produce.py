"""Produce at its door: every refusal has its code and names the field, nothing is appended, the next request works."""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from helpers.aio import eventually
from helpers.bad_batches import bomb, made
from helpers.batches import batch, headers, patched, placed, sized_batch
from helpers.broker import TOPIC_ID, BrokerBench, member
from helpers.logs import contents
from helpers.requirements import requirement
from tidelog.client.records import decode_batch, split_batches
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.replica import events as ev
from tidelog.sizes import Carriage
from tidelog.testing.disk import Crash, SimDisk
from tidelog.topic_config import TopicConfig
from tidelog.wire import messages as m
from tidelog.wire.batch import Codec

T = TypeVar("T")
GOOD = batch(b"one", b"two")


def follower_at(offset: int, replica: int = 2) -> ev.FollowerPosition:
    return ev.FollowerPosition(replica, member(replica).broker_epoch, 3, offset, 3, 3, 1 << 40, 1.0)


@requirement("Durability can be traded for write latency")
@requirement("A producer chooses synchronous or asynchronous replication")
@requirement("A message is committed when every ISR member has it")
@requirement("Produce requests wait at the leader until they are committed")
async def test_acks_all_is_answered_when_every_member_has_it() -> None:
    bench = BrokerBench()
    bench.told(isr=(1, 2), replicas=(1, 2))
    sending = asyncio.ensure_future(bench.send(GOOD))
    await asyncio.sleep(0)
    assert not sending.done()
    assert bench.host.log.log_end_offset == 2
    assert (await bench.send(GOOD, acks=1)).error_code is ErrorCode.NONE, "the next request may choose otherwise"
    assert not sending.done()
    bench.host.step(follower_at(2))
    result = await sending
    assert (result.error_code, result.base_offset, result.isr_size) == (ErrorCode.NONE, 0, 2)


async def test_a_lone_leader_says_so_when_it_acknowledges() -> None:
    bench = BrokerBench()
    bench.told(isr=(1,), replicas=(1, 2), config=TopicConfig(min_insync_replicas=1))
    assert [(await bench.send(GOOD, acks=acks)).isr_size for acks in (-1, 1)] == [1, 1]


async def test_the_size_of_the_isr_is_that_of_the_acknowledgement() -> None:
    bench, config = BrokerBench(), TopicConfig(min_insync_replicas=1)
    bench.told(isr=(1, 2), replicas=(1, 2), config=config)
    sending = asyncio.ensure_future(bench.send(GOOD))
    await asyncio.sleep(0)
    bench.told(isr=(1,), replicas=(1, 2), config=config, partition_epoch=8)
    assert (await sending).isr_size == 1


@requirement("A killed follower stalls writes briefly and rejoins the ISR")
@requirement("Durability can be traded for write latency")
@requirement("A producer chooses synchronous or asynchronous replication")
@requirement("An asynchronous write is acknowledged after the local append")
async def test_acks_1_and_0_are_answered_after_the_append() -> None:
    bench = BrokerBench()
    bench.told(isr=(1, 2), replicas=(1, 2))
    assert (await bench.send(GOOD, acks=1)).base_offset == 0
    assert (await bench.send(GOOD, acks=0)).base_offset == 2


@pytest.mark.parametrize("timeout_ms", [0, 20])
async def test_a_produce_that_is_not_replicated_in_time_has_an_unknown_outcome(timeout_ms: int) -> None:
    bench = BrokerBench()
    bench.told(isr=(1, 2), replicas=(1, 2))
    result = await bench.send(GOOD, timeout_ms=timeout_ms)
    assert result.error_code is ErrorCode.REQUEST_TIMED_OUT
    assert result.base_offset == -1
    assert f"timeout_ms {timeout_ms}" in result.error_message
    assert bench.host.log.log_end_offset == 2  # it is there, and may be committed later


@requirement("A broker that does not lead refuses to append")
@requirement("A leader paused beyond its session commits nothing when it wakes")
@requirement("Produce requests wait at the leader until they are committed")
@requirement("A deposed leader fails the produce requests that wait on it")
@requirement("A deposed leader that wakes up commits nothing")
async def test_a_deposed_leader_answers_parked_produces_with_not_leader() -> None:
    bench = BrokerBench()
    bench.told(isr=(1, 2), replicas=(1, 2))
    sending = [asyncio.ensure_future(bench.send(GOOD)) for _ in range(2)]
    await asyncio.sleep(0)
    bench.told(leader=2, leader_epoch=4, partition_epoch=8, isr=(1, 2), replicas=(1, 2))
    assert [(await each).error_code for each in sending] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    later = await bench.send(GOOD)
    assert (later.error_code, later.leader_id, later.leader_epoch) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, 4)


async def test_one_cancelled_request_cancels_no_other() -> None:
    bench = BrokerBench()
    bench.told(isr=(1, 2), replicas=(1, 2))
    first = asyncio.ensure_future(bench.send(GOOD))
    second = asyncio.ensure_future(bench.send(GOOD))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    bench.host.step(follower_at(4))
    assert (await second).error_code is ErrorCode.NONE


async def test_a_cancelled_request_takes_no_effect_with_it() -> None:
    """The commit comes before the cancelled task runs again."""
    bench = BrokerBench()
    bench.told(isr=(1, 2, 3), replicas=(1, 2, 3))
    first = asyncio.ensure_future(bench.send(GOOD))
    await asyncio.sleep(0)
    bench.host.step(follower_at(2, replica=3))
    first.cancel()
    bench.host.step(follower_at(2))
    second = asyncio.ensure_future(bench.send(GOOD))
    await asyncio.sleep(0)
    bench.host.step(follower_at(4, replica=3))
    bench.host.step(follower_at(4))
    assert (await second).error_code is ErrorCode.NONE
    with pytest.raises(asyncio.CancelledError):
        await first


BAD_BATCHES = {
    "empty": (b"", ErrorCode.INVALID_RECORD),
    "crc": (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), ErrorCode.CORRUPT_MESSAGE),
    "truncated": (GOOD[:-1], ErrorCode.CORRUPT_MESSAGE),
    "garbage behind": (GOOD + b"x", ErrorCode.CORRUPT_MESSAGE),
    "half a header": (GOOD[:40], ErrorCode.CORRUPT_MESSAGE),
    "magic 1": (patched(GOOD, 16, ">b", 1, crc=False), ErrorCode.CORRUPT_MESSAGE),
    "base offset 5": (patched(GOOD, 0, ">q", 5, crc=False), ErrorCode.INVALID_RECORD),
    "record count lies": (patched(GOOD, 57, ">i", 9), ErrorCode.INVALID_RECORD),
    "control flag": (patched(GOOD, 21, ">h", 0x20), ErrorCode.INVALID_RECORD),
    "unknown codec": (patched(GOOD, 21, ">h", 7), ErrorCode.INVALID_RECORD),
    "over the limit": (sized_batch(2049), ErrorCode.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize(("records", "code"), BAD_BATCHES.values(), ids=BAD_BATCHES.keys())
async def test_bad_batches_are_refused_whole_and_the_next_one_works(records: bytes, code: ErrorCode) -> None:
    bench = BrokerBench()
    bench.told(config=TopicConfig(max_message_bytes=2048))
    result = await bench.send(records)
    assert result.error_code is code
    assert result.error_message
    assert result.base_offset == -1
    assert bench.host.log.log_end_offset == 0
    assert bench.refusals == [code]
    assert (await bench.send(GOOD)).base_offset == 0


@pytest.mark.parametrize(
    ("fields", "code", "named"),
    [
        ({"acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS, "acks is 2"),
        ({"acks": -2}, ErrorCode.INVALID_REQUIRED_ACKS, "acks is -2"),
        ({"timeout_ms": -1}, ErrorCode.INVALID_REQUEST, "timeout_ms is -1"),
        ({"timeout_ms": 2**31 - 1}, ErrorCode.INVALID_REQUEST, "3600000"),
        ({"acks": 127}, ErrorCode.INVALID_REQUIRED_ACKS, "acks is 127"),
        ({"topic": "../x"}, ErrorCode.INVALID_TOPIC_EXCEPTION, "../x"),
        ({"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nowhere-0"),
        ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "events--1"),
        ({"partition": 2**31 - 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "broker 1"),
        ({"leader_epoch": 2}, ErrorCode.FENCED_LEADER_EPOCH, "leader_epoch 2"),
        ({"leader_epoch": 4}, ErrorCode.UNKNOWN_LEADER_EPOCH, "leader_epoch 4"),
        ({"leader_epoch": -2}, ErrorCode.FENCED_LEADER_EPOCH, "leader_epoch -2"),
        ({"leader_epoch": 2**31 - 1}, ErrorCode.UNKNOWN_LEADER_EPOCH, "leader_epoch 2147483647"),
        ({"topic_id": b"\xff" * 16}, ErrorCode.UNKNOWN_TOPIC_ID, "topic_id"),
    ],
)
@pytest.mark.parametrize("acks", [-1, 0])
async def test_bad_fields_are_named_and_nothing_is_appended(
    fields: dict[str, object], code: ErrorCode, named: str, acks: int
) -> None:
    bench = BrokerBench()
    bench.told()
    result = await bench.send(GOOD, **{"acks": acks, **fields})  # type: ignore[arg-type]
    assert (result.error_code, result.base_offset) == (code, -1)
    assert named in result.error_message
    assert bench.host.log.log_end_offset == 0
    assert (await bench.send(GOOD, topic_id=TOPIC_ID, leader_epoch=3)).error_code is ErrorCode.NONE


async def test_a_request_for_no_partition_has_an_empty_answer() -> None:
    bench = BrokerBench()
    bench.told()
    nothing = m.ProduceRequest(client_id="", acks=-1, timeout_ms=0, partitions=())
    assert (await bench.produce(nothing)).results == ()


async def test_a_partition_named_twice_is_refused_whole() -> None:
    bench = BrokerBench()
    bench.told()
    part = m.ProducePartition(topic="events", partition=0, leader_epoch=-1, records=GOOD)
    request = m.ProduceRequest(client_id="", acks=-1, timeout_ms=100, partitions=(part, part))
    results = (await bench.produce(request)).results
    assert [r.error_code for r in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert bench.host.log.log_end_offset == 0


async def test_one_bad_partition_does_not_stop_the_others_of_a_request() -> None:
    bench = BrokerBench()
    bench.told()
    bench.told(topic="other")
    parts = tuple(
        m.ProducePartition(topic=topic, partition=0, leader_epoch=-1, records=records)
        for topic, records in (("events", GOOD[:-1]), ("other", GOOD))
    )
    results = (await bench.produce(m.ProduceRequest(client_id="", acks=-1, timeout_ms=100, partitions=parts))).results
    assert [r.error_code for r in results] == [ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE]


@requirement("A paused ZooKeeper causes no split brain")
@requirement("Leaders keep serving while ZooKeeper has no quorum")
@requirement("An isolated broker truncates its own tail when it rejoins")
@requirement("A pending ISR change is retried and its age is measured")
@requirement("A leader cut from ZooKeeper stops committing when replaced")
async def test_acks_1_without_a_lease_is_a_setting_and_acks_all_goes_on() -> None:
    bench = BrokerBench()
    bench.told()
    bench.may_ack_alone = False
    assert (await bench.send(GOOD, acks=1)).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await bench.send(GOOD, acks=-1)).error_code is ErrorCode.NONE


@requirement("A leader and a follower killed together lose no committed record")
@requirement("Writes with acks=all are refused below min.insync.replicas")
async def test_below_min_isr_acks_all_is_refused_before_the_append() -> None:
    bench = BrokerBench()
    bench.told(isr=(1,), replicas=(1, 2, 3))
    result = await bench.send(GOOD)
    assert result.error_code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert bench.host.log.log_end_offset == 0


async def test_kafka_10778_a_failed_write_takes_the_partition_offline_and_not_the_process() -> None:
    bench = BrokerBench()
    bench.told()
    bench.told(topic="other")
    bench.disk.fail("append", errno.EIO, path="events-0")
    assert (await bench.send(GOOD)).error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (await bench.send(GOOD)).error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (await bench.send(GOOD, topic="other")).error_code is ErrorCode.NONE


@requirement("Durability can be traded for write latency")
@pytest.mark.parametrize(("flush", "kept"), [("sync", 2), ("none", 0)])
async def test_flush_sync_is_on_the_device_before_it_is_acknowledged(flush: str, kept: int) -> None:
    bench = BrokerBench()
    bench.told(config=TopicConfig(flush=flush))
    assert (await bench.send(GOOD)).error_code is ErrorCode.NONE
    bench.disk.crash(Crash.DROP_UNSYNCED)
    after = BrokerBench(bench.disk)
    after.told(leader_epoch=4)
    assert after.host.log.log_end_offset == kept


# --- faults inside a batch (design section 3, Validation) -------------------------------------------------------------


def inside_out() -> bytes:
    """A batch whose header is right and whose only record claims another offset."""
    data = batch(b"x")
    return patched(data, 64, ">B", data[64] + 2)  # the record's offset delta, zigzag


@pytest.mark.parametrize(("validate", "code"), [("header", ErrorCode.NONE), ("full", ErrorCode.INVALID_RECORD)])
async def test_a_fault_inside_a_batch_is_the_readers_business_unless_validate_is_full(
    validate: str, code: ErrorCode
) -> None:
    bench = BrokerBench()
    bench.told(config=TopicConfig(min_insync_replicas=1, validate=validate))
    bench.told(topic="plain", config=TopicConfig(min_insync_replicas=1))
    result = await bench.send(inside_out())
    assert result.error_code is code
    if code is not ErrorCode.NONE:
        assert "offset_delta: 1 of the batch at position 0, 0 is next" in result.error_message
        assert bench.host.log.log_end_offset == 0, "nothing is appended"
    end = bench.host.log.log_end_offset
    assert (await bench.send(batch(b"fine"))).base_offset == end, "the next valid request works"
    assert (await bench.send(inside_out(), topic="plain")).error_code is ErrorCode.NONE


@pytest.mark.real_loop
async def test_with_validate_full_one_bad_partition_refuses_no_other_and_order_is_kept() -> None:
    bench = BrokerBench()
    full = TopicConfig(min_insync_replicas=1, validate="full")
    for topic in ("events", "other"):
        bench.told(topic=topic, config=full)
    parts = tuple(
        m.ProducePartition(topic=topic, partition=0, leader_epoch=-1, records=records)
        for topic, records in (("events", inside_out()), ("other", batch(b"a")), ("nowhere", batch(b"a")))
    )
    answer = await bench.produce(m.ProduceRequest(client_id="c", acks=-1, timeout_ms=1000, partitions=parts))
    assert [r.error_code for r in answer.results] == [
        ErrorCode.INVALID_RECORD,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    sends = [asyncio.create_task(bench.send(batch(b"%d" % i))) for i in range(20)]
    assert [(await each).base_offset for each in sends] == list(range(20))
    bench.manager.stop(TopicPartition("events", 0), b"", -2, True)
    bench.manager.stop(TopicPartition("other", 0), b"", -2, True)
    assert (
        bench.produce.examine(m.ProduceRequest(client_id="c", acks=1, timeout_ms=1, partitions=parts), "test") is None
    )


# --- compression.type -------------------------------------------------------------------------------------------------

ZSTD = TopicConfig(min_insync_replicas=1, compression_type="zstd", max_message_bytes=2048)


class SlowDisk(SimDisk):
    """What runs beside the event loop waits for the test; what came later is let go first."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[asyncio.Event] = []

    async def in_background(self, work: Callable[[], T]) -> T:
        self.held.append(asyncio.Event())
        await self.held[-1].wait()
        return work()


def values(bench: BrokerBench) -> list[bytes]:
    tp = TopicPartition("events", 0)
    return [
        record.value
        for header, data in split_batches(tp, contents(bench.host.log), 0)
        for record in decode_batch(tp, data, header)
        if record.value is not None
    ]


async def test_a_leader_stores_batches_with_the_codec_of_their_topic_until_it_has_none() -> None:
    bench = BrokerBench()
    bench.told(config=ZSTD)
    sent = [batch(b"a" * 300), batch(b"b", b"c", codec=Codec.ZSTD), batch(b"d" * 300, codec=Codec.GZIP)]
    assert (await bench.send(b"".join(sent))).base_offset == 0
    assert [(await bench.send(sent[0], acks=acks)).base_offset for acks in (0, 1, -1)] == [4, 5, 6]
    stored = contents(bench.host.log)
    assert [(h.base_offset, h.codec) for h in headers(stored)] == [(n, Codec.ZSTD) for n in (0, 1, 3, 4, 5, 6)]
    assert sent[1][16:] in stored, "what has the codec stays as it was sent"
    bench.told(config=TopicConfig(min_insync_replicas=1), partition_epoch=8)
    assert (await bench.send(sent[2])).base_offset == 7
    assert contents(bench.host.log) == stored + placed(sent[2], 7, 3)
    assert values(bench) == [b"a" * 300, b"b", b"c", b"d" * 300, *[b"a" * 300] * 3, b"d" * 300]


UNFIT = {
    "damaged": (made(b"not compressed", codec=Codec.GZIP), ErrorCode.CORRUPT_MESSAGE, "records: damaged gzip data"),
    "a bomb": (bomb(Codec.ZSTD), ErrorCode.INVALID_RECORD, "records: more than 1048576 bytes when decompressed"),
    "too large then": (
        batch(bytes(5_000), codec=Codec.LZ4),
        ErrorCode.MESSAGE_TOO_LARGE,
        "with compression.type=uncompressed, max.message.bytes is 2048",
    ),
    "the second one": (batch(b"fine") + bomb(Codec.ZSTD), ErrorCode.INVALID_RECORD, "when decompressed"),
}


@pytest.mark.parametrize(("records", "code", "words"), UNFIT.values(), ids=UNFIT.keys())
async def test_what_cannot_be_stored_with_its_topics_codec_is_refused_whole(
    records: bytes, code: ErrorCode, words: str
) -> None:
    bench = BrokerBench()
    config = replace(ZSTD, compression_type="uncompressed")
    for topic in ("events", "other"):
        bench.told(topic=topic, config=config)
    for acks in (0, 1, -1):
        parts = tuple(
            m.ProducePartition(topic=topic, partition=0, leader_epoch=-1, records=sent)
            for topic, sent in (("events", records), ("other", batch(b"a", codec=Codec.SNAPPY)))
        )
        answer = await bench.produce(m.ProduceRequest(client_id="c", acks=acks, timeout_ms=1000, partitions=parts))
        refused, stored = answer.results
        assert (refused.error_code, refused.base_offset, stored.error_code) == (code, -1, ErrorCode.NONE)
        assert words in refused.error_message
    assert bench.host.log.log_end_offset == 0 and bench.manager.host("other", 0).log.log_end_offset == 3
    assert (await bench.send(batch(b"fine", codec=Codec.GZIP))).base_offset == 0


@pytest.mark.real_loop
async def test_compressing_holds_up_no_other_topic_and_keeps_the_order_of_its_own() -> None:
    disk = SlowDisk()
    bench = BrokerBench(disk)
    bench.told(config=ZSTD)
    bench.told(topic="plain", config=TopicConfig(min_insync_replicas=1))
    sends = [asyncio.create_task(bench.send(batch(b"%d" % i))) for i in range(5)]
    await eventually(lambda: disk.held)
    assert (await bench.send(batch(b"x"), topic="plain")).base_offset == 0
    while not all(send.done() for send in sends):
        for held in reversed(disk.held):
            held.set()
            await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert [send.result().base_offset for send in sends] == list(range(5))
    assert values(bench) == [b"%d" % i for i in range(5)]


# --- what followers can carry ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "records"),
    [
        (TopicConfig(max_message_bytes=1 << 20), sized_batch(600_000)),
        (
            TopicConfig(max_message_bytes=1 << 20, compression_type="uncompressed"),
            batch(bytes(600_000), codec=Codec.ZSTD),
        ),
    ],
    ids=["as it is", "recoded"],
)
async def test_a_batch_that_a_replica_cannot_take_is_refused(config: TopicConfig, records: bytes) -> None:
    bench = BrokerBench()
    bench.told(replicas=(1, 2), config=replace(config, min_insync_replicas=1))
    bench.manager.carriage.set_live({1: 0, 2: 400_000, 3: 300_000})
    result = await bench.send(records)
    assert result.error_code is ErrorCode.MESSAGE_TOO_LARGE
    assert result.error_message.endswith("max.message.bytes is 1048576 and fetch_max_bytes of broker 2 is 400000")
    assert bench.host.log.log_end_offset == 0
    assert (await bench.send(sized_batch(400_000))).base_offset == 0, "broker 3 has no replica"
    bench.manager.carriage.set_live({1: 0})
    assert (await bench.send(records)).base_offset == 1, "broker 2 is not alive"


async def test_a_batch_that_its_leader_cannot_send_is_refused() -> None:
    bench = BrokerBench()
    bench.told(config=TopicConfig(min_insync_replicas=1))
    bench.manager.carriage = Carriage(400_000)
    result = await bench.send(sized_batch(600_000))
    assert result.error_message.endswith("max.message.bytes is 1048588 and fetch_max_bytes of its leader is 400000")
    assert bench.host.log.log_end_offset == 0
