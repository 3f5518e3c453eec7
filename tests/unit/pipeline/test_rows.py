"""Rows of a DataFrame become records: columns as Spark's Kafka sink takes them, its refusals, and where each row goes."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from tidelog.client.partitioner import murmur2, partition_for_key
from tidelog.client.records import record_size_max
from tidelog.pipeline import rows as r

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
KEYS = st.lists(st.none() | st.binary(max_size=40), max_size=30)


PAIRS = t.ArrayType(t.StructType().add("key", t.StringType()).add("value", t.BinaryType()))
STRICT_PAIRS = t.ArrayType(
    t.StructType().add("key", t.StringType(), nullable=False).add("value", t.BinaryType(), nullable=False), False
)
TYPES = {
    "string": t.StringType(),
    "binary": t.BinaryType(),
    "int": t.IntegerType(),
    "long": t.LongType(),
    "timestamp": t.TimestampType(),
    "map": t.MapType(t.StringType(), t.StringType()),
    "pairs": PAIRS,
    "strict-pairs": STRICT_PAIRS,
}


def schema(columns):
    return t.StructType([t.StructField(name, TYPES[kind]) for name, kind in map(str.split, columns.split(", "))])


def one(columns, layout=None):
    """The rows of a batch for topic t."""
    batch = pa.record_batch(columns)
    layout = layout or r.Layout("t", {name: i for i, name in enumerate(batch.schema.names)})
    (found,) = r.rows_of(batch, layout)
    return found


def test_columns_are_found_by_name_and_the_option_wins_over_the_column():
    found = r.check_schema(schema("offset long, value string, topic string, key binary"), None)
    assert found == r.Layout(None, {"value": 1, "topic": 2, "key": 3})
    found = r.check_schema(schema("topic int, value binary"), "t")
    assert found == r.Layout("t", {"value": 1})


def test_headers_fit_whether_or_not_their_parts_may_be_null():
    for kind in ("pairs", "strict-pairs"):
        assert r.check_schema(schema(f"value binary, headers {kind}"), "t").at == {"value": 0, "headers": 1}


@pytest.mark.parametrize(
    ("columns", "topic", "complaint"),
    [
        ("value string", None, "topic option required when no 'topic' attribute is present. Use the topic option"),
        ("key string", "t", "Required attribute 'value' not found"),
        ("value int", "t", "value attribute unsupported type int. value must be a.n. string or binary"),
        ("value string, key long", "t", "key attribute unsupported type bigint. key must be a.n. string or binary"),
        ("value string, topic int", None, "topic attribute unsupported type int. topic must be a.n. string"),
        (
            "value string, partition long",
            "t",
            "partition attribute unsupported type bigint. partition must be a.n. int",
        ),
        ("value string, headers map", "t", "headers attribute unsupported type map<string,string>"),
        ("value string, timestamp string", "t", "timestamp attribute unsupported type string"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused_in_the_words_of_sparks_kafka_sink(columns, topic, complaint):
    with pytest.raises(ValueError, match=complaint):
        r.check_schema(schema(columns), topic)


def test_text_becomes_utf8_and_null_stays_null():
    rows = one({"value": pa.array(["é", None, ""]), "key": pa.array([None, b"k", b""], pa.binary())})
    assert list(rows.values) == ["é".encode(), None, b""]
    assert list(rows.keys) == [None, b"k", b""] and rows.keyed.tolist() == [False, True, True]
    assert rows.headers is None and rows.timestamps_ms.tolist() == [r.NO_TIMESTAMP] * 3


def test_headers_come_as_pairs_also_from_a_slice_and_with_nulls():
    column = pa.array([[("x", b"0")], [("a", b"1"), ("a", None)], None, [], [("b", b"")]], HEADERS)
    batch = pa.record_batch({"value": pa.array([b"v"] * 5), "headers": column}).slice(1)
    (rows,) = r.rows_of(batch, r.Layout("t", {"value": 0, "headers": 1}))
    assert rows.headers == [[("a", b"1"), ("a", None)], [], [], [("b", b"")]]


def test_a_header_without_a_key_is_refused():
    with pytest.raises(ValueError, match="headers attribute has a null key"):
        one({"value": pa.array([b"v"]), "headers": pa.array([[(None, b"1")]], HEADERS)})


def test_timestamps_come_from_both_types_of_sparks_kafka_sink():
    at = dt.datetime(2024, 5, 6, 7, 8, 9, 123_999, dt.UTC)
    column = pa.array([at, None], pa.timestamp("us", "UTC"))
    assert one({"value": pa.array([b"", b""]), "timestamp": column}).timestamps_ms.tolist() == [1714979289123, -1]
    seconds = pa.array([1.5, None])
    assert one({"value": pa.array([b"", b""]), "timestamp": seconds}).timestamps_ms.tolist() == [1500, -1]
    with pytest.raises(ValueError, match="timestamp attribute is -1500 ms"):
        one({"value": pa.array([b""]), "timestamp": pa.array([-1.5])})


def test_rows_are_sorted_by_topic_in_their_order():
    batch = pa.record_batch({"value": pa.array([b"0", b"1", b"2", b"3"]), "topic": pa.array(["b", "a", "b", "a"])})
    found = {rows.topic: list(rows.values) for rows in r.rows_of(batch, r.Layout(None, {"value": 0, "topic": 1}))}
    assert found == {"b": [b"0", b"2"], "a": [b"1", b"3"]}


def test_a_null_topic_is_refused():
    batch = pa.record_batch({"value": pa.array([b"0"]), "topic": pa.array([None], pa.string())})
    with pytest.raises(ValueError, match=r"null topic present in the data. Use the topic option"):
        list(r.rows_of(batch, r.Layout(None, {"value": 0, "topic": 1})))


@given(KEYS, st.integers(0, 5))
def test_keys_are_hashed_as_the_producer_does(keys, skip):
    column = pa.array([b"x"] * skip + keys, pa.binary()).slice(skip)
    assert r.murmur2_column(column).tolist() == [0 if key is None else murmur2(key) for key in keys]


def test_many_long_keys_are_hashed_in_parts(monkeypatch):
    monkeypatch.setattr(r, "_HASHED_AT_ONCE_BYTES", 100)
    keys = [bytes([n]) * 33 for n in range(20)]
    assert r.murmur2_column(pa.array(keys)).tolist() == [murmur2(key) for key in keys]


def test_a_row_goes_to_its_partition_else_to_that_of_its_key():
    rows = one(
        {
            "value": pa.array([b"v"] * 4),
            "key": pa.array([b"k", b"k", None, None]),
            "partition": pa.array([None, 2, 1, None], pa.int32()),
        }
    )
    assert r.by_key(rows, 3).tolist() == [partition_for_key(b"k", 3), 2, 1, r.ANY_PARTITION]


def test_a_partition_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="partition attribute is 3 in a row; topic 't' has partitions 0 to 2"):
        r.by_key(one({"value": pa.array([b"v"]), "partition": pa.array([3], pa.int32())}), 3)
    added = one({"value": pa.array([b"v"] * 2), "key": [b"k"] * 2, "partition": pa.array([4, None], pa.int32())})
    assert r.by_key(added, 3, 5).tolist() == [4, partition_for_key(b"k", 3)]
    with pytest.raises(ValueError, match="partition attribute is -1 in a row"):
        one({"value": pa.array([b"v"]), "partition": pa.array([-1], pa.int32())})


def test_rows_without_key_stay_on_a_partition_for_a_batch_and_then_go_on():
    rows = one({"value": pa.array([b"x" * 60] * 8)})
    sticky = r.Sticky(batch_bytes=300, start=0)
    none = np.full(8, r.ANY_PARTITION)
    assert sticky.choose(rows, none, [0, 4, 5]).tolist() == [0, 0, 4, 4, 4, 5, 5, 5][:8]
    assert sticky.choose(rows, np.arange(8), [0, 4, 5]).tolist() == list(range(8))


def test_by_content_the_order_of_rows_does_not_matter():
    values = [b"%d" % n for n in range(50)]
    there = one({"value": pa.array(values)})
    back = one({"value": pa.array(values[::-1])})
    none = np.full(50, r.ANY_PARTITION)
    assert r.by_content(there, none, 7).tolist() == r.by_content(back, none, 7).tolist()[::-1]
    assert len(set(r.by_content(there, none, 7).tolist())) == 7


@given(
    st.none() | st.binary(max_size=300),
    st.none() | st.binary(max_size=300),
    st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=200)), max_size=4),
)
def test_a_size_is_an_upper_bound(key, value, headers):
    columns = {
        "key": pa.array([key], pa.binary()),
        "value": pa.array([value], pa.binary()),
        "headers": pa.array([headers], HEADERS),
    }
    assert one(columns).sizes[0] + 61 >= record_size_max(key, value, headers)


def test_a_row_that_is_too_large_is_named_with_the_option():
    rows = one({"value": pa.array([b"x", b"x" * 1000]), "partition": pa.array([0, 5], pa.int32())})
    r.check_sizes(rows, 1040)
    with pytest.raises(
        ValueError, match=r"a row of 1040 bytes for topic 't' partition 5.*kafka.max.request.size is 1039"
    ):
        r.check_sizes(rows, 1039)
