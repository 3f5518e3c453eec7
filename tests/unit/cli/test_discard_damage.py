"""`tidelog brokers discard-damage`: what goes is shown before anything does, and another copy is told of."""

import json
from typing import Any

import pytest

from helpers.fake_broker import FakeCluster
from tidelog.errors import TransportError
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m
from unit.cli.conftest import Tidelog

COMMAND = ("brokers", "discard-damage", "--broker", "1")
ONE = (*COMMAND, "--topic", "events", "--partition", "0")


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def events(cluster: FakeCluster) -> FakeCluster:
    cluster.create("events", partitions=3)
    return cluster


@pytest.fixture
def damaged(events: FakeCluster) -> FakeCluster:
    """Two partitions, of which the first has no other replica."""
    events.moves.assign(TopicPartition("events", 0), (1,))
    events.moves.damaged[1] = [
        m.DamagedLog(
            topic="events", partition=i, offset=10, end_offset=25, size_bytes=900, reason="0.log: crc", leader=-1
        )
        for i in range(2)
    ]
    events.moves.sizes[2] = {TopicPartition("events", 1): 100}
    events.down.add(3)
    return events


def executed(cluster: FakeCluster) -> list[Any]:
    return [call.request.topics for call in cluster.of("DiscardDamage") if call.request.execute]


def test_without_execute_it_only_shows_what_goes(tidelog: Tidelog, damaged: FakeCluster) -> None:
    result = tidelog(*COMMAND)
    assert result.exit_code == 0
    assert [" ".join(line.split()) for line in result.text.splitlines()[:3]] == [
        "PARTITION FROM-OFFSET RECORDS BYTES LEADER OTHER-COPIES DAMAGE",
        "events-0 10 15 900 none none 0.log: crc",
        "events-1 10 15 900 none 2 (online), 3 (down) 0.log: crc",
    ]
    assert result.text.splitlines()[3].startswith("Nothing was changed. --execute cuts")
    assert executed(damaged) == []


def test_the_last_copy_is_cut_by_execute(tidelog: Tidelog, damaged: FakeCluster) -> None:
    result = tidelog(*ONE, "--execute")
    assert result.exit_code == 0
    assert result.text.splitlines()[-1] == "events-0: cut at offset 10; 15 records, 900 bytes are gone."
    assert executed(damaged) == [(m.TopicPartitions(topic="events", partitions=(0,)),)]


def test_where_another_copy_could_lead_only_force_cuts(tidelog: Tidelog, damaged: FakeCluster) -> None:
    result = tidelog(*COMMAND, "--execute")
    assert result.exit_code == 1
    assert "events-1: nothing was cut, broker 2 has a copy that could lead" in result.error
    assert [each.partitions for (each,) in executed(damaged)] == [(0,)]
    result = tidelog(*COMMAND, "--execute", "--force")
    assert result.exit_code == 0
    assert "`tidelog brokers release-veto --topic events --partition 1` lets broker 1 lead" in result.text


def test_damage_as_json(tidelog: Tidelog, damaged: FakeCluster) -> None:
    result = tidelog(*COMMAND, "--topic", "events", "--execute", "--format", "json")
    assert result.exit_code == 1
    first, second = json.loads(result.text)
    assert first == {
        "topic": "events",
        "partition": 0,
        "fromOffset": 10,
        "records": 15,
        "bytes": 900,
        "leader": None,
        "otherCopies": [],
        "damage": "0.log: crc",
        "discarded": True,
    }
    assert second["otherCopies"] == [{"broker": 2, "state": "online"}, {"broker": 3, "state": "down"}]
    assert second["discarded"] is False


def test_a_broker_without_damage_and_one_of_an_older_release(tidelog: Tidelog, events: FakeCluster) -> None:
    assert tidelog(*COMMAND).text == "Broker 1 has no damaged log.\n"

    async def unknown(_: Any) -> Any:
        raise TransportError("UNIMPLEMENTED", "no such method")

    events.once("DiscardDamage", unknown)
    result = tidelog(*COMMAND)
    assert result.exit_code == 1
    assert result.error == "tidelog: broker 1 is of a release that discards no damage; upgrade it"
