"""What lies inside a batch (reliability 7.2 "Batches"): every fault is named with the right code, nothing else is refused."""

import random
import tracemalloc

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from helpers.bad_batches import HEADER_FAULTS, INNER_FAULTS, PACK, Case, bomb, made, record, varint
from helpers.batches import BATCH_BYTES_MAX, batch
from tidelog.errors import ErrorCode, TidelogError
from tidelog.wire.batch import Codec
from tidelog.wire.compression import inflate
from tidelog.wire.records import produce_fault

INFLATED_MAX = 1 << 20


def fault(records: bytes, inflated_bytes_max: int = INFLATED_MAX) -> TidelogError | None:
    return produce_fault(records, BATCH_BYTES_MAX, inflated_bytes_max)


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
