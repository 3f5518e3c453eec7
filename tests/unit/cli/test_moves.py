"""`tidelog cluster add-brokers` and `tidelog brokers drain`: what is asked for, and what a person is told."""

import json
from typing import Any

import pytest

from helpers.driven_brokers import Driven
from helpers.requirements import requirement
from tidelog.ids import TopicPartition
from tidelog.testing.intercept import Call
from unit.cli.conftest import Tidelog
from unit.cli.moves_scene import BEFORE, DEAD, placed, rows


@pytest.fixture
def events(cluster: Driven) -> Driven:
    return placed(cluster)


def drained(tidelog: Tidelog) -> list[int]:
    """Brokers that are being drained."""
    return [b["id"] for b in json.loads(tidelog("brokers", "list", "--format", "json").text) if b["draining"]]


@requirement("Brokers are added to a running cluster by a command")
def test_brokers_are_added_by_a_command(tidelog: Tidelog, events: Driven) -> None:
    assert tidelog("cluster", "add-brokers", "2", "3").text == "2 partitions begin to move: events (2)\n"
    (call,) = events.of("AddBrokers")
    assert (call.request.broker_ids, call.request.replace, call.request.validate_only) == ((2, 3), False, False)
    assert rows(events) == {0: (2, 3, 1), 1: (3, 1, 2), 2: (1, 2)}


def test_what_would_move_is_only_shown(tidelog: Tidelog, events: Driven) -> None:
    assert tidelog("cluster", "add-brokers", "3", "--dry-run").text == "2 partitions would move: events (2)\n"
    result = tidelog("brokers", "drain", "2", "--dry-run", "--format", "json")
    assert json.loads(result.text)["moves"][0] == {"topic": "events", "partition": 0, "replicas": [1, 3]}
    assert rows(events) == BEFORE and drained(tidelog) == []


def test_a_plan_of_many_topics_names_some_of_them(tidelog: Tidelog, cluster: Driven) -> None:
    for number in range(60):
        cluster.place(f"t{number:02d}", (1, 2))
    told = tidelog("brokers", "drain", "2", "--dry-run").text
    assert told.startswith("60 partitions would move: t00 (1), ") and told.endswith(", t49 (1) and 10 more topics\n")


def test_brokers_that_are_not_alive_are_refused(tidelog: Tidelog, events: Driven) -> None:
    result = tidelog("cluster", "add-brokers", str(DEAD))
    assert (result.exit_code, result.error) == (1, "tidelog: brokers: 99 not alive (alive: 1, 2, 3)")
    assert tidelog("cluster", "add-brokers", "-1").exit_code == tidelog("cluster", "add-brokers").exit_code == 2


def test_a_broker_is_drained_until_it_may_be_removed(tidelog: Tidelog, events: Driven) -> None:
    assert tidelog("brokers", "drain", "2").text == "3 partitions begin to move: events (3)\n"
    sentence = "Broker 2 is being drained and has 3 replicas still: do not stop it yet."
    assert tidelog("brokers", "list").text.splitlines()[-1] == sentence
    assert drained(tidelog) == [2]
    events.heal()
    events.until(lambda: all(2 not in row for row in rows(events).values()))
    sentence = "Broker 2 is drained: it holds nothing and is safe to stop and to remove."
    assert tidelog("brokers", "list", "2").text.splitlines()[-1] == sentence
    events.kill(2)
    events.notice(2)
    sentence = "Broker 2 is drained and stopped: it is removed. `brokers drain 2 --undo` forgets it."
    assert tidelog("brokers", "list").text.splitlines()[-1] == sentence


def test_an_empty_broker_is_drained_at_once(tidelog: Tidelog, events: Driven) -> None:
    assert tidelog("brokers", "drain", "3").text.splitlines() == [
        "Nothing has to move.",
        "Broker 3 is drained: it holds nothing and is safe to stop and to remove.",
    ]


def test_who_asks_again_waits_for_what_moves_already(tidelog: Tidelog, events: Driven) -> None:
    tidelog("brokers", "drain", "2")
    for command in (("brokers", "drain", "2"), ("cluster", "add-brokers", "3")):
        result = tidelog(*command, "--wait", "--timeout-ms", "100")
        said = "tidelog: not everything has moved within 100 ms; it goes on"
        assert (result.exit_code, result.err.splitlines()[-1]) == (1, said)
        assert tidelog("cluster", "add-brokers", "1", "--wait").exit_code == 0, "of other brokers nothing moves"

    async def cancelled(call: Call) -> Any:
        """The others go on."""
        await events.brokers.admin.reassignments.cancel([TopicPartition("events", 0)])
        events.brokers.heal()
        return await call.serve()

    events.once("ListPartitionReassignments", cancelled)
    result = tidelog("brokers", "drain", "2", "--wait")
    assert result.exit_code == 1
    assert result.err.splitlines()[-1] == "tidelog: not everything has moved away: drain once more"
    assert tidelog("brokers", "drain", "2", "--wait").exit_code == 0


def test_a_drain_is_undone(tidelog: Tidelog, events: Driven) -> None:
    tidelog("brokers", "drain", "2")
    assert drained(tidelog) == [2]
    result = tidelog("brokers", "drain", "2", "--undo", "--wait")
    assert result.exit_code == 2 and result.error.startswith("tidelog: --undo moves nothing")
    assert tidelog("brokers", "drain", "2", "--undo").text == "Broker 2 may hold replicas again.\n"
    assert drained(tidelog) == []
