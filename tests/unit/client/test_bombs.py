"""A reader names the batch that it cannot read, and no batch makes it hold more than its limit (reliability 7.2)."""

import pytest

from helpers.batches import batch, patched
from tidelog.client import records
from tidelog.client.errors import BadBatchError
from tidelog.ids import TopicPartition
from tidelog.wire.batch import Codec, read_header

TP = TopicPartition("events", 3)


@pytest.mark.parametrize("codec", [c for c in Codec if c is not Codec.NONE])
def test_a_bomb_is_named_with_its_partition_and_offset(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    data = patched(batch(bytes(1 << 20), codec=codec), 0, ">q", 70, crc=False)
    assert [len(r.value or b"") for r in records.decode_batch(TP, data, read_header(data))] == [1 << 20]
    monkeypatch.setattr(records, "INFLATED_BYTES_MAX", 1 << 19)
    with pytest.raises(BadBatchError) as caught:
        list(records.decode_batch(TP, data, read_header(data)))
    assert (caught.value.partition, caught.value.offset, caught.value.next_offset) == (TP, 70, 71)
    assert "more than 524288 bytes when decompressed" in caught.value.message


def test_damage_inside_a_batch_is_named_with_its_partition_and_offset() -> None:
    data = patched(batch(b"x" * 100, codec=Codec.GZIP), 70, ">I", 0xDEADBEEF)
    with pytest.raises(BadBatchError) as caught:
        list(records.decode_batch(TP, data, read_header(data)))
    assert caught.value.message.startswith("events-3: bad batch at offset 0: records: damaged gzip data")
