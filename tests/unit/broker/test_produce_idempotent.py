"""HOLE-28 at the leader's door: a repeated batch is answered with where it is, and not before it is committed."""

import asyncio
import random

import pytest

from helpers.batches import batch, headers
from helpers.broker import BrokerBench, member
from helpers.logs import contents
from helpers.requirements import requirement
from tidelog.errors import ErrorCode
from tidelog.replica import events as ev
from tidelog.testing.disk import Crash
from tidelog.topic_config import TopicConfig
from tidelog.wire.batch import Codec, numbered

PLAIN = batch(b"one", b"two")


def sent(sequence: int, producer_id: int = 7, epoch: int = 0) -> bytes:
    return numbered(PLAIN, producer_id, epoch, sequence)


def follower_at(offset: int, leader_epoch: int = 3) -> ev.FollowerPosition:
    return ev.FollowerPosition(2, member(2).broker_epoch, leader_epoch, offset, 3, 3, 1 << 40, 1.0)


@requirement("Connection resets never duplicate a record of an idempotent producer")
@requirement("A producer batch that is sent again is stored once")
async def test_a_repeated_batch_is_stored_once() -> None:
    bench = BrokerBench()
    bench.told()
    assert (await bench.send(sent(0))).base_offset == 0
    assert (await bench.send(sent(2))).base_offset == 2
    again = await bench.send(sent(0))
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
    assert bench.host.log.log_end_offset == 4


@requirement("A producer batch that is sent again is stored once")
async def test_a_repetition_is_acknowledged_when_the_original_is_committed() -> None:
    bench = BrokerBench()
    bench.told(isr=(1, 2), replicas=(1, 2))
    first = asyncio.ensure_future(bench.send(sent(0), timeout_ms=1))
    assert (await first).error_code is ErrorCode.REQUEST_TIMED_OUT
    later = asyncio.ensure_future(bench.send(sent(2)))
    again = asyncio.ensure_future(bench.send(sent(0)))
    await asyncio.sleep(0)
    assert not again.done(), "the original is on one broker only"
    assert (await bench.send(sent(0), acks=1)).base_offset == 0
    bench.host.step(follower_at(2))
    assert (await again).base_offset == 0
    assert not later.done()
    bench.host.step(follower_at(4))
    assert (await later).base_offset == 2


@requirement("A leader crash after the append keeps all copies or none")
@requirement("A leader killed between append and ack stores all or nothing")
async def test_the_next_leader_knows_what_the_last_one_had_appended() -> None:
    bench = BrokerBench()
    bench.told(leader=2, isr=(1, 2), replicas=(1, 2))
    leader = BrokerBench(broker_id=2)
    leader.told(leader=2, isr=(1, 2), replicas=(1, 2))
    unanswered = asyncio.ensure_future(leader.send(sent(0), timeout_ms=1))
    await unanswered
    bench.host.append_chunk(leader.host.read(0, 1 << 20, 2, True))
    bench.host.step(ev.FollowerAppended(3, 2, 0, 0))
    bench.told(leader=1, leader_epoch=4, partition_epoch=8, replicas=(1, 2), config=TopicConfig(min_insync_replicas=1))
    again = await bench.send(sent(0))
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
    assert (await bench.send(sent(2))).base_offset == 2
    assert bench.host.log.log_end_offset == 4


@requirement("A producer batch that is sent again is stored once")
async def test_what_was_cut_off_is_appended_again() -> None:
    bench = BrokerBench()
    bench.told()
    await bench.send(sent(0))
    await bench.send(sent(2))
    bench.host.log.truncate_to(2)
    assert (await bench.send(sent(4))).error_code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await bench.send(sent(2))).base_offset == 2
    assert bench.host.log.log_end_offset == 4


@requirement("A producer batch that is sent again is stored once")
@pytest.mark.parametrize("loss", [Crash.PROCESS, Crash.KEEP_SOME])
async def test_a_restart_forgets_nothing_that_is_in_the_log(loss: Crash) -> None:
    bench = BrokerBench()
    bench.told()
    await bench.send(sent(0))
    bench.host.log.flush()
    bench.disk.crash(loss, random.Random(1))
    revived = BrokerBench(bench.disk)
    revived.told(leader_epoch=4)
    end = revived.host.log.log_end_offset
    assert (await revived.send(sent(0))).error_code is ErrorCode.NONE
    assert revived.host.log.log_end_offset == max(end, 2)


@requirement("A producer batch that is sent again is stored once")
@pytest.mark.parametrize(
    ("records", "code"),
    [
        (sent(4, epoch=2), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (sent(2, epoch=1), ErrorCode.INVALID_PRODUCER_EPOCH),
        (sent(2, epoch=3), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (sent(2**31 - 1, epoch=2), ErrorCode.UNKNOWN_PRODUCER_ID),
        (sent(2, epoch=2) + sent(4, epoch=2), ErrorCode.INVALID_RECORD),
        (sent(2, epoch=2) + PLAIN, ErrorCode.INVALID_RECORD),
        (sent(0, epoch=-1), ErrorCode.INVALID_RECORD),
        (sent(-1, epoch=2), ErrorCode.INVALID_RECORD),
        (sent(0, producer_id=-2), ErrorCode.INVALID_RECORD),
    ],
    ids=["gap", "old-epoch", "new-epoch-not-0", "far", "two", "mixed", "no-epoch", "no-sequence", "no-id"],
)
async def test_a_refused_batch_changes_nothing(records: bytes, code: ErrorCode) -> None:
    bench = BrokerBench()
    bench.told()
    await bench.send(sent(0, epoch=2))
    result = await bench.send(records)
    assert result.error_code is code
    assert result.error_message and result.base_offset == -1
    assert bench.host.log.log_end_offset == 2
    assert (await bench.send(sent(2, epoch=2))).base_offset == 2


@requirement("A producer batch that is sent again is stored once")
async def test_a_refusal_by_min_isr_takes_no_sequence() -> None:
    bench = BrokerBench()
    bench.told(isr=(1,), replicas=(1, 2), config=TopicConfig(min_insync_replicas=2))
    assert (await bench.send(sent(0))).error_code is ErrorCode.NOT_ENOUGH_REPLICAS
    bench.told(leader_epoch=4, partition_epoch=8)
    assert (await bench.send(sent(0))).base_offset == 0


@requirement("A producer batch that is sent again is stored once")
async def test_a_repeated_batch_is_stored_once_however_its_topic_is_compressed_by_then() -> None:
    bench = BrokerBench()
    large = numbered(batch(bytes(3_000), codec=Codec.GZIP), 7, 0, 0)
    for partition_epoch, compression_type in enumerate(("zstd", "lz4", "producer", "uncompressed")):
        config = TopicConfig(min_insync_replicas=1, max_message_bytes=2048, compression_type=compression_type)
        bench.told(config=config, partition_epoch=partition_epoch)
        answer = await bench.send(large)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0), compression_type
    assert bench.host.log.log_end_offset == 1
    (stored,) = headers(contents(bench.host.log))
    assert (stored.codec, stored.producer_id, stored.producer_epoch, stored.base_sequence) == (Codec.ZSTD, 7, 0, 0)
    news = await bench.send(numbered(large, 7, 0, 1))
    assert (news.error_code, bench.host.log.log_end_offset) == (ErrorCode.MESSAGE_TOO_LARGE, 1), "uncompressed it is"
    assert (await bench.send(sent(1))).base_offset == 1
