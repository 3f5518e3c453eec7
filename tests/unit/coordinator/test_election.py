"""Who coordinates which shard: spread, moved when a broker goes, and given back when it has returned to stay."""

import asyncio
from collections import Counter
from typing import Any

from helpers.requirements import requirement
from tidelog.coordinator.election import LiveBrokers, rank, shard_of
from tidelog.coordinator.topics import TopicWatcher
from tidelog.ports.meta import Create, SessionClosed, SetData
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.zk_patterns import ensure_path
from tidelog.wire import znodes
from unit.coordinator.shell import GROUP, Host, World


def first(shard: int, live: list[int]) -> int:
    return next(each for each in live if rank(shard, each, live) == 0)


@requirement("Every broker coordinates a subset of the groups")
def test_open_08_shards_spread_over_the_brokers_and_one_that_goes_moves_only_its_own() -> None:
    live = [0, 1, 2, 3]
    before = {shard: first(shard, live) for shard in range(400)}
    counts = Counter(before.values())
    assert set(counts) == set(live) and min(counts.values()) > 60
    after = {shard: first(shard, [0, 1, 3]) for shard in before}
    assert all(after[shard] == broker for shard, broker in before.items() if broker != 2)
    assert set(Counter(after[shard] for shard, broker in before.items() if broker == 2)) == {0, 1, 3}
    assert sorted(rank(5, each, live) for each in live) == [0, 1, 2, 3]


@requirement("Every broker coordinates a subset of the groups")
def test_every_broker_places_a_group_in_the_same_shard() -> None:
    # The numbers are stored nowhere: another function would move groups between brokers of two versions.
    assert [shard_of(group, 8) for group in ("readers", "g", "ö")] == [5, 6, 3]


def serving(world: World, shards: int) -> dict[int, int]:
    """Shard -> broker that acts for it."""
    found: dict[int, int] = {}
    for host in world.hosts.values():
        for shard in range(shards):
            if host.process.alive and host.serves(shard):
                assert shard not in found, "two coordinators at once (A8.03)"
                found[shard] = host.number
    return found


@requirement("Every broker has an elector for the coordinator znode")
@requirement("A coordinator failover rebalances no group and skips no record")
@requirement("Every broker coordinates a subset of the groups")
@requirement("Each shard has one active coordinator")
@requirement("Another broker takes over when the coordinator dies")
async def test_each_shard_has_one_coordinator_and_another_one_when_its_broker_dies(world: World) -> None:
    hosts = [await world.host(number, shards=8) for number in (1, 2, 3)]
    await world.until(lambda: len(serving(world, 8)) == 8, "every shard is coordinated")
    before = serving(world, 8)
    owner = before[shard_of(GROUP, 8)]
    await world.until(lambda: {h.coordinators.coordinator_of(GROUP) for h in hosts} == {owner}, "everybody knows", 1.0)
    dead = next(host for host in hosts if host.number == before[0])
    world.kill(dead)
    await world.until(lambda: len(serving(world, 8)) == 8, "every shard is coordinated again", 6.0)
    after = serving(world, 8)
    assert dead.number not in after.values()
    assert all(after[shard] == broker for shard, broker in before.items() if broker != dead.number)


@requirement("Any broker names the coordinator of a group")
@requirement("Every broker coordinates a subset of the groups")
@requirement("The coordinator znode is ephemeral and names its broker")
async def test_conflict_01_31_without_a_group_the_elected_coordinator_is_named_and_with_one_its_shards(
    world: World,
) -> None:
    hosts = [await world.host(number, shards=8) for number in (1, 2, 3)]
    await world.until(lambda: len(serving(world, 8)) == 8, "every shard is coordinated")
    owners = serving(world, 8)
    elected = world.zookeeper.find(znodes.COORDINATOR)
    assert elected is not None, "the documented path (A6.01)"
    assert znodes.decode_coordinator(elected.data, znodes.COORDINATOR).broker_id == owners[0]
    owner = next(host for host in hosts if host.number == owners[0])
    assert elected.stat.ephemeral_owner == owner.meta.session_id
    groups = [f"group-{n}" for n in range(40)]
    wanted = {group: {owners[shard_of(group, 8)]} for group in groups} | {"": {owners[0]}}

    def named() -> dict[str, set[int]]:
        return {group: {h.coordinators.coordinator_of(group) for h in hosts} for group in wanted}

    await world.until(lambda: named() == wanted, "everybody knows", 1.0)
    assert len({broker for brokers in wanted.values() for broker in brokers}) > 1, "several brokers share them"


@requirement("A new coordinator reads its groups and their members")
async def test_a_new_coordinator_reads_the_groups_of_its_shard(world: World) -> None:
    groups = {f"group-{n}" for n in range(20)}
    await ensure_path(world.operator, znodes.CONSUMERS)
    await world.operator.multi([Create(znodes.group_path(group)) for group in sorted(groups)])
    host = await world.host(1, shards=4)
    await world.until(lambda: len(serving(world, 4)) == 4, "it has all shards")
    read = {shard: set(term.machine.groups) for shard, term in host.coordinators.terms.items()}
    assert read == {shard: {each for each in groups if shard_of(each, 4) == shard} for shard in range(4)}


async def test_a_broker_that_is_back_to_stay_gets_its_shards(world: World) -> None:
    one = await world.host(1, shards=8)
    await world.until(lambda: len(serving(world, 8)) == 8, "one has all")
    began_at = world.clock.now()
    await world.host(2, shards=8)
    mine = {shard for shard in range(8) if first(shard, [1, 2]) == 2}
    assert 0 < len(mine) < 8
    await world.until(
        lambda: {s for s, broker in serving(world, 8).items() if broker == 2} == mine, "it has its own", 15.0
    )
    assert world.clock.now() - began_at > 10.0, "not before it has shown that it stays"
    epochs = {shard: term.epoch for shard, term in one.coordinators.terms.items()}
    await world.clock.sleep(30.0)
    assert {shard: term.epoch for shard, term in one.coordinators.terms.items()} == epochs, "and then nothing moves"


@requirement("Each shard has one active coordinator")
async def test_one_that_has_taken_its_shards_and_lost_them_in_the_same_life_gets_them_again(world: World) -> None:
    """As when its session ends and that of its registration does not (L06)."""

    one = await world.host(1, shards=8)
    await world.until(lambda: len(serving(world, 8)) == 8, "one has all")
    await world.host(2, shards=8)
    mine = {shard for shard in range(8) if first(shard, [1, 2]) == 2}

    def held() -> set[int] | None:
        found = serving(world, 8)
        return {shard for shard, broker in found.items() if broker == 2} if len(found) == 8 else None

    await world.until(lambda: held() == mine, "it has its own", 15.0)
    groups = {shard_of(group, 8): group for group in (f"group-{n}" for n in range(40))}
    await world.until(
        lambda: {shard for shard in groups if one.coordinators.coordinator_of(groups[shard]) == 2} == mine,
        "the first one has seen it",
    )
    for shard in mine:
        world.zookeeper.remove(znodes.coordinator_path(shard))
    await world.until(lambda: held() == set(), "the other one has all", 5.0)
    await world.until(lambda: held() == mine, "it has its own again", 15.0)


async def test_one_that_cannot_take_its_shard_is_offered_it_once(world: World) -> None:
    one = await world.host(1, shards=4)
    await world.until(lambda: len(serving(world, 4)) == 4, "one has all")
    idle = await world.host(2, shards=4)
    idle.meta.cut()  # it is registered, and its coordinators cannot reach the store
    await world.clock.sleep(20.0)
    await world.until(lambda: len(serving(world, 4)) == 4, "one has all again")
    epochs = {shard: term.epoch for shard, term in one.coordinators.terms.items()}
    await world.clock.sleep(40.0)
    assert {shard: term.epoch for shard, term in one.coordinators.terms.items()} == epochs


async def test_the_stored_number_of_shards_counts_and_not_the_setting(world: World) -> None:
    await ensure_path(world.operator, znodes.CONSUMERS)
    await world.operator.multi([Create(znodes.SHARDS, znodes.encode_shards(3))])
    host = await world.host(1, shards=8)
    await world.until(lambda: host.coordinators.shards == 3 and len(host.coordinators.terms) == 3, "three shards")


async def test_a_damaged_number_of_shards_leaves_groups_uncoordinated_until_it_is_repaired(world: World) -> None:
    await ensure_path(world.operator, znodes.CONSUMERS)
    await world.operator.multi([Create(znodes.SHARDS, b"8")])
    host = await world.host(1)
    await world.clock.sleep(5.0)
    assert host.coordinators.coordinator_of(GROUP) == -1 and host.coordinators.term_of(GROUP) is None
    await world.operator.multi([SetData(znodes.SHARDS, znodes.encode_shards(1))])
    await world.until(host.serves, "it coordinates", 40.0)


@requirement("Each shard has one active coordinator")
@requirement("Every broker has an elector for the coordinator znode")
@requirement("A vacant coordinator znode starts an election")
async def test_a_vacancy_is_noticed_by_the_watch(world: World) -> None:

    def holder() -> int | None:
        node = world.zookeeper.find(znodes.COORDINATOR)
        return None if node is None else znodes.decode_coordinator(node.data, znodes.COORDINATOR).broker_id

    one = await world.host(1)
    await world.until(lambda: holder() == 1, "it makes the znode when it starts", 1.0)
    two = await world.host(2)
    await world.until(lambda: two.coordinators.coordinator_of(GROUP) == 1, "the other one knows")

    async def deposed(host: Host, other: Host) -> float:
        world.zookeeper.remove(znodes.COORDINATOR)
        return await world.until(lambda: other.serves() and not host.serves(), "the other one has it", 3.0)

    assert await deposed(one, two) < 1.0
    assert holder() == 2


@requirement("A broker that stops closes its electors first")
async def test_a_broker_that_stops_takes_no_further_shard(world: World) -> None:
    """Its elector is closed first, however long the last offsets of its other shards take."""

    await world.host(1, shards=8)
    two = await world.host(2, shards=8)
    await world.until(lambda: len(serving(world, 8)) == 8 and len(two.coordinators.terms) > 0, "both serve", 20.0)
    mine = set(two.coordinators.terms)
    other = next(shard for shard in range(8) if shard not in mine and first(shard, [1, 2]) == 1)
    gate = asyncio.Event()

    async def find(_: Any) -> dict[Any, int | None]:
        await gate.wait()
        return {}

    two.coordinators._ends.find = find  # type: ignore[method-assign]
    world.zookeeper.remove(znodes.coordinator_path(other))
    await world.clock.sleep(0.05)  # it has noticed, and lets the broker go first that comes first
    stopping = two.process.start("stop", two.coordinators.stop())
    await world.clock.sleep(0.3)
    assert set(two.coordinators.terms) == mine
    gate.set()
    await stopping
    assert not two.coordinators.terms


async def test_a_broker_that_is_not_registered_does_not_stand(world: World) -> None:
    host = await world.serving(1)
    world.zookeeper.remove(znodes.broker_path(1))
    world.zookeeper.remove(znodes.COORDINATOR)
    await world.until(lambda: not host.serves(), "it is deposed")
    await world.clock.sleep(10.0)
    assert not host.serves(), "no client could find it"


class Closed:
    """A session that was closed in order."""

    async def children(self, path: str, watch: Any = None) -> list[str]:
        raise SessionClosed(path)

    async def sync(self, path: str) -> None:
        raise SessionClosed(path)


@requirement("A broker that stops closes its electors first")
async def test_what_follows_znodes_ends_in_order_when_the_broker_closes_its_session() -> None:
    closed: Any = Closed()
    await LiveBrokers(closed, SystemClock()).run()
    topics = TopicWatcher(closed, SystemClock())
    topics._news.set()
    await topics.run()
