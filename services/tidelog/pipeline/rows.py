"""Arrow columns as records: which columns the sink takes, and each row's topic, partition and size. Pure.

The columns are those of Spark's Kafka sink, with its types, its rules for nulls and its words where it refuses.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.client.records import Header

Ints = npt.NDArray[np.int64]
Headers = Sequence[Sequence[Header]]

HEADERS_TYPE: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_TYPES: Final[dict[str, tuple[DataType, ...]]] = {
    "topic": (StringType(),),
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "headers": (HEADERS_TYPE,),
    "partition": (IntegerType(),),
    "timestamp": (DoubleType(), TimestampType()),
}
"""What a column of that name may be; all others are ignored, as in Spark's Kafka sink."""

ANY_PARTITION: Final = -1
"""The row leaves its partition to its key, or to the sink."""

NO_TIMESTAMP: Final = -1
"""The row leaves its timestamp to the clock."""

ROW_OVERHEAD_BYTES: Final = 40
"""Of one record without headers, at most: its length, its offset, its timestamp and the lengths of its parts."""
HEADER_OVERHEAD_BYTES: Final = 10

_SEED: Final = 0x9747B28C
_M: Final = np.uint32(0x5BD1E995)
_HASHED_AT_ONCE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the sink finds its columns in a batch: name to position. `topic`, the option, wins over the column."""

    topic: str | None
    at: dict[str, int]


def check_schema(schema: StructType, topic: str | None) -> Layout:
    """ValueError, in the words of Spark's Kafka sink, for a DataFrame that it would refuse as well."""
    at: dict[str, int] = {}
    for position, name in enumerate(schema.names):
        if name in _TYPES:
            at.setdefault(name, position)
    if topic is not None:
        at.pop("topic", None)
    elif "topic" not in at:
        raise ValueError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    for name, position in at.items():
        found = schema.fields[position].dataType
        if not any(_is(found, wanted) for wanted in _TYPES[name]):
            allowed = " or ".join(wanted.simpleString() for wanted in _TYPES[name])
            raise ValueError(f"{name} attribute unsupported type {found.simpleString()}. {name} must be a(n) {allowed}")
    if "value" not in at:
        raise ValueError("Required attribute 'value' not found")
    return Layout(topic, at)


def _is(found: DataType, wanted: DataType) -> bool:
    """The same type, whether or not its parts may be null."""
    return found.simpleString() == wanted.simpleString()


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one Arrow batch that go to one topic, column by column."""

    topic: str
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Headers | None
    partitions: Ints
    """Chosen by the row itself, or ANY_PARTITION."""
    timestamps_ms: Ints
    """Of the row itself, or NO_TIMESTAMP."""
    sizes: Ints
    """Bytes of each as a record, at most."""
    hashes: Ints
    """`murmur2` of each key; of no meaning where there is none."""
    keyed: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.values)


def rows_of(batch: pa.RecordBatch, layout: Layout) -> Iterator[Rows]:
    """In row order within each topic. ValueError for a null topic."""
    if not batch.num_rows:
        return
    if layout.topic is not None:
        yield _rows(layout.topic, batch, layout)
        return
    names = batch.column(layout.at["topic"]).dictionary_encode()
    if names.null_count:
        raise ValueError("null topic present in the data. Use the topic option for setting a topic.")
    topics = names.dictionary.to_pylist()
    if len(topics) == 1:
        yield _rows(topics[0], batch, layout)
        return
    for number, topic in enumerate(topics):
        yield _rows(topic, batch.filter(pc.equal(names.indices, pa.scalar(number, names.indices.type))), layout)


def _rows(topic: str, batch: pa.RecordBatch, layout: Layout) -> Rows:
    count = batch.num_rows
    values = _bytes_column(batch, layout, "value")
    keys = _bytes_column(batch, layout, "key")
    sizes = np.full(count, ROW_OVERHEAD_BYTES, np.int64) + _lengths(values)
    keyed = np.zeros(count, np.bool_)
    hashes = np.zeros(count, np.int64)
    if keys is not None:
        sizes += _lengths(keys)
        keyed = _bools(keys.is_valid())
        hashes = murmur2_column(keys)
    headers = _headers(batch, layout)
    if headers is not None:
        sizes += np.fromiter(map(_header_bytes, headers), np.int64, count)
    return Rows(
        topic=topic,
        keys=[None] * count if keys is None else keys.to_pylist(),
        values=[] if values is None else values.to_pylist(),
        headers=headers,
        partitions=_partitions(batch, layout),
        timestamps_ms=_timestamps_ms(batch, layout),
        sizes=sizes,
        hashes=hashes,
        keyed=keyed,
    )


def _bytes_column(batch: pa.RecordBatch, layout: Layout, name: str) -> Any:
    """As large_binary, whatever it was: text is UTF-8 already."""
    at = layout.at.get(name)
    return None if at is None else batch.column(at).cast(pa.large_binary())


def _lengths(column: Any) -> Ints:
    return _int64(pc.fill_null(pc.binary_length(column), 0))


def _bools(column: Any) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = column.to_numpy(zero_copy_only=False).astype(np.bool_, copy=False)
    return found


def _headers(batch: pa.RecordBatch, layout: Layout) -> list[list[Header]] | None:
    """ValueError for a header without a key, which no record can have."""
    at = layout.at.get("headers")
    if at is None:
        return None
    column = batch.column(at)
    pairs = column.flatten()
    keys, values = pairs.field(0).to_pylist(), pairs.field(1).to_pylist()
    if None in keys or pairs.null_count:
        raise ValueError("headers attribute has a null key; a header needs one")
    flat = list(zip(keys, values, strict=True))
    ends = np.cumsum(_int64(pc.fill_null(pc.list_value_length(column), 0))).tolist()
    return [flat[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def _header_bytes(headers: list[Header]) -> int:
    # A character of UTF-8 has at most four bytes; the bound need not be tight.
    return sum(HEADER_OVERHEAD_BYTES + 4 * len(key) + len(value or b"") for key, value in headers)


def _partitions(batch: pa.RecordBatch, layout: Layout) -> Ints:
    at = layout.at.get("partition")
    if at is None:
        return np.full(batch.num_rows, ANY_PARTITION, np.int64)
    column = batch.column(at)
    smallest = pc.min(column).as_py()
    if smallest is not None and smallest < 0:
        raise ValueError(f"partition attribute is {smallest} in a row; it must be null or from 0 on")
    return _int64(pc.fill_null(column, ANY_PARTITION))


def _timestamps_ms(batch: pa.RecordBatch, layout: Layout) -> Ints:
    at = layout.at.get("timestamp")
    if at is None:
        return np.full(batch.num_rows, NO_TIMESTAMP, np.int64)
    column = batch.column(at)
    if pa.types.is_floating(column.type):
        column = pc.cast(pc.floor(pc.multiply(column, 1000.0)), pa.int64())
    else:
        column = pc.floor_temporal(column, unit="millisecond").cast(pa.int64())
        column = pc.divide(column, 1000)
    smallest = pc.min(column).as_py()
    if smallest is not None and smallest < 0:
        raise ValueError(f"timestamp attribute is {smallest} ms in a row; a record has none before 1970")
    return _int64(pc.fill_null(column, NO_TIMESTAMP))


def _int64(column: Any) -> Ints:
    found: Ints = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return found


def murmur2_column(column: Any) -> Ints:
    """`client.partitioner.murmur2` of every key of a binary column, all keys of one length at a time; 0 for null."""
    column = column.cast(pa.large_binary())
    hashes = np.zeros(len(column), np.int64)
    if not len(column) or column.null_count == len(column):
        return hashes
    buffers = column.buffers()
    offsets = np.frombuffer(buffers[1], np.int64)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(buffers[2], np.uint8) if buffers[2] is not None else np.zeros(0, np.uint8)
    lengths = np.diff(offsets)
    valid = _bools(column.is_valid())
    for length in np.unique(lengths[valid]).tolist():
        (mine,) = np.nonzero(valid & (lengths == length))
        step = max(1, _HASHED_AT_ONCE_BYTES // max(length, 1))
        for begin in range(0, len(mine), step):
            part = mine[begin : begin + step]
            hashes[part] = _murmur2(data[offsets[part][:, None] + np.arange(length)])
    return hashes


def _murmur2(keys: npt.NDArray[np.uint8]) -> Ints:
    """Of a matrix with one key a row. Products of uint32 wrap, which is what Kafka's `Utils.murmur2` does."""
    count, length = keys.shape
    h: npt.NDArray[np.uint32] = np.full(count, _SEED ^ length, np.uint32)
    whole = length & ~3
    words = np.ascontiguousarray(keys[:, :whole]).view("<u4").reshape(count, whole // 4)
    for column in range(whole // 4):
        k = words[:, column] * _M
        k = (k ^ (k >> np.uint32(24))) * _M
        h = (h * _M) ^ k
    if whole != length:
        rest = np.zeros(count, np.uint32)
        for at in range(whole, length):
            rest |= keys[:, at].astype(np.uint32) << np.uint32(8 * (at - whole))
        h = (h ^ rest) * _M
    h = (h ^ (h >> np.uint32(13))) * _M
    return (h ^ (h >> np.uint32(15))).astype(np.int64)


def by_key(rows: Rows, count: int, known: int | None = None) -> Ints:
    """Each row's partition: its own, else that of its key out of `count`, else ANY_PARTITION.

    ValueError for one that the topic does not have, which has `known` (`count`) of them.
    """
    largest, known = int(rows.partitions.max()), count if known is None else known
    if largest >= known:
        raise ValueError(
            f"partition attribute is {largest} in a row; topic {rows.topic!r} has partitions 0 to {known - 1}"
        )
    hashed = np.where(rows.keyed, (rows.hashes & 0x7FFFFFFF) % count, ANY_PARTITION)
    return np.where(rows.partitions == ANY_PARTITION, hashed, rows.partitions)


def by_content(rows: Rows, chosen: Ints, count: int) -> Ints:
    """The rest by what is in them: a repetition finds the same partition, in whatever order its rows come."""
    out = chosen.copy()
    for row in np.nonzero(chosen == ANY_PARTITION)[0].tolist():
        out[row] = zlib.crc32(rows.values[row] or b"") % count
    return out


class Sticky:
    """Spreads rows without key or partition: all that fill a batch go to one partition, then comes the next (KIP-480)."""

    def __init__(self, batch_bytes: int, start: int) -> None:
        self._batch_bytes = batch_bytes
        self._start = start
        self._bytes = 0

    def choose(self, rows: Rows, chosen: Ints, available: Sequence[int]) -> Ints:
        """`available` are the partitions to choose from, those with a leader."""
        free = chosen == ANY_PARTITION
        if not free.any():
            return chosen
        ends = self._bytes + np.cumsum(np.where(free, rows.sizes, 0))
        self._bytes = int(ends[-1])
        turns = (self._start + ends // self._batch_bytes) % len(available)
        return np.where(free, np.asarray(available, np.int64)[turns], chosen)


def check_sizes(rows: Rows, limit: int) -> None:
    """ValueError for a row that is larger than `limit` bytes as a record."""
    largest = int(rows.sizes.max())
    if largest > limit:
        row = int(rows.sizes.argmax())
        where = "" if rows.partitions[row] == ANY_PARTITION else f" partition {rows.partitions[row]}"
        raise ValueError(
            f"a row of {largest} bytes for topic {rows.topic!r}{where} (key, value and headers): "
            f"kafka.max.request.size is {limit}"
        )
