"""`tidelog brokers discard-damage`: what goes is shown before anything does, and another copy is told of."""

import json
from typing import Any

import pytest

from helpers.batches import batch
from helpers.brokers import Brokers
from helpers.driven_brokers import Driven
from tidelog.broker.partition_host import PartitionHost
from tidelog.errors import TransportError
from tidelog.wire import messages as m
from unit.cli.conftest import Tidelog

COMMAND = ("brokers", "discard-damage", "--broker", "1")
ONE = (*COMMAND, "--topic", "events", "--partition", "0")
BATCHES = [batch(*[b"v"] * count) for count in (10, 5, 10)]
LOST = len(BATCHES[1]) + len(BATCHES[2])
FILE = f"/data/events-%d/{0:020d}.log"
DAMAGE = f"{FILE}: damaged at byte {len(BATCHES[0])}"


@pytest.fixture
def events(cluster: Driven) -> Driven:
    """Two partitions, of which the first has no other replica."""
    cluster.place("events", [1, 2, 3], [1, 2, 3])
    cluster.move("events", 0, [1])
    return cluster


@pytest.fixture
def damaged(events: Driven) -> Driven:
    """The second batch of both logs of broker 1 has a flipped bit. Broker 2 lacks what was acknowledged; broker 3 is down."""
    events.kill(2, 3)
    events.notice(2, 3)
    for partition in range(2):
        events.append("events", partition, *BATCHES, acks=1)
    events.kill(1)
    for partition in range(2):
        events.node(1).disk.flip_bit(FILE % partition, len(BATCHES[0]) + 70)
    events.launch(1, 2)
    events.until(lambda: [len(hosts(events.brokers, 1)), len(hosts(events.brokers, 2))] == [2, 1])
    events.until(lambda: all(host.offline is not None for host in hosts(events.brokers, 1)))
    return events


def hosts(cluster: Brokers, broker: int) -> list[PartitionHost]:
    """Its replicas."""
    process = cluster.node(broker).broker
    return [] if process is None or process.manager is None else list(process.manager)


def executed(cluster: Driven) -> list[Any]:
    return [call.request.topics for call in cluster.of("DiscardDamage") if call.request.execute]


def test_without_execute_it_only_shows_what_goes(tidelog: Tidelog, damaged: Driven) -> None:
    result = tidelog(*COMMAND)
    assert result.exit_code == 0
    assert [" ".join(line.partition(": crc")[0].split()) for line in result.text.splitlines()[:3]] == [
        "PARTITION FROM-OFFSET RECORDS BYTES LEADER OTHER-COPIES DAMAGE",
        f"events-0 10 15 {LOST} 1 none {DAMAGE % 0}",
        f"events-1 10 15 {LOST} none 2 (online), 3 (down) {DAMAGE % 1}",
    ]
    assert result.text.splitlines()[3].startswith("Nothing was changed. --execute cuts")
    assert executed(damaged) == []


def test_the_last_copy_is_cut_by_execute(tidelog: Tidelog, damaged: Driven) -> None:
    result = tidelog(*ONE, "--execute")
    assert result.exit_code == 0
    assert result.text.splitlines()[-1] == f"events-0: cut at offset 10; 15 records, {LOST} bytes are gone."
    assert executed(damaged) == [(m.TopicPartitions(topic="events", partitions=(0,)),)]


def test_where_another_copy_could_lead_only_force_cuts(tidelog: Tidelog, damaged: Driven) -> None:
    result = tidelog(*COMMAND, "--execute")
    assert result.exit_code == 1
    assert "events-1: nothing was cut, broker 2 has a copy that could lead" in result.error
    assert [each.partitions for (each,) in executed(damaged)] == [(0,)]
    result = tidelog(*COMMAND, "--execute", "--force")
    assert result.exit_code == 0
    assert "`tidelog brokers release-veto --topic events --partition 1` lets broker 1 lead" in result.text


def test_damage_as_json(tidelog: Tidelog, damaged: Driven) -> None:
    result = tidelog(*COMMAND, "--topic", "events", "--execute", "--format", "json")
    assert result.exit_code == 1
    first, second = json.loads(result.text)
    assert first.pop("damage").startswith(f"{DAMAGE % 0}: crc")
    assert first == {
        "topic": "events",
        "partition": 0,
        "fromOffset": 10,
        "records": 15,
        "bytes": LOST,
        "leader": 1,
        "otherCopies": [],
        "discarded": True,
    }
    assert second["otherCopies"] == [{"broker": 2, "state": "online"}, {"broker": 3, "state": "down"}]
    assert second["discarded"] is False


def test_a_broker_without_damage_and_one_of_an_older_release(tidelog: Tidelog, events: Driven) -> None:
    assert tidelog(*COMMAND).text == "Broker 1 has no damaged log.\n"

    async def unknown(_: Any) -> Any:
        raise TransportError("UNIMPLEMENTED", "no such method")

    events.once("DiscardDamage", unknown)
    result = tidelog(*COMMAND)
    assert result.exit_code == 1
    assert result.error == "tidelog: broker 1 is of a release that discards no damage; upgrade it"
