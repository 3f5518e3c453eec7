"""What lies inside a batch (reliability 7.2 "Batches"): every fault is named with the right code, nothing else is refused.

And what a leader makes of it where the topic has a codec of its own.
"""

import random
import tracemalloc
from dataclasses import replace

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from helpers.bad_batches import BOMB_BYTES, HEADER_FAULTS, INNER_FAULTS, PACK, Case, bomb, made, record, varint
from helpers.batches import batch
from tidelog.errors import ErrorCode, TidelogError
from tidelog.topic_config import TopicConfig
from tidelog.wire.batch import HEADER_BYTES, Codec, iter_batches, numbered, whole_batch
from tidelog.wire.compression import deflate, inflate
from tidelog.wire.records import to_append

INFLATED_MAX = 1 << 20


def fault(records: bytes, inflated_bytes_max: int = INFLATED_MAX) -> TidelogError | None:
    found = to_append(records, TopicConfig(validate="full"), inflated_bytes_max)
    assert isinstance(found, TidelogError) or found is records, "what is only looked at stays as it is"
    return found if isinstance(found, TidelogError) else None


def damaged_bomb() -> bytes:
    """What decompresses up to the limit, and then no further."""
    whole = PACK[Codec.ZSTD](random.Random(3).randbytes(INFLATED_MAX // 2))
    return made(whole[:-9], codec=Codec.ZSTD)


def test_made_batches_are_fine() -> None:
    assert fault(made(record() + record(1), 2)) is None
    assert fault(made(record(key=b"k", headers=varint(1) + varint(1) + b"h" + varint(-1)))) is None


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("values", [(b"",), (b"a", b"b" * 5_000), tuple(b"%d" % i for i in range(300))])
def test_what_a_producer_makes_is_fine(codec: Codec, values: tuple[bytes, ...]) -> None:
    assert fault(batch(*values, codec=codec, step_ms=7) + batch(b"again", codec=codec)) is None


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**13),
            st.none() | st.binary(max_size=30),
            st.none() | st.binary(max_size=300),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3),
        ),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from(list(Codec)),
)
def test_every_batch_of_the_clients_codec_is_fine(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]], codec: Codec
) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 30)
    for offset, (timestamp, key, value, headers) in enumerate(records):
        builder.append(offset, timestamp, key, value, headers)
    assert fault(bytes(builder.build())) is None


@pytest.mark.parametrize("case", [*HEADER_FAULTS, *INNER_FAULTS], ids=str)
def test_every_fault_is_named(case: Case) -> None:
    found = fault(case.records)
    assert found is not None and case.full is not None
    assert found.code is case.full[0] and case.full[1] in found.message, found


@pytest.mark.parametrize("codec", PACK)
def test_a_bomb_is_refused_by_its_size_and_takes_no_more_memory_than_the_limit(codec: Codec) -> None:
    bomb = PACK[codec](bytes(64 << 20))
    assert len(bomb) < 4 << 20
    tracemalloc.start()
    with pytest.raises(TidelogError) as caught:
        inflate(codec, bomb, INFLATED_MAX)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (caught.value.code, str(INFLATED_MAX) in caught.value.message) == (ErrorCode.INVALID_RECORD, True)
    assert peak < 4 * INFLATED_MAX + len(bomb)
    assert len(inflate(codec, bomb, 64 << 20)) == 64 << 20, "exactly at the limit"


@pytest.mark.parametrize("records", [bomb(Codec.ZSTD), damaged_bomb()], ids=["too large", "damaged"])
def test_a_refusal_does_not_keep_what_was_inflated(records: bytes) -> None:
    """It waits for the answer to be sent, perhaps with many others."""
    tracemalloc.start()
    found = fault(records)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert found is not None and held < INFLATED_MAX / 4


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(TidelogError) as caught:
        inflate(7, b"x", 10)
    assert caught.value.code is ErrorCode.INVALID_RECORD


# --- compression.type -------------------------------------------------------------------------------------------------

TYPES = dict(zip(("uncompressed", "gzip", "snappy", "lz4", "zstd"), Codec, strict=True))
VALUES = tuple(b"value %d" % i for i in range(300))


def stored(records: bytes, compression_type: str, config: TopicConfig | None = None) -> bytes:
    """What the leader of such a topic appends."""
    found = to_append(records, replace(config or TopicConfig(), compression_type=compression_type), INFLATED_MAX)
    assert not isinstance(found, TidelogError), found
    return bytes(found)


@pytest.mark.parametrize("sent", list(Codec))
@pytest.mark.parametrize("compression_type", TYPES)
def test_a_batch_is_stored_with_the_codec_of_its_topic_and_says_what_it_said(
    sent: Codec, compression_type: str
) -> None:
    records = numbered(batch(*VALUES, codec=sent, timestamp=5_000, step_ms=7), 9, 2, 40)
    found, codec = stored(records, compression_type), TYPES[compression_type]
    if sent == codec:
        assert found == records
        return
    before, after = whole_batch(records), whole_batch(found)  # its length and its CRC fit
    assert after.size_bytes == len(found) and after.attributes == codec
    free = {"batch_length": 0, "crc": 0, "attributes": 0}
    assert after._replace(**free) == before._replace(**free)
    body = inflate(sent, records[HEADER_BYTES:], INFLATED_MAX)
    assert inflate(codec, found[HEADER_BYTES:], INFLATED_MAX) == body
    assert [r.value for r in DefaultRecordBatch(found)] == list(VALUES), "another reader's code takes it too"
    assert fault(found) is None and stored(found, compression_type) == found


def test_with_producer_nothing_is_compressed_anew_and_nothing_looked_at() -> None:
    damaged = made(b"not compressed", codec=Codec.ZSTD)
    records = batch(b"a", codec=Codec.GZIP) + batch(b"b") + damaged
    assert to_append(records, TopicConfig(), INFLATED_MAX) is records
    assert to_append(damaged, TopicConfig(compression_type="zstd"), INFLATED_MAX) is damaged, "it has its codec"


def test_of_several_batches_each_is_compressed_that_is_not_yet_and_the_others_stay() -> None:
    parts = [batch(b"a" * 500), batch(b"b" * 500, codec=Codec.ZSTD), batch(b"c" * 500, codec=Codec.GZIP)]
    found = stored(b"".join(parts), "zstd")
    assert found == stored(parts[0], "zstd") + parts[1] + stored(parts[2], "zstd")
    assert [header.codec for _, header in iter_batches(found)] == [Codec.ZSTD] * 3


def test_a_batch_that_compression_makes_larger_is_stored_all_the_same() -> None:
    small = batch(b"x")
    for compression_type in ("gzip", "snappy", "lz4", "zstd"):
        found = stored(small, compression_type)
        assert len(found) > len(small) and whole_batch(found).codec == TYPES[compression_type]


@pytest.mark.parametrize("codec", PACK)
def test_what_cannot_be_compressed_anew_is_refused(codec: Codec) -> None:
    config = TopicConfig(compression_type="uncompressed")
    sent = batch(b"fine") + bomb(codec)
    tracemalloc.start()
    large = to_append(sent, config, INFLATED_MAX)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * INFLATED_MAX + len(sent) < BOMB_BYTES
    assert isinstance(large, TidelogError) and large.code is ErrorCode.INVALID_RECORD
    assert f"records: more than {INFLATED_MAX} bytes when decompressed" in large.message
    damaged = to_append(batch(b"fine") + made(b"not compressed", codec=codec), config, INFLATED_MAX)
    assert isinstance(damaged, TidelogError) and damaged.code is ErrorCode.CORRUPT_MESSAGE
    assert f"records: damaged {codec.name.lower()} data" in damaged.message


def test_what_is_too_large_to_be_decompressed_again_is_not_compressed() -> None:
    """No codec shows how much it is: only what came uncompressed can be larger than what is inflated."""
    limit = 2_000
    config = TopicConfig(compression_type="zstd")
    assert not isinstance(to_append(batch(bytes(limit - 20)), config, limit), TidelogError)
    found = to_append(batch(bytes(limit)), config, limit)
    assert isinstance(found, TidelogError)
    assert (found.code, found.message.split(" bytes")[0]) == (ErrorCode.INVALID_RECORD, f"records: more than {limit}")


def test_the_limit_of_a_batch_holds_as_it_comes_and_as_it_is_stored() -> None:
    config = TopicConfig(max_message_bytes=1_000)
    small, large = batch(bytes(3_000), codec=Codec.ZSTD), batch(bytes(3_000))
    assert stored(small, "gzip", config)
    for records, compression_type, words in (
        (large, "zstd", f"records: a batch of {len(large)} bytes, max.message.bytes is 1000"),
        (
            batch(b"first", codec=Codec.ZSTD) + small,
            "uncompressed",
            f"takes {len(large)} bytes with compression.type=uncompressed, max.message.bytes is 1000",
        ),
    ):
        found = to_append(records, replace(config, compression_type=compression_type), INFLATED_MAX)
        assert isinstance(found, TidelogError) and found.code is ErrorCode.MESSAGE_TOO_LARGE
        assert words in found.message
    exact = replace(config, max_message_bytes=len(large))
    assert stored(small, "uncompressed", exact) == large


def test_a_compressed_topic_looks_at_what_it_looks_at_otherwise_too() -> None:
    for config in (TopicConfig(validate="full"), TopicConfig(cleanup_policy="compact")):
        found = to_append(made(record() + record(5), 2), replace(config, compression_type="zstd"), INFLATED_MAX)
        assert isinstance(found, TidelogError) and found.code is ErrorCode.INVALID_RECORD
    keyed = made(record(key=b"k"))
    assert (
        whole_batch(stored(keyed, "zstd", TopicConfig(validate="full", cleanup_policy="compact"))).codec == Codec.ZSTD
    )


def test_lz4_is_what_kafkas_clients_read() -> None:
    """KIP-57: version 1, blocks that do not depend on each other."""
    framed = deflate(Codec.LZ4, bytes(200_000))
    assert framed[:4] == b"\x04\x22\x4d\x18" and framed[4] & 0b1110_0000 == 0b0110_0000
