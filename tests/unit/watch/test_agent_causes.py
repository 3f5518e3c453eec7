"""Chains of causes through the members of a group, which record events as agents do."""

from helpers.batches import batch
from helpers.brokers import Brokers, brokers
from helpers.chains import chain, led_to
from tidelog.ids import TopicPartition
from tidelog.values import Message
from tidelog.watch.kinds import LOGGED
from tidelog.watch.order import Told
from tidelog.watch.text import merged, sentence
from tidelog.wire import messages as m

GROUP = "g"
TP = TopicPartition("events", 0)


async def with_agents(*names: str) -> Brokers:
    cluster = await brokers(3, group_rebalance="eager")
    await cluster.create("events", 4)
    for name in names:
        await cluster.join(GROUP, name, "events", records=True)
    await stable(cluster, *names)
    return cluster


async def stable(cluster: Brokers, *names: str) -> None:
    await cluster.until(lambda: set(cluster.owners(GROUP).values()) == set(names), f"{names} own the partitions")
    await cluster.until(lambda: cluster.group_state(GROUP) == "Stable", "the rebalance is over")


def found(events: list[Told], kind: type[Message], process: str = "") -> list[Told]:
    return [told for told in events if isinstance(told.event.fields, kind) and process in ("", told.process)]


async def test_a_rebalance_is_one_chain_through_its_members() -> None:
    cluster = await with_agents("a", "b")
    broker = f"broker-{cluster.coordinator(GROUP)}"
    cluster.world.network.kill("b")
    await stable(cluster, "a")
    events = merged(cluster.world.rings)
    assert chain(events, found(events, m.RebalanceEnded)[-1]) == [
        (broker, "MemberDisconnected"),
        (broker, "MemberGone"),
        (broker, "RebalanceBegun"),
        (broker, "StopFetcherSent"),
        ("a", "StopFetcherReceived"),
        ("a", "StopFetcherObeyed"),
        (broker, "StopFetcherAnswered"),
        (broker, "StoreWritten"),
        (broker, "StartFetcherSent"),
        ("a", "StartFetcherReceived"),
        ("a", "StartFetcherObeyed"),
        (broker, "StartFetcherAnswered"),
        (broker, "StoreWritten"),
        (broker, "RebalanceEnded"),
    ]


async def test_a_member_tells_from_where_it_fetches() -> None:
    cluster = await with_agents("a")
    await cluster.append("events", 0, batch(b"1", b"2"))
    await cluster.until(lambda: cluster.offsets(GROUP).get(TP) == 2, "its offset is stored")
    await cluster.join(GROUP, "b", "events", records=True)
    await stable(cluster, "a", "b")
    events = merged(cluster.world.rings)
    fetches = [told for told in events if told.event.subject == TP and told.process in ("a", "b")]
    assert [sentence(told.event) for told in fetches] == [
        "fetches events-0 for g from 0 on",
        "stops fetching events-0 for g at 2 (StopFetcher)",
        "fetches events-0 for g from 2 on",
    ]
    assert [chain(events, told)[-2][1] for told in fetches] == [
        "StartFetcherReceived",
        "StopFetcherReceived",
        "StartFetcherReceived",
    ]


async def test_a_member_registers_with_the_next_coordinator() -> None:
    cluster = await with_agents("a")
    old = cluster.coordinator(GROUP)
    cluster.kill(old)
    await cluster.until(lambda: cluster.coordinator(GROUP) not in (-1, old), "another broker coordinates")
    await cluster.until(lambda: cluster.members(GROUP) == ["a"], "its member is back")
    await cluster.wait(1.0)
    new, events = f"broker-{cluster.coordinator(GROUP)}", merged(cluster.world.rings)
    assert chain(events, found(events, m.StartFetcherObeyed)[-1]) == [
        ("a", "CoordinatorLost"),
        (new, "MemberRegistered"),
        (new, "StartFetcherSent"),
        ("a", "StartFetcherReceived"),
        ("a", "StartFetcherObeyed"),
    ]
    joined = found(events, m.MemberJoined)
    assert [sentence(told.event) for told in joined] == ["is a member of g", "is a member of g again"]


async def test_a_leave_goes_back_to_the_member() -> None:
    cluster = await with_agents("a", "b")
    await cluster.leave("b")
    await stable(cluster, "a")
    events = merged(cluster.world.rings)
    first, second, *_ = led_to(events, found(events, m.RebalanceEnded)[-1])
    assert sentence(first.event) == "b leaves g: the consumer stops"
    assert sentence(second.event) == "lets b leave g: 2 partitions free, 1 member left"
    (left,) = found(events, m.MemberLeft)
    assert sentence(left.event) == "b has left g, its last offsets are stored"


async def test_a_member_whose_lease_is_out_stops_fetching() -> None:
    cluster = await with_agents("a")
    cluster.cut("a")
    await cluster.until(lambda: not cluster.members(GROUP), "its coordinator takes it for dead")
    events = merged(cluster.world.rings)
    stopped = [sentence(told.event) for told in found(events, m.FetchingStopped, "a")]
    assert len(stopped) == 4 and set(stopped) == {
        f"stops fetching events-{p} for g at 0 (its lease has run out)" for p in range(4)
    }


async def test_kinds_for_the_log_are_made_when_recorded() -> None:
    cluster = await with_agents("a", "b")
    cluster.world.network.kill("b")
    await stable(cluster, "a")
    cluster.kill(cluster.leader("events"))
    await cluster.wait(5.0)
    fields = [kept[3] for ring in cluster.world.rings for kept in ring._events]
    late = {type(each()) for each in fields if not isinstance(each, Message)}
    logged = {type(each) for each in fields} & LOGGED
    assert m.StopFetcherSent in late and not late & LOGGED
    assert {m.BrokerSuspected, m.RebalanceEnded, m.MemberJoined} <= logged


async def test_a_commit_is_led_to_by_the_order_to_fetch() -> None:
    cluster = await with_agents("b")
    consumer = await cluster.join(GROUP, "a", "events", records=True)
    await stable(cluster, "a", "b")
    await consumer.commit({min(consumer.assignment): 0})
    broker = f"broker-{cluster.coordinator(GROUP)}"
    events = merged(cluster.world.rings)
    assert chain(events, found(events, m.StoreWritten)[-1])[-3:] == [
        (broker, "StartFetcherSent"),
        ("a", "StartFetcherReceived"),
        (broker, "StoreWritten"),
    ]
