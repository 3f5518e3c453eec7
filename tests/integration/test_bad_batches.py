"""Bad batches to a real broker and its memory; `tests/unit/broker/test_bad_batches.py` has the whole table."""

import asyncio

import psutil
import pytest

from helpers.bad_batches import INNER_FAULTS, bomb
from helpers.batches import batch
from helpers.cluster import unique_topic
from helpers.wire import TIMEOUT_S, Bed, creation, rows, said
from tidelog.cluster.api import broker_name
from tidelog.errors import ErrorCode
from tidelog.wire import messages as m
from tidelog.wire import services as s
from tidelog.wire.batch import Codec

pytestmark = pytest.mark.integration

E = ErrorCode
BOMB_BYTES = 256 << 20
"""Four times what a broker inflates by default."""


async def test_with_validate_full_what_lies_inside_a_batch_is_refused_too_and_a_bomb_takes_no_memory(bed: Bed) -> None:
    topic = unique_topic()
    faults = [(case.records, case.full) for case in INNER_FAULTS if case.item != "bomb" and case.full is not None]
    large = bomb(Codec.ZSTD, BOMB_BYTES)

    async with bed.unharmed() as channel:
        row, full = rows((0, (bed.leader,))), (("validate", "full"), ("min.insync.replicas", "1"))
        configs = tuple(m.ConfigEntry(key=key, value=value) for key, value in full)
        (created,) = (
            await channel.call(s.ADMIN_SERVICE_CREATE_TOPICS, creation(topic, **row, configs=configs), TIMEOUT_S)
        ).topics
        assert created.error_code is E.NONE, created

        async def send(records: bytes) -> m.ProduceResult:
            request = bed.produce(topic=topic, records=records)
            return (await channel.call(s.REPLICA_SERVICE_PRODUCE, request, TIMEOUT_S)).results[0]

        async with asyncio.timeout(TIMEOUT_S):
            while True:
                first = await send(batch(b"first"))
                if first.error_code is not E.UNKNOWN_TOPIC_OR_PARTITION:
                    break
                await asyncio.sleep(0.05)
        assert first.error_code is E.NONE, first
        for records, (code, words) in faults:
            said(await send(records), code, words)
        broker = psutil.Process(bed.pids()[broker_name(bed.leader)])
        before = broker.memory_info().rss
        for _ in range(3):
            said(await send(large), E.INVALID_RECORD, "more than 67108864 bytes when decompressed")
        assert broker.memory_info().rss - before < BOMB_BYTES / 2
        last = await send(batch(b"last"))
        assert (last.error_code, last.base_offset) == (E.NONE, 1), last
