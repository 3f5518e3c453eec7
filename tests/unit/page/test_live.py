"""A running cluster on the page: what brokers say of their replicas, the events between pictures, and its end and return."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from helpers.brokers import Brokers, brokers
from helpers.overviews import broker, group, later, overview, partition, topic
from helpers.watched import request
from tidelog.client.observer import ClusterObserver
from tidelog.client.overview import Overview
from tidelog.page.hub import Hub
from tidelog.page.live import LOOK_S, LiveSource, Note
from tidelog.page.messages import PARTITIONS_MAX
from tidelog.page.overview_picture import Pictures
from tidelog.runtime.tasks import Supervisor
from tidelog.watch.follower import ProtocolWatch
from tidelog.wire import messages as m

BEGAN_MS = 1_700_000_000_000


def log(start: int, high: int, *epochs: tuple[int, int]) -> m.OwnLog:
    return m.OwnLog(
        log_start=start,
        high_watermark=high,
        epochs=tuple(m.OwnEpoch(leader_epoch=epoch, start=at) for epoch, at in epochs),
        isr_size=0,
    )


def rows(picture: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f"{each['topic']}-{each['number']}": each for each in picture["partitions"]}


def states(picture: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["state"] for each in picture["processes"]}


def test_each_replica_is_what_its_broker_says() -> None:
    tp = ("events", 0)
    told = log(3, 7, (0, 3), (4, 6))
    seen = overview(
        topic("events", partition(leader=1, isr=(0, 1))),
        brokers=[
            broker(0, {tp: 7}, told),
            broker(1, {tp: 9}, told),
            broker(2, {tp: 5}, problem="no answer"),
        ],
    )
    picture = Pictures(BEGAN_MS).picture(seen, 17)
    assert (picture["t"], picture["n"], picture["hidden"], picture["faults"]) == (0.0, 17, 0, [])
    row = rows(picture)["events-0"]
    assert (row["leader"], row["epoch"], row["isr"], row["stands"]) == (1, 4, [0, 1], None)
    known = {"start": 3, "high": 7, "epochs": [[0, 3], [4, 6]]}
    assert row["replicas"] == [
        {"broker": 0, "state": "up", "leads": False, "end": 7, **known},
        {"broker": 1, "state": "up", "leads": True, "end": 9, **known},
        {"broker": 2, "state": "unknown", "leads": False, "end": 5, "start": -1, "high": -1, "epochs": []},
    ]
    assert states(picture) == {"broker-0": "up", "broker-1": "up", "broker-2": "unknown", "controller-1": "up"}


def test_a_high_watermark_that_stands_is_told_with_its_reason() -> None:
    tp = ("events", 0)

    def at(seconds: float, high: int, behind: int = 5, **fields: Any) -> Any:
        ends = {0: 9, 1: behind, 2: 9}
        return later(
            overview(
                topic("events", partition(leader=0, **fields)),
                brokers=[broker(number, {tp: end}, log(0, high)) for number, end in ends.items()],
            ),
            seconds,
        )

    pictures = Pictures(BEGAN_MS)
    stands = [rows(pictures.picture(at(seconds, high=5), 0))["events-0"]["stands"] for seconds in (0, 1, 2)]
    assert stands == [None, None, {"seconds": 2.0, "why": "broker-1 is in the ISR and behind"}]
    assert rows(pictures.picture(at(3, high=6, behind=6), 0))["events-0"]["stands"] is None, "it has moved"
    pictures.picture(at(4, high=6), 0)
    (stood,) = [rows(pictures.picture(at(6, high=6, isr=(0,)), 0))["events-0"]["stands"]]
    assert stood == {"seconds": 3.0, "why": "the ISR has 1 members, and min.insync.replicas is 2"}
    assert rows(pictures.picture(at(7, high=9), 0))["events-0"]["stands"] is None


def test_of_many_partitions_the_worst_are_shown() -> None:
    parts = [partition(number) for number in range(100)]
    parts[77], parts[99] = partition(77, leader=-1), partition(99, isr=(0,))
    picture = Pictures(BEGAN_MS).picture(overview(topic("events", *parts)), 0)
    assert len(picture["partitions"]) == PARTITIONS_MAX and picture["hidden"] == 60
    assert {"events-77", "events-99"} <= rows(picture).keys()
    assert list(rows(picture)) == sorted(rows(picture), key=lambda name: int(name.partition("-")[2]))


def test_groups_have_owners_and_offsets() -> None:
    seen = overview(topic("events", partition()), groups=[group("readers", {("events", 0): 5}, [("events", 0)])])
    picture = Pictures(BEGAN_MS).picture(seen, 0)
    assert picture["groups"] == [
        {
            "name": "readers",
            "generation": 5,
            "phase": "Stable",
            "coordinator": "broker-0",
            "members": [{"name": "c", "note": ""}],
            "partitions": [{"topic": "events", "number": 0, "owner": "c", "committed": 5, "processed": -1}],
        }
    ]


class Shown:
    """The messages to a hub."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, Any]] = []

    def all(self, kind: str) -> list[Any]:
        return [content for each, content in self.messages if each == kind]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for events in self.all("events") for event in events]


class Desk:
    """Finds a fault in each picture."""

    def __init__(self) -> None:
        self.starts = 0

    def start(self) -> None:
        self.starts += 1

    def acts(self) -> list[dict[str, Any]]:
        return [{"do": "kill"}]

    def complete(self, seen: Overview, picture: dict[str, Any]) -> None:
        picture["faults"].append(f"one of {len(seen.brokers)} brokers is slow")


@asynccontextmanager
async def live(cluster: Brokers, notes: list[Note] | None = None, desk: Desk | None = None) -> AsyncIterator[Shown]:
    shown, hub = Shown(), Hub()
    notes = [] if notes is None else notes
    hub.tell = lambda kind, content: shown.messages.append((kind, content))  # type: ignore[method-assign]
    ports = cluster.ports_of("page")
    observer = ClusterObserver(cluster.bootstrap, ports, LOOK_S)
    follower = ProtocolWatch(cluster.bootstrap, ports, request(last=100), lambda text: notes.append(Note(text)))
    source = LiveSource(hub, observer, follower, ports.clock, about="a cluster", notes=notes, desk=desk)
    tasks = Supervisor("page")
    tasks.start("source", source.run())
    try:
        yield shown
    finally:
        await tasks.stop()
        await follower.stop()
        await observer.stop()


async def test_a_broker_that_dies_is_seen_in_events_and_pictures() -> None:
    cluster = await brokers(3)
    await cluster.create("events", 2)
    async with live(cluster) as shown:
        await cluster.wait(3.0)
        assert shown.messages[0][0] == "hello" and shown.all("hello")[0]["acts"] == []
        assert set(states(shown.all("picture")[-1]).values()) == {"up"}
        before, dies = len(shown.events), cluster.leader("events")
        cluster.kill(dies)
        await cluster.wait(8.0)
        picture = shown.all("picture")[-1]
        assert states(picture)[f"broker-{dies}"] != "up" and dies not in {
            row["leader"] for row in rows(picture).values()
        }
        kinds = {event["kind"] for event in shown.events[before:]}
        assert "LeaderChosen" in kinds and "act" in kinds, "a note says that its stream broke"
        numbers = [event["n"] for event in shown.events]
        assert numbers == list(range(len(numbers))) and shown.all("time")[-1]["n"] == picture["n"] <= len(numbers)
        assert 8 <= len(shown.all("picture")) <= 12, "one a second"


async def test_what_breaks_the_cluster_is_on_the_page() -> None:
    cluster, notes, desk = await brokers(3), list[Note](), Desk()
    async with live(cluster, notes, desk) as shown:
        await cluster.wait(2.0)
        assert desk.starts == 1 and shown.all("hello")[0]["acts"] == [{"do": "kill"}]
        assert shown.all("picture")[-1]["faults"] == ["one of 3 brokers is slow"]
        notes += [
            Note("kill broker-1 begins", ("broker-1",)),
            Note("kill broker-1 is healed", ("broker-1",), mends=True),
        ]
        await cluster.wait(0.2)
        acts = [each for each in shown.events if each["kind"] == "act"]
        assert [(each["text"], each["struck"]) for each in acts[-2:]] == [
            ("kill broker-1 begins", ["broker-1"]),
            ("kill broker-1 is healed", ["broker-1"]),
        ]
        assert not notes
