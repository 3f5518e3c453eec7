"""`tidelog cluster add-brokers` and `tidelog brokers drain`: what is asked for, and what a person is told."""

import json

import pytest

from helpers.fake_broker import FakeCluster
from helpers.fake_moves import DEAD
from helpers.requirements import requirement
from tidelog.ids import TopicPartition
from unit.cli.conftest import Tidelog


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def events(cluster: FakeCluster) -> FakeCluster:
    """Three partitions on brokers 1 to 3; two of them would move."""
    cluster.create("events", partitions=3)
    cluster.moves.planned = {TopicPartition("events", 0): (2, 3), TopicPartition("events", 2): (3, 1)}
    return cluster


@requirement("Brokers are added to a running cluster by a command")
def test_brokers_are_added_by_a_command(tidelog: Tidelog, events: FakeCluster) -> None:
    assert tidelog("cluster", "add-brokers", "2", "3").text == "2 partitions begin to move: events (2)\n"
    (call,) = events.of("AddBrokers")
    assert (call.request.broker_ids, call.request.replace, call.request.validate_only) == ((2, 3), False, False)
    assert len(events.moves.moving) == 2


def test_what_would_move_is_only_shown(tidelog: Tidelog, events: FakeCluster) -> None:
    assert tidelog("cluster", "add-brokers", "3", "--dry-run").text == "2 partitions would move: events (2)\n"
    result = tidelog("brokers", "drain", "3", "--dry-run", "--format", "json")
    assert json.loads(result.text)["moves"][0] == {"topic": "events", "partition": 0, "replicas": [2, 3]}
    assert events.moves.moving == {} and events.moves.draining == {}


def test_brokers_that_are_not_alive_are_refused(tidelog: Tidelog, events: FakeCluster) -> None:
    result = tidelog("cluster", "add-brokers", str(DEAD))
    assert (result.exit_code, result.error) == (1, "tidelog: brokers: 99 not alive (alive: 1, 2, 3)")
    assert tidelog("cluster", "add-brokers", "-1").exit_code == tidelog("cluster", "add-brokers").exit_code == 2


def test_a_broker_is_drained_until_it_may_be_removed(tidelog: Tidelog, events: FakeCluster) -> None:
    assert tidelog("brokers", "drain", "3").text == "2 partitions begin to move: events (2)\n"
    sentence = "Broker 3 is being drained and has 2 replicas still: do not stop it yet."
    assert tidelog("brokers", "list").text.splitlines()[-1] == sentence
    assert [b["draining"] for b in json.loads(tidelog("brokers", "list", "--format", "json").text)] == [
        False,
        False,
        True,
    ]
    events.moves.draining[3] = 0
    sentence = "Broker 3 is drained: it holds nothing and is safe to stop and to remove."
    assert tidelog("brokers", "list", "3").text.splitlines()[-1] == sentence
    events.down.add(3)
    sentence = "Broker 3 is drained and stopped: it is removed. `brokers drain 3 --undo` forgets it."
    assert tidelog("brokers", "list").text.splitlines()[-1] == sentence


def test_an_empty_broker_is_drained_at_once(tidelog: Tidelog, events: FakeCluster) -> None:
    events.moves.planned = {}
    assert tidelog("brokers", "drain", "3").text.splitlines() == [
        "Nothing has to move.",
        "Broker 3 is drained: it holds nothing and is safe to stop and to remove.",
    ]


def test_who_asks_again_waits_for_what_moves_already(tidelog: Tidelog, events: FakeCluster) -> None:
    events.moves.planned = {TopicPartition("events", 0): (2, 1)}
    tidelog("brokers", "drain", "3")
    events.moves.planned = {}
    for command in (("brokers", "drain", "3"), ("cluster", "add-brokers", "3")):
        result = tidelog(*command, "--wait", "--timeout-ms", "100")
        said = "tidelog: not everything has moved within 100 ms; it goes on"
        assert (result.exit_code, result.err.splitlines()[-1]) == (1, said)
        assert tidelog("cluster", "add-brokers", "9", "--wait").exit_code == 0, "of other brokers nothing moves"
    for tp in list(events.moves.moving):
        events.moves.end(*tp)
    events.moves.late = 1
    result = tidelog("brokers", "drain", "3", "--wait")
    assert result.error == "tidelog: not everything has moved away: drain once more" and result.exit_code == 1
    events.moves.late = 0
    assert tidelog("brokers", "drain", "3", "--wait").exit_code == 0


def test_a_drain_is_undone(tidelog: Tidelog, events: FakeCluster) -> None:
    tidelog("brokers", "drain", "3")
    result = tidelog("brokers", "drain", "3", "--undo", "--wait")
    assert result.exit_code == 2 and result.error.startswith("tidelog: --undo moves nothing")
    assert tidelog("brokers", "drain", "3", "--undo").text == "Broker 3 may hold replicas again.\n"
    assert events.moves.draining == {}
