"""Options of the Spark sink: what is understood, and that every mistake is named."""

import pickle

import pytest

from tidelog.ids import Address
from tidelog.pipeline.sink_options import SinkOptions, parse_batch_sink, parse_stream_sink

SERVERS = {"kafka.bootstrap.servers": "a:1,b:2"}
EXACTLY = {**SERVERS, "delivery": "exactly-once", "checkpointlocation": "/cp"}


def test_defaults_are_at_least_once_with_an_idempotent_producer():
    options = parse_stream_sink(SERVERS)
    assert options == parse_batch_sink(SERVERS)
    assert options == SinkOptions(bootstrap=(Address("a", 1), Address("b", 2)))
    assert (options.acks, options.idempotent, options.exactly_once, options.topic) == ("all", True, False, None)
    assert options.producer()["enable_idempotence"]


def test_settings_of_kafkas_producer_go_to_ours():
    given = {
        "KAFKA.Bootstrap.Servers": "a:1",
        "TOPIC": "events",
        "includeHeaders": "true",
        "queryname": "q",
        "checkpointLocation": "/cp",
        "kafka.acks": "1",
        "kafka.compression.type": "LZ4",
        "kafka.batch.size": "1000",
        "kafka.linger.ms": "5",
        "kafka.buffer.memory": "2000",
        "kafka.max.request.size": "3000",
        "kafka.max.in.flight.requests.per.connection": "2",
        "kafka.request.timeout.ms": "11",
        "kafka.delivery.timeout.ms": "12",
        "kafka.max.block.ms": "13",
        "kafka.metadata.max.age.ms": "14",
        "kafka.client.id": "me",
    }
    options = parse_stream_sink(given)
    assert (options.topic, options.compression, options.record_bytes_max) == ("events", "lz4", 3000)
    assert options.producer() == {
        "bootstrap": (Address("a", 1),),
        "acks": "1",
        "enable_idempotence": False,
        "batch_bytes": 1000,
        "buffer_bytes": 2000,
        "max_in_flight": 2,
        "request_timeout_ms": 11,
        "delivery_timeout_ms": 12,
        "max_block_ms": 13,
        "metadata_max_age_ms": 14,
        "client_id": "me",
    }
    assert pickle.loads(pickle.dumps(options)) == options


def test_exactly_once_numbers_its_batches_itself():
    options = parse_stream_sink({**EXACTLY, "sinkId": "orders"})
    assert options.exactly_once and options.checkpoint == "/cp" and options.sink_id == "orders"
    assert options.producer()["acks"] == "all" and not options.producer()["enable_idempotence"]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "exactly one of kafka.bootstrap.servers"),
        ({**SERVERS, "topics": "t"}, "did you mean topic"),
        ({**SERVERS, "subscribe": "t"}, "'subscribe' is not known to the tidelog sink"),
        ({**SERVERS, "topic": "no/good"}, "option topic"),
        ({**SERVERS, "kafka.acks": "2"}, "kafka.acks must be 0 or 1 or all or -1"),
        ({**SERVERS, "kafka.compression.type": "brotli"}, "kafka.compression.type must be none or gzip"),
        ({**SERVERS, "kafka.batch.size": "0"}, "kafka.batch.size must be a whole number from 1"),
        ({**SERVERS, "kafka.key.serializer": "x"}, "kafka.key.serializer is not allowed: keys are written as bytes"),
        ({**SERVERS, "kafka.transactional.id": "x"}, "delivery=exactly-once is what a stream can have"),
        ({**SERVERS, "kafka.lingr.ms": "1"}, "did you mean kafka.linger.ms"),
        ({**SERVERS, "kafka.acks": "1", "kafka.enable.idempotence": "true"}, "needs kafka.acks=all"),
        ({**SERVERS, "delivery": "exactly"}, "delivery must be at-least-once or exactly-once"),
        ({**SERVERS, "delivery": "exactly-once"}, "needs option checkpointLocation on the query itself"),
        ({**EXACTLY, "kafka.acks": "1"}, "needs kafka.acks=all, it is 1"),
        ({**EXACTLY, "kafka.enable.idempotence": "false"}, "needs kafka.enable.idempotence=true"),
        ({**EXACTLY, "sinkId": "a:b"}, "no colon"),
        ({**SERVERS, "sinkId": "a"}, "sinkId is for delivery=exactly-once"),
        ({**SERVERS, "includeHeaders": "yes"}, "includeHeaders must be true or false"),
    ],
)
def test_mistakes_are_named(given, complaint):
    with pytest.raises(ValueError, match=complaint):
        parse_stream_sink(given)


@pytest.mark.parametrize("given", [EXACTLY, {**SERVERS, "sinkId": "a"}])
def test_a_batch_query_is_not_exactly_once(given):
    with pytest.raises(ValueError, match="is for streams"):
        parse_batch_sink(given)
