"""Options of the Spark source (ecosystem 3.3): what is understood, and that every mistake is named."""

import re

import pytest

from tidelog.ids import Address, TopicPartition
from tidelog.pipeline.options import (
    EARLIEST,
    LATEST,
    Assign,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    parse_options,
)

SERVERS = {"kafka.bootstrap.servers": "a:1,b:2"}
ONE = {**SERVERS, "subscribe": "events"}


def test_defaults_are_those_of_a_batch_query():
    assert parse_options(ONE) == SourceOptions(
        bootstrap=(Address("a", 1), Address("b", 2)),
        selection=Subscribe(("events",)),
        starting=EARLIEST,
        ending=LATEST,
        fail_on_data_loss=True,
        include_headers=False,
    )


def test_names_are_case_insensitive_and_servers_have_a_short_name():
    options = parse_options({"BOOTSTRAP.servers": "a:1", "SUBSCRIBEPATTERN": "ev.*", "INCLUDEheaders": "TRUE"})
    assert options.include_headers and options.bootstrap == (Address("a", 1),)
    assert options.selection == SubscribePattern(re.compile("ev.*"))


def test_each_way_to_select():
    assert parse_options({**SERVERS, "subscribe": " a, b ,a"}).selection == Subscribe(("a", "b"))
    assign = parse_options({**SERVERS, "assign": '{"t":[1,0],"s":[2]}'}).selection
    assert assign == Assign((TopicPartition("s", 2), TopicPartition("t", 0), TopicPartition("t", 1)))
    pattern = SubscribePattern(re.compile("ev[a-z]+"))
    assert pattern.choose(["revs", "events", "evs", "evening-1"]) == ("events", "evs")


def test_offsets_as_words_and_as_json():
    options = parse_options({**ONE, "startingOffsets": '{"events":{"0":5,"1":-2}}', "endingOffsets": "Latest"})
    assert options.starting == {TopicPartition("events", 0): 5, TopicPartition("events", 1): EARLIEST}
    assert options.ending == LATEST


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
        ({**SERVERS, "subscribePattern": "("}, "not a regular expression"),
        ({**SERVERS, "assign": "t-0"}, "assign must be JSON like"),
        ({**SERVERS, "assign": '{"t":0}'}, "'t' has 0"),
        ({**SERVERS, "assign": '{"t":[true]}'}, "has"),
        ({**SERVERS, "assign": '{"t":[-1]}'}, "has"),
        ({**SERVERS, "assign": "{}"}, "names no partition"),
        ({**ONE, "startingOffsets": "latest"}, "a batch cannot have startingOffsets=latest"),
        ({**ONE, "endingOffsets": "earliest"}, "a batch cannot have endingOffsets=earliest"),
        ({**ONE, "startingOffsets": '{"events":{"0":-1}}'}, "'0': -1"),
        ({**ONE, "endingOffsets": '{"events":{"0":-2}}'}, "'0': -2"),
        ({**ONE, "startingOffsets": '{"events":{"x":1}}'}, "'x': 1"),
        ({**ONE, "startingOffsets": '{"events":[1]}'}, "must be earliest or JSON"),
        ({**ONE, "startingOffsets": "[1]"}, "must be earliest or JSON"),
        ({**ONE, "startingOffsets": "soon"}, "must be earliest or JSON"),
        ({**ONE, "failOnDataLoss": "no"}, "failOnDataLoss must be true or false, it is 'no'"),
        ({**ONE, "startingOffset": "earliest"}, "'startingOffset' is not known.*did you mean startingOffsets"),
        ({**ONE, "kafka.group.id": "g"}, "'kafka.group.id' is not known"),
        ({**ONE, "path": "/tmp"}, "'path' is not known.*known are"),
    ],
)
def test_mistakes_are_named(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        parse_options(options)
