"""Record batches for tests, made by the same codec as the clients' (aiokafka)."""

from struct import pack_into

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from crc32c import crc32c

from tidelog.wire.batch import CRC_FROM, BatchHeader, iter_batches

BATCH_BYTES_MAX = 1_048_588


def batch(*values: bytes, codec: int = 0, timestamp: int = 1_000, step_ms: int = 0) -> bytes:
    """One batch as a producer sends it: offsets from 0, no epoch."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for offset, value in enumerate(values):
        assert builder.append(offset, timestamp + offset * step_ms, None, value, []) is not None
    return bytes(builder.build())


def sized_batch(size_bytes: int, fill: bytes = b"x") -> bytes:
    """One batch of one record and exactly this many bytes."""
    value = fill * size_bytes
    while True:
        data = batch(value)
        if len(data) == size_bytes:
            return data
        value = value[: len(value) - (len(data) - size_bytes)]


def patched(data: bytes, at: int, form: str, *values: int, crc: bool = True) -> bytes:
    """`data` with other fields at `at` (struct form); with `crc` the checksum is made to fit again."""
    out = bytearray(data)
    pack_into(form, out, at, *values)
    if crc:
        pack_into(">I", out, 17, crc32c(bytes(out[CRC_FROM:])))
    return bytes(out)


def placed(records: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """A producer's batches as they lie in a log."""
    out = bytearray(records)
    for at, header in iter_batches(records):
        pack_into(">qii", out, at, base_offset, header.batch_length, leader_epoch)
        base_offset += header.last_offset_delta + 1
    return bytes(out)


def headers(records: bytes) -> list[BatchHeader]:
    return [header for _, header in iter_batches(records)]


def offsets(records: bytes) -> list[int]:
    """The base offset of every batch."""
    return [header.base_offset for header in headers(records)]
