"""Chains of causes in a consumer group: its coordinator's events, in a cluster in memory."""

from helpers.batches import batch
from helpers.brokers import Brokers, brokers
from helpers.chains import chain, led_to
from tidelog.coordinator import effects as fx
from tidelog.coordinator.events import ConnectionId
from tidelog.coordinator.record import GroupRecorder
from tidelog.ids import TopicPartition
from tidelog.ports.recorder import CAUSE
from tidelog.testing.clock import ManualClock
from tidelog.testing.loop import SimProcess
from tidelog.values import Message
from tidelog.watch.order import Told
from tidelog.watch.ring import Ring
from tidelog.watch.text import merged, sentence
from tidelog.wire import messages as m

GROUP = "g"


async def with_members(*names: str, **settings: object) -> Brokers:
    """Consumers here record nothing."""
    cluster = await brokers(3, **settings)
    await cluster.create("events", 4)
    for name in names:
        await cluster.join(GROUP, name, "events")
    await stable(cluster, *names)
    return cluster


async def stable(cluster: Brokers, *names: str) -> None:
    await cluster.until(lambda: set(cluster.owners(GROUP).values()) == set(names), f"{names} own the partitions")
    await cluster.until(lambda: cluster.group_state(GROUP) == "Stable", "the rebalance is over")


def found(events: list[Told], kind: type[Message]) -> list[Told]:
    return [told for told in events if isinstance(told.event.fields, kind)]


def purposes(events: list[Told]) -> list[str]:
    return [it.purpose for told in events if isinstance(it := told.event.fields, m.StoreWritten)]


def last_rebalance(cluster: Brokers) -> tuple[list[Told], Told]:
    events = merged(cluster.world.rings)
    return events, found(events, m.RebalanceEnded)[-1]


REBALANCED = (
    "RebalanceBegun",
    "StopFetcherSent",
    "StopFetcherAnswered",
    "StoreWritten",
    "StartFetcherSent",
    "StartFetcherAnswered",
    "StoreWritten",
    "RebalanceEnded",
)


async def test_a_rebalance_goes_back_to_the_member_that_died() -> None:
    cluster = await with_members("a", "b", group_rebalance="eager")
    coordinator = f"broker-{cluster.coordinator(GROUP)}"
    cluster.world.network.kill("b")
    await stable(cluster, "a")
    events, ended = last_rebalance(cluster)
    kinds = ("MemberDisconnected", "MemberGone", *REBALANCED)
    assert chain(events, ended) == [(coordinator, kind) for kind in kinds]
    assert {told.event.subject for told in led_to(events, ended)} == {GROUP}
    assert purposes(led_to(events, ended)) == ["ownership", "group"]


async def test_a_member_that_falls_silent_misses_pings_first() -> None:
    cluster = await with_members("a", "b", group_rebalance="eager")
    process = cluster.world.network.nodes["b"].process
    assert isinstance(process, SimProcess)
    process.pause()
    await stable(cluster, "a")
    events, ended = last_rebalance(cluster)
    kinds = [kind for _, kind in chain(events, ended)]
    assert kinds == [*["PingMissed"] * kinds.count("PingMissed"), "MemberGone", *REBALANCED]
    missed = [told.event.fields for told in found(led_to(events, ended), m.PingMissed)]
    assert [each.misses for each in missed if isinstance(each, m.PingMissed)] == [1, 2, 3]
    process.kill()


async def test_a_rebalance_after_a_join_goes_back_to_it() -> None:
    cluster = await with_members("a", "b")
    await cluster.join(GROUP, "c", "events")
    await stable(cluster, "a", "b", "c")
    events, ended = last_rebalance(cluster)
    registered, *rest = led_to(events, ended)
    assert sentence(registered.event) == "registers c in g: 3 members"
    assert [type(told.event.fields).__name__ for told in rest] == list(REBALANCED)


async def test_a_rebalance_after_a_leave_goes_back_to_it() -> None:
    cluster = await with_members("a", "b")
    await cluster.leave("b")
    await stable(cluster, "a")
    events, ended = last_rebalance(cluster)
    first = led_to(events, ended)[0]
    assert sentence(first.event) == "lets b leave g: 2 partitions free, 1 member left"


async def test_a_new_coordinator_has_read_its_groups() -> None:
    cluster = await with_members("a")
    old = cluster.coordinator(GROUP)
    cluster.kill(old)
    await cluster.until(lambda: cluster.coordinator(GROUP) not in (-1, old), "another broker coordinates")
    new = f"broker-{cluster.coordinator(GROUP)}"
    await cluster.until(lambda: cluster.members(GROUP) == ["a"], "its member is back")
    await cluster.wait(1.0)
    events = [told for told in merged(cluster.world.rings) if told.process == new]
    (loaded,) = found(events, m.CoordinatorLoaded)
    kinds = ("StoreWritten", "CoordinatorElected", "CoordinatorLoaded")
    assert chain(events, loaded) == [(new, kind) for kind in kinds]
    assert sentence(led_to(events, loaded)[0].event) == (
        "writes /consumers/coordinator: created and 1 more znode (coordinator epoch)"
    )
    assert sentence(loaded.event).startswith("has read 1 group of shard 0 with 0 offsets in ")
    (registered,) = found(events, m.MemberRegistered)
    assert sentence(registered.event) == "registers a again in g: 1 member"
    (sent,) = found(events, m.StartFetcherSent)
    assert led_to(events, sent) == [registered, sent], "it is told at once what it owns"


async def test_offsets_that_a_timer_writes_have_no_other_cause() -> None:
    cluster = await with_members("a", "b")
    await cluster.append("events", 0, batch(b"1"))
    tp = TopicPartition("events", 0)
    await cluster.until(lambda: cluster.offsets(GROUP).get(tp) == 1, "its offset is stored")
    await cluster.wait(0.1)
    events = merged(cluster.world.rings)
    stored = [told for told in events if purposes([told]) == ["offsets"]]
    assert stored and all(told.event.cause is None for told in stored)


async def test_what_a_deadline_leads_to_has_no_earlier_cause() -> None:
    recorder = GroupRecorder(Ring("broker-1", 1, ManualClock()))
    recorder.note(fx.Registered(GROUP, "a", ConnectionId(1), returned=False, members=1))
    assert CAUSE.get() is not None
    recorder.note(fx.Due())
    assert CAUSE.get() is None
