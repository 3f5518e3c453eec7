"""A process that reads a znode names its path and version; the merge finds the event of the process that wrote it."""

import pytest

from helpers.brokers import Brokers, unstarted
from helpers.chains import chain, led_to
from tidelog.coordinator.shards import GIVE_BACK_S
from tidelog.ports.recorder import CAUSE, Cause, Origin, ProtocolEvent, Znode, led_on, with_cause
from tidelog.values import Message
from tidelog.watch.order import Told, ordered
from tidelog.watch.text import merged, sentence
from tidelog.watch.window import AWAY_S, WAIT_S, Window
from tidelog.wire import messages as m

PATH = "/brokers/ids/1"
MADE, GONE = Znode(PATH, 0), Znode(PATH, -1)
READ = m.BrokerSeen(broker_id=1)
HOUR_MS = 3_600_000


def wrote(version: int, result: str = "written", path: str = PATH) -> m.StoreWritten:
    before = -1 if version == 0 else 0
    changes = (
        m.ZnodeChange(path="/controller_epoch", version_before=0, version=1),
        m.ZnodeChange(path=path, version_before=before, version=version),
    )
    return m.StoreWritten(changes=changes, more=0, result=result)


def told(process: str, number: int, at_ms: int, fields: Message = READ, cause: Origin | None = None) -> Told:
    return Told(process, 1, ProtocolEvent(at_ms * 1_000_000, number, None, fields, cause))


def cause_of(reading: Znode, *writes: tuple[int, Message]) -> int:
    """Returns the number of the cause of a reading at 1000 ms; 0: none. Writes have numbers from 1 and times in ms."""
    events = [told("broker-1", number, at, fields) for number, (at, fields) in enumerate(writes, 1)]
    (read,) = (each for each in ordered([*events, told("c", 1, 1000, cause=reading)]) if each.process == "c")
    assert read.event.cause is None or isinstance(read.event.cause, Cause)
    return 0 if read.event.cause is None else read.event.cause.number


@pytest.mark.parametrize(
    ("reading", "writes", "number"),
    [
        (MADE, [(10, wrote(0)), (20, wrote(0)), (1200, wrote(0))], 2),
        (MADE, [(1200, wrote(0)), (1250, wrote(0))], 1),
        (MADE, [(1250, wrote(0))], 0),
        (MADE, [(10, wrote(3)), (20, wrote(0, "conflict")), (30, wrote(0, path="/brokers/ids/11"))], 0),
        (Znode(PATH, 3), [(10, wrote(0)), (20, wrote(3)), (30, wrote(4))], 2),
        (GONE, [(10, wrote(0)), (20, wrote(-1))], 2),
        (GONE, [(10, wrote(0)), (1200, wrote(-1)), (1300, wrote(0))], 2),
        (GONE, [(10, wrote(0)), (20, m.SessionLost(path=PATH))], 2),
        (GONE, [(10, m.SessionLost(path=PATH)), (20, wrote(0))], 0),
        (GONE, [(10, wrote(0)), (1200, wrote(0)), (1300, wrote(-1))], 0),
        (GONE, [(10, wrote(0)), (1200, m.SessionLost(path=PATH))], 2),
        (GONE, [(10, wrote(0)), (1250, m.SessionLost(path=PATH))], 0),
        (GONE, [], 0),
    ],
    ids=[
        "the newest before",
        "recorded when it was answered",
        "of a later life",
        "others",
        "a version",
        "deleted",
        "deleted, recorded late",
        "its session",
        "made anew",
        "gone without an event",
        "its session, noticed soon after",
        "its session, noticed late",
        "nothing",
    ],
)
def test_the_write_of_a_znode(reading: Znode, writes: list[tuple[int, Message]], number: int) -> None:
    assert cause_of(reading, *writes) == number


@pytest.mark.parametrize("ahead_ms", [-HOUR_MS, 0, 100])
def test_each_life_has_its_own_write(ahead_ms: int) -> None:
    order = m.OrderSent(order="LeaderAndIsr", broker_id=1, partitions=1, full=False)
    received = m.OrderApplied(order="LeaderAndIsr", failed=0)
    events = [
        told("c", 1, 1000, cause=MADE),
        told("c", 2, 1005, order),
        told("c", 3, 1500, m.BrokerLost(broker_id=1), GONE),
        told("c", 4, 2000, cause=MADE),
        told("broker-1", 1, ahead_ms + 900, wrote(0)),
        told("broker-1", 2, ahead_ms + 1010, received, Cause("c", 1, 2)),
        told("broker-1", 3, ahead_ms + 2001, wrote(0)),  # it has its answer after the controller has read
    ]
    shown = ordered(events)
    causes = {each.event.number: each.cause for each in shown if each.process == "c"}
    assert causes == {1: Cause("broker-1", 1, 1), 2: None, 3: None, 4: Cause("broker-1", 1, 3)}
    places = [each.name for each in shown]
    assert all(places.index(each.cause) < at for at, each in enumerate(shown) if each.cause is not None)


def test_a_watch_waits_for_the_write_of_a_znode() -> None:
    window = Window()
    window.add(told("c", 1, 1000, cause=MADE), 0.0)
    window.add(told("c", 2, 1001, cause=GONE), 0.0)
    assert window.due(AWAY_S - 0.1) == [], "its process may be unknown so far"
    window.add(told("broker-1", 1, 2000, wrote(0)), AWAY_S - 0.1 - WAIT_S)
    shown = window.due(AWAY_S - 0.1) + window.due(AWAY_S - 0.05)
    assert [(each.told.name, each.told.cause, each.cause_missing) for each in shown] == [
        (Cause("broker-1", 1, 1), None, False),
        (Cause("c", 1, 1), Cause("broker-1", 1, 1), False),
        (Cause("c", 1, 2), None, False),
    ]
    window.add(told("c", 3, 3000, cause=MADE), 5.0)
    (without,) = window.due(5.0 + AWAY_S)
    assert without.told.cause is None, "the znode that is gone is another one"


def test_a_reading_waits_for_as_long_as_the_write_does() -> None:
    window = Window()
    window.add(told("c", 1, 1000, cause=GONE), 0.0)
    window.add(told("broker-1", 1, 990, wrote(-1)), 0.1)
    assert window.due(WAIT_S) == []
    assert [each.told.process for each in window.due(0.1 + WAIT_S)] == ["broker-1", "c"]


def test_an_end_without_an_event_is_not_waited_for() -> None:
    window = Window()
    window.add(told("c", 1, 1000, cause=GONE), 0.0)
    (shown,) = window.due(WAIT_S)
    assert not shown.cause_missing and shown.told.cause is None


def test_a_znode_leads_to_no_event_of_another_process() -> None:
    with led_on(MADE):
        assert with_cause(m.ConsumerMessage(number=1)).cause == ""
    assert Cause.parse(str(MADE)) is None and CAUSE.get() is None


def of(cluster: Brokers, kind: type[Message], process: str) -> list[Told]:
    events = merged(cluster.world.rings)
    return [each for each in events if isinstance(each.event.fields, kind) and each.process == process]


async def started(count: int = 3) -> Brokers:
    """Starts a cluster with one calendar."""
    cluster = await unstarted(count)
    for broker in cluster.ids:
        cluster.node(broker).clock.wall_offset_ms = 0
    return await cluster.start()


async def test_a_controller_sees_a_broker_that_has_registered() -> None:
    cluster = await started()
    cluster.kill(1)
    await cluster.until(lambda: of(cluster, m.BrokerLost, cluster.controller.name), "its registration is gone")
    await cluster.restart(1)
    controller = cluster.controller.name
    events = merged(cluster.world.rings)
    seen = [each for each in of(cluster, m.BrokerSeen, controller) if each.event.subject == 1]
    assert [chain(events, each) for each in seen] == [[("broker-1", "StoreWritten"), (controller, "BrokerSeen")]] * 2
    writes = [led_to(events, each)[0] for each in seen]
    assert [sentence(each.event) for each in writes] == ["writes /brokers/ids/1: created (broker registration)"] * 2
    assert writes[0].life < writes[1].life
    (lost,) = of(cluster, m.BrokerLost, controller)
    assert chain(events, lost) == [(controller, "BrokerLost")], "a process that dies tells nothing"


async def test_a_controller_sees_that_a_session_has_ended() -> None:
    cluster = await started()
    meta = cluster.node(1).meta
    assert meta is not None
    cluster.world.zookeeper.expire(meta.session_id)
    await cluster.wait(5.0)
    events, controller = merged(cluster.world.rings), cluster.controller.name
    (lost,) = of(cluster, m.BrokerLost, controller)
    assert chain(events, lost) == [("broker-1", "SessionLost"), (controller, "BrokerLost")]


async def test_a_take_over_leads_to_what_a_new_controller_does() -> None:
    cluster = await started()
    await cluster.create("events")
    events, controller = merged(cluster.world.rings), cluster.controller.name
    sent = of(cluster, m.OrderSent, controller)[0]
    assert chain(events, sent)[-2:] == [(controller, "ControllerLoaded"), (controller, "OrderSent")]


@pytest.mark.parametrize("change", ["grown", "deleted"])
async def test_a_rebalance_goes_back_to_a_topic_that_changed(change: str) -> None:
    cluster = await started()
    await cluster.create("other", 2)
    await cluster.join("g", "a", "other")
    await cluster.until(lambda: len(cluster.owners()) == 2, "it has all partitions")
    await (cluster.grow("other", 3) if change == "grown" else cluster.delete("other"))
    await cluster.until(lambda: len(cluster.owners()) == (3 if change == "grown" else 0), "the group has followed")
    coordinator, controller = f"broker-{cluster.coordinator('g')}", cluster.controller.name
    events = merged(cluster.world.rings)
    begun = of(cluster, m.RebalanceBegun, coordinator)[-1]
    written, _ = led_to(events, begun)[-2:]
    assert chain(events, begun)[-2:] == [(controller, "StoreWritten"), (coordinator, "RebalanceBegun")]
    assert isinstance(written.event.fields, m.StoreWritten)
    purposes = {"grown": "partitions added", "deleted": "topic deleted"}
    assert written.event.fields.purpose.startswith(purposes[change])


async def test_a_coordinator_that_resigns_leads_to_the_next_election() -> None:
    cluster = await started()
    await cluster.create("events")
    await cluster.join("g", "a", "events")
    first = cluster.coordinator("g")
    cluster.kill(first)
    await cluster.until(lambda: cluster.coordinator("g") not in (-1, first), "another broker coordinates")
    second = cluster.coordinator("g")
    await cluster.restart(first)
    await cluster.wait(GIVE_BACK_S)
    await cluster.until(lambda: cluster.coordinator("g") == first, "it has its shard again")
    await cluster.wait(1.0)
    events, old, new = merged(cluster.world.rings), f"broker-{second}", f"broker-{first}"
    won = of(cluster, m.CoordinatorElected, new)[-1]
    kinds = [(old, "CoordinatorResigned"), (old, "StoreWritten"), (new, "StoreWritten"), (new, "CoordinatorElected")]
    assert chain(events, won) == kinds
    texts = [sentence(each.event) for each in led_to(events, won)]
    assert texts[1] == "writes /consumers/coordinator: deleted (resignation)"
    assert texts[0].endswith(f"is over: broker {first} comes first")


async def test_a_controller_that_resigns_leads_to_the_next_election() -> None:
    cluster = await started(1)
    controller = cluster.controller.controller
    assert controller is not None and controller.term is not None
    controller.term.end("a newer one")
    await cluster.wait(5.0)
    events, name = merged(cluster.world.rings), cluster.controller.name
    first, second = of(cluster, m.ControllerElected, name)
    assert chain(events, first) == [(name, "StoreWritten"), (name, "ControllerElected")]
    kinds = ("ControllerResigned", "StoreWritten", "StoreWritten", "ControllerElected")
    assert chain(events, second) == [(name, kind) for kind in kinds]
