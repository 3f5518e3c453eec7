"""Options of the Spark source (ecosystem 3.3): what is understood, which of them count, and that every mistake is named."""

import pickle
import re

import pytest

from tidelog.ids import Address, TopicPartition
from tidelog.pipeline.source_options import (
    EARLIEST,
    LATEST,
    Assign,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    Timestamps,
    parse_batch_options,
    parse_stream_options,
    wants_headers,
)

SERVERS = {"kafka.bootstrap.servers": "a:1,b:2"}
ONE = {**SERVERS, "subscribe": "events"}
E0, E1 = TopicPartition("events", 0), TopicPartition("events", 1)


def test_defaults_of_a_batch_are_those_of_sparks_kafka_source():
    assert parse_batch_options(ONE) == SourceOptions(
        bootstrap=(Address("a", 1), Address("b", 2)),
        selection=Subscribe(("events",)),
        starting=EARLIEST,
        ending=LATEST,
        strategy="error",
        fail_on_data_loss=True,
        include_headers=False,
        min_partitions=None,
        max_records_per_partition=None,
        max_offsets_per_trigger=None,
        min_offsets_per_trigger=None,
        max_trigger_delay_ms=900_000,
        poll_timeout_ms=120_000,
        num_retries=3,
        retry_interval_ms=1_000,
        kafka={},
        warnings=(),
    )


def test_a_stream_starts_at_the_end_unless_told_otherwise():
    assert parse_stream_options(ONE).starting == LATEST
    assert parse_stream_options({**ONE, "startingOffsets": "earliest"}).starting == EARLIEST
    mixed = parse_stream_options({**ONE, "startingOffsets": '{"events":{"0":-1,"1":-2}}'})
    assert mixed.starting == {E0: LATEST, E1: EARLIEST}


def test_names_are_case_insensitive_and_servers_have_a_short_name():
    options = parse_batch_options({"BOOTSTRAP.servers": "a:1", "SUBSCRIBEPATTERN": "ev.*", "INCLUDEheaders": "TRUE"})
    assert options.include_headers and options.bootstrap == (Address("a", 1),)
    assert options.selection == SubscribePattern(re.compile("ev.*"))
    assert wants_headers({**ONE, "includeheaders": "true"}) and not wants_headers(ONE)


def test_a_frame_that_may_become_a_stream_is_not_refused_for_what_a_batch_may_not_have():
    assert not wants_headers({**ONE, "startingOffsets": "latest"})


def test_each_way_to_select():
    assert parse_batch_options({**SERVERS, "subscribe": " a, b ,a"}).selection == Subscribe(("a", "b"))
    assign = parse_batch_options({**SERVERS, "assign": '{"t":[1,0],"s":[2]}'}).selection
    assert assign == Assign((TopicPartition("s", 2), TopicPartition("t", 0), TopicPartition("t", 1)))
    pattern = SubscribePattern(re.compile("ev[a-z]+"))
    assert pattern.choose(["revs", "events", "evs", "evening-1"]) == ("events", "evs")


def test_offsets_as_words_and_as_json():
    options = parse_batch_options({**ONE, "startingOffsets": '{"events":{"0":5,"1":-2}}', "endingOffsets": "Latest"})
    assert options.starting == {E0: 5, E1: EARLIEST}
    assert options.ending == LATEST


@pytest.mark.parametrize("end", ["starting", "ending"])
def test_one_timestamp_overrules_many_and_both_overrule_offsets(end):
    offsets = {f"{end}Offsets": '{"events":{"0":5,"1":6}}'}
    many = {f"{end}OffsetsByTimestamp": '{"events":{"0":7000,"1":8000}}'}
    one = {f"{end}Timestamp": " 9000 "}

    def limit(*given):
        options = parse_batch_options({**ONE, **{k: v for g in given for k, v in g.items()}})
        return options.starting if end == "starting" else options.ending, options.warnings

    assert limit(offsets) == ({E0: 5, E1: 6}, ())
    assert limit(offsets, many) == (
        Timestamps({E0: 7000, E1: 8000}),
        (f"option {end}Offsets has no effect beside {end}OffsetsByTimestamp",),
    )
    found, warnings = limit(offsets, many, one)
    assert found == Timestamps(9000) and len(warnings) == 2


def test_limits_of_tasks_and_triggers():
    options = parse_stream_options(
        {
            **ONE,
            "minPartitions": "12",
            "maxRecordsPerPartition": "5000",
            "minOffsetsPerTrigger": "10",
            "maxOffsetsPerTrigger": "10",
            "maxTriggerDelay": "2 min",
            "startingOffsetsByTimestampStrategy": "LATEST",
            "kafkaConsumer.pollTimeoutMs": "500",
            "fetchOffset.numRetries": "5",
            "fetchOffset.retryIntervalMs": "0",
        }
    )
    assert (options.min_partitions, options.max_records_per_partition) == (12, 5000)
    assert (options.min_offsets_per_trigger, options.max_offsets_per_trigger) == (10, 10)
    assert (options.max_trigger_delay_ms, options.strategy) == (120_000, "latest")
    assert (options.poll_timeout_ms, options.num_retries, options.retry_interval_ms) == (500, 5, 0)


def test_a_batch_ignores_what_only_streams_have_and_says_so():
    options = parse_batch_options({**ONE, "maxOffsetsPerTrigger": "10", "maxTriggerDelay": "1s"})
    assert options.warnings == (
        "option maxOffsetsPerTrigger has no effect on a batch",
        "option maxTriggerDelay has no effect on a batch",
    )


def test_settings_of_the_client_pass_through():
    options = parse_batch_options(
        {
            **ONE,
            "Kafka.Client.Id": "me",
            "kafka.request.timeout.ms": "700",
            "kafka.max.partition.fetch.bytes": "4096",
            "kafka.fetch.max.bytes": "2048",
        }
    )
    assert (options.client_id, options.request_timeout_ms, options.fetch_bytes) == ("me", 700, 2048)
    assert pickle.loads(pickle.dumps(options)) == options


def test_a_group_id_names_the_query_and_wins_over_a_prefix():
    assert parse_batch_options(ONE).client_id == "spark-tidelog-source"
    assert parse_batch_options({**ONE, "groupIdPrefix": "mine"}).client_id == "mine"
    both = parse_stream_options({**ONE, "groupIdPrefix": "mine", "kafka.group.id": "g"})
    assert both.client_id == "g"
    assert both.warnings == ("option groupIdPrefix has no effect beside kafka.group.id",)


@pytest.mark.parametrize(
    "options, complaint",
    [
        ({"subscribe": "t"}, r"exactly one of kafka\.bootstrap\.servers and bootstrap\.servers is needed, 0"),
        ({**ONE, "bootstrap.servers": "c:3"}, "2 are given"),
        ({"kafka.bootstrap.servers": "nowhere", "subscribe": "t"}, "'nowhere' is not host:port"),
        ({"kafka.bootstrap.servers": " , ", "subscribe": "t"}, "empty"),
        (SERVERS, "exactly one of assign, subscribe, subscribePattern is needed, given: none"),
        ({**ONE, "assign": "{}"}, "given: assign, subscribe"),
        ({**SERVERS, "subscribe": " , "}, "subscribe is empty"),
        ({**SERVERS, "subscribe": "a b"}, "subscribe: topic name 'a b' holds something else"),
        ({**SERVERS, "subscribePattern": "("}, "not a regular expression"),
        ({**SERVERS, "subscribePattern": " "}, "subscribePattern is empty"),
        ({**SERVERS, "assign": "t-0"}, "assign must be JSON like"),
        ({**SERVERS, "assign": '{"t":0}'}, "'t' has 0"),
        ({**SERVERS, "assign": '{"t":[true]}'}, "has"),
        ({**SERVERS, "assign": '{"t":[-1]}'}, "has"),
        ({**SERVERS, "assign": '{"t":[2147483648]}'}, "has"),
        ({**SERVERS, "assign": "{}"}, "names no partition"),
        ({**SERVERS, "assign": '{"t":[0],"t":[1]}'}, "a name comes twice"),
        ({**ONE, "startingOffsets": '{"events":{"x":1}}'}, "'x': 1"),
        ({**ONE, "startingOffsets": '{"events":{"00":1}}'}, "'00': 1"),
        ({**ONE, "startingOffsets": '{"events":{"0":1.5}}'}, "'0': 1.5"),
        ({**ONE, "startingOffsets": '{"events":{"0":-2.0}}'}, "'0': -2.0"),
        ({**ONE, "startingOffsets": '{"events":{"0":9223372036854775808}}'}, "'0': 9223372036854775808"),
        ({**ONE, "startingOffsets": '{"events":[1]}'}, "or JSON"),
        ({**ONE, "startingOffsets": "[1]"}, "or JSON"),
        ({**ONE, "startingOffsets": "soon"}, "or JSON"),
        ({**ONE, "startingTimestamp": "2024-01-01"}, "startingTimestamp must be a whole number from 0"),
        ({**ONE, "startingTimestamp": "-1"}, "startingTimestamp must be a whole number from 0"),
        ({**ONE, "startingOffsetsByTimestamp": '{"events":{"0":-1}}'}, "startingOffsetsByTimestamp must be JSON"),
        ({**ONE, "startingOffsetsByTimestampStrategy": "earliest"}, "Strategy must be error or latest"),
        ({**ONE, "failOnDataLoss": "no"}, "failOnDataLoss must be true or false, it is 'no'"),
        ({**ONE, "minPartitions": "0"}, "minPartitions must be a whole number from 1"),
        ({**ONE, "minPartitions": "2147483648"}, "minPartitions must be a whole number from 1 to 2147483647"),
        ({**ONE, "maxRecordsPerPartition": "many"}, "maxRecordsPerPartition must be a whole number"),
        ({**ONE, "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger must be a whole number"),
        ({**ONE, "minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"}, "11 is above maxOffsetsPerTrigger 10"),
        ({**ONE, "maxTriggerDelay": "soon"}, "maxTriggerDelay must be a duration such as 500ms"),
        ({**ONE, "maxTriggerDelay": "1 week"}, "maxTriggerDelay must be a duration"),
        ({**ONE, "groupIdPrefix": ""}, "groupIdPrefix is empty"),
        ({**ONE, "fetchOffset.numRetries": "0"}, "numRetries must be a whole number from 1"),
        ({**ONE, "startingOffset": "earliest"}, "'startingOffset' is not known.*did you mean startingOffsets"),
        ({**ONE, "path": "/tmp"}, "'path' is not known.*known are"),
        ({**ONE, "kafka.group.idd": "g"}, "'kafka.group.idd' is not known.*did you mean kafka.group.id"),
        ({**ONE, "kafka.acks": "all"}, "'kafka.acks' is not known.*known are kafka.client.id"),
        ({**ONE, "kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset is not allowed: startingOffsets"),
        ({**ONE, "kafka.key.deserializer": "x"}, "kafka.key.deserializer is not allowed: keys are read as bytes"),
        ({**ONE, "kafka.value.deserializer": "x"}, "kafka.value.deserializer is not allowed"),
        ({**ONE, "kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit is not allowed"),
        ({**ONE, "kafka.interceptor.classes": "x"}, "kafka.interceptor.classes is not allowed"),
        ({**ONE, "kafka.security.protocol": "SSL"}, "kafka.security.protocol must be PLAINTEXT"),
        ({**ONE, "kafka.request.timeout.ms": "soon"}, "kafka.request.timeout.ms must be a whole number"),
        ({**ONE, "minPartitions": "1", "MINPARTITIONS": "2"}, "given twice"),
    ],
)
@pytest.mark.parametrize("parse", [parse_batch_options, parse_stream_options])
def test_mistakes_are_named(parse, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        parse(options)


@pytest.mark.parametrize(
    "options, complaint",
    [
        ({"startingOffsets": "latest"}, "a batch cannot start at latest"),
        ({"endingOffsets": "earliest"}, "a batch cannot end at earliest"),
        ({"startingOffsets": '{"events":{"0":-1}}'}, "'0': -1"),
        ({"endingOffsets": '{"events":{"0":-2}}'}, "'0': -2"),
    ],
)
def test_a_batch_neither_starts_at_the_end_nor_ends_at_the_beginning(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        parse_batch_options({**ONE, **options})


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(name):
    with pytest.raises(ValueError, match=f"{name} is not allowed: a stream has no end"):
        parse_stream_options({**ONE, name: "1"})
