"""What a client may send instead of a record batch (reliability 7.2): the documented code and nothing appended, or appended as it
is and reported by whoever reads it; and the next valid request is served."""

import pytest

from helpers.bad_batches import BOMB_BYTES, CASES, Case
from helpers.batches import batch, headers, placed
from helpers.broker import INFLATED_BYTES_MAX, BrokerBench
from helpers.logs import contents
from tidelog.client import records
from tidelog.client.errors import BadBatchError
from tidelog.client.records import ConsumerRecord, decode_batch, split_batches
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.topic_config import TopicConfig
from tidelog.wire import messages as m

EVENTS = TopicPartition("events", 0)
BEFORE, AFTER = batch(b"before"), batch(b"after")
EPOCH = 3


async def sent(bench: BrokerBench, case: Case, acks: int) -> m.ProduceResult:
    result = await bench.send(case.records, acks=acks)
    assert len(result.error_message) < 1_000
    return result


def read(bench: BrokerBench, position: int) -> list[ConsumerRecord]:
    """As a consumer does."""
    fetched = contents(bench.host.log)
    return [
        record
        for header, data in split_batches(EVENTS, fetched, position)
        for record in decode_batch(EVENTS, data, header)
    ]


@pytest.mark.parametrize("validate", ["header", "full"])
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_bad_batch_is_refused_or_reported_and_an_odd_one_comes_back(
    case: Case, validate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "INFLATED_BYTES_MAX", INFLATED_BYTES_MAX)
    refusal = case.header if validate == "header" else case.full

    bench = BrokerBench()
    config = TopicConfig(min_insync_replicas=1, validate=validate, message_timestamp_after_max_ms=2**63 - 1)
    bench.told(config=config, leader_epoch=EPOCH)
    await bench.send(BEFORE)
    held = contents(bench.host.log)
    if refusal is not None:
        for acks in (0, 1, -1):
            result = await sent(bench, case, acks)
            assert (result.error_code, result.base_offset) == (refusal[0], -1)
            assert refusal[1] in result.error_message
        assert contents(bench.host.log) == held
    else:
        result = await sent(bench, case, -1)
        assert (result.error_code, result.base_offset) == (ErrorCode.NONE, 1), result
        assert contents(bench.host.log) == held + placed(case.records, 1, EPOCH)
    end = bench.host.log.log_end_offset
    after = await bench.send(AFTER)
    assert (after.error_code, after.base_offset) == (ErrorCode.NONE, end)
    if refusal is None and case.reported:
        with pytest.raises(BadBatchError) as caught:
            read(bench, 1)
        bad = next(h for h in headers(contents(bench.host.log)) if h.base_offset == caught.value.offset)
        assert caught.value.partition == EVENTS and 1 <= bad.base_offset < end == bad.end_offset
        assert [r.value for r in read(bench, caught.value.next_offset)] == [b"after"]
    else:
        assert [r.offset for r in read(bench, 0)] == list(range(end + 1))


def test_every_item_of_the_list_is_in_the_table() -> None:
    """Reliability 7.2, "Batches", as it stands there."""
    listed = (
        "empty, zero records, wrong CRC, wrong length, base offset, inner offsets, last offset delta, timestamps, unknown "
        "magic, unknown codec, control flag, batch inside batch, null or empty, header count, varint, nested compression, "
        "bomb, concatenated frames, truncated frame"
    )
    assert set(listed.split(", ")) <= {case.item for case in CASES}
    assert len({str(case) for case in CASES}) == len(CASES)
    assert {case.what for case in CASES if case.item == "bomb"} == {"GZIP", "SNAPPY", "LZ4", "ZSTD"}
    assert BOMB_BYTES > 10 * INFLATED_BYTES_MAX
