"""Fenced multis: packing, pipelining, what a conflict costs the others, and what nobody knows."""

import asyncio
from collections.abc import Sequence

import pytest

from helpers.requirements import requirement
from helpers.spy_meta import SpyMeta
from tidelog.controller.effects import Outcome, PartitionRemoval, StateWrite, TopicWrite, WriteGroup
from tidelog.controller.store import FencedStore, brokers_of, read_snapshot
from tidelog.ids import BrokerId, TopicPartition
from tidelog.ports.meta import Check, Create, SetData, Stat
from tidelog.runtime.tasks import Supervisor
from tidelog.runtime.zk_patterns import ensure_path
from tidelog.sizes import Carried
from tidelog.testing.clock import SimClock
from tidelog.testing.meta import SimZooKeeper
from tidelog.testing.rand import seeded
from tidelog.wire import znodes
from unit.controller.harness import isr, state

ROWS = ((BrokerId(1),),)


class Bench:
    """A store with one topic `t` of `partitions` partitions whose states are at version 0."""

    def __init__(
        self,
        partitions: int = 10,
        max_operations: int = 500,
        max_bytes: int = 512 << 10,
        seed: int = 1,
        lag_s: float = 0.0,
    ) -> None:
        self.zookeeper = SimZooKeeper(seeded(seed), servers=3 if lag_s else 1, lag_s=lag_s)
        self.meta = SpyMeta(self.zookeeper.client())
        self.partitions = partitions
        self.results: list[tuple[WriteGroup, Outcome]] = []
        self.tasks = Supervisor("store")
        self.store = FencedStore(
            self.meta,
            SimClock(),
            0,
            self.tasks.start,
            self.results.extend,
            multi_max_operations=max_operations,
            multi_max_bytes=max_bytes,
        )

    async def start(self) -> None:
        await self.meta.start()
        await self.meta.multi([Create(path) for path in znodes.PERSISTENT_PARENTS])
        await self.meta.multi([Create(znodes.CONTROLLER_EPOCH, b"1")])
        topic = znodes.TopicAssignment(b"id", ((BrokerId(1),),) * self.partitions)
        await self.meta.multi(
            [
                Create(znodes.topic_path("t"), znodes.encode_topic(topic)),
                Create(znodes.partitions_path("t")),
                Create(znodes.topic_config_path("t"), znodes.encode_topic_config({})),
            ]
        )
        self.tasks.start("run", self.store.run())
        await self.write([self.state_of(index, 0) for index in range(self.partitions)])
        self.results.clear()
        self.meta.multis.clear()
        self.meta.running_max = 0

    def state_of(self, index: int, version: int) -> StateWrite:
        return StateWrite(TopicPartition("t", index), state(1, version, isr(b1=11), version))

    async def write(self, groups: Sequence[WriteGroup]) -> dict[WriteGroup, Outcome]:
        self.store.submit(groups)
        async with asyncio.timeout(60):
            while len(self.results) < len(groups):
                await SimClock().sleep(0.001)
        assert len(self.results) == len(groups)
        return dict(self.results)


@requirement("The controller is the only writer of leader and ISR")
async def test_every_multi_checks_the_controller_epoch_first() -> None:
    bench = Bench(partitions=25, max_operations=11)
    await bench.start()
    groups = [bench.state_of(index, 1) for index in range(25)]
    assert set((await bench.write(groups)).values()) == {Outcome.WRITTEN}
    assert [ops[0] for ops in bench.meta.multis] == [Check(znodes.CONTROLLER_EPOCH, 0)] * 3
    assert [len(ops) for ops in bench.meta.multis] == [11, 11, 6]


async def test_multis_are_pipelined_and_bounded_in_number_and_size() -> None:
    bench = Bench(partitions=100, max_bytes=1500)
    await bench.start()
    await bench.write([bench.state_of(index, 1) for index in range(100)])
    assert bench.meta.running_max == 8
    assert len(bench.meta.multis) > 8


async def test_a_group_is_never_divided() -> None:
    bench = Bench(max_operations=3)
    await bench.start()
    removals = [PartitionRemoval(TopicPartition("t", index)) for index in range(10)]
    assert set((await bench.write(removals)).values()) == {Outcome.WRITTEN}
    assert {len(ops) for ops in bench.meta.multis} == {3}


async def test_a_conflict_takes_only_its_own_group_out() -> None:
    bench = Bench()
    await bench.start()
    await bench.meta.multi([SetData(znodes.state_path("t", 3), b"{}")])
    await bench.meta.multi([SetData(znodes.state_path("t", 7), b"{}")])
    outcome = await bench.write([bench.state_of(index, 1) for index in range(10)])
    conflicts = {group for group, each in outcome.items() if each is Outcome.CONFLICT}
    assert conflicts == {bench.state_of(3, 1), bench.state_of(7, 1)}
    assert sum(each is Outcome.WRITTEN for each in outcome.values()) == 8


@requirement("A controller isolated beyond its session changes nothing on return")
@requirement("The controller is the only writer of leader and ISR")
@requirement("Every controller write checks the controller epoch")
async def test_mut_10_i12_a_raised_controller_epoch_fences_every_write() -> None:
    bench = Bench()
    await bench.start()
    before = bench.zookeeper.dump()[znodes.state_path("t", 0)]
    await bench.meta.multi([SetData(znodes.CONTROLLER_EPOCH, b"2")])
    assert await bench.write([bench.state_of(0, 1)]) == {bench.state_of(0, 1): Outcome.FENCED}
    assert bench.zookeeper.dump()[znodes.state_path("t", 0)] == before


async def test_a_session_that_ended_fences_too() -> None:
    bench = Bench()
    await bench.start()
    bench.zookeeper.expire(bench.meta.session_id)
    assert set((await bench.write([bench.state_of(0, 1)])).values()) == {Outcome.FENCED}


@requirement("A write of unknown outcome is read back before it is judged")
@pytest.mark.parametrize(("applied", "version"), [(True, 1), (False, 0)])
async def test_an_unknown_outcome_is_said_and_can_be_examined(applied: bool, version: int) -> None:
    bench = Bench()
    await bench.start()
    group = bench.state_of(0, 1)
    bench.meta.lose_next_answer(applied=applied)
    assert await bench.write([group]) == {group: Outcome.UNKNOWN}
    absent = TopicWrite("nope", b"x", ROWS, {})
    found = await bench.store.examine([group, absent])
    assert [each for each, _ in found] == [group, absent]
    assert found[0][1] is not None and found[0][1][1] == version
    assert found[1][1] is None


@requirement("A write of unknown outcome is read back before it is judged")
@pytest.mark.parametrize("seed", range(6))
async def test_a_server_that_lags_behind_is_not_believed(seed: int) -> None:
    bench = Bench(seed=seed, lag_s=2.0)
    await bench.start()
    group = bench.state_of(0, 1)
    bench.meta.lose_next_answer(applied=True)
    assert await bench.write([group]) == {group: Outcome.UNKNOWN}
    ((_, found),) = await bench.store.examine([group])
    assert found is not None and found[1] == 1


async def test_what_is_too_large_is_halved_and_refused_only_alone() -> None:
    bench = Bench()
    await bench.start()
    bench.meta.limit_ops = 4
    assert set((await bench.write([bench.state_of(index, 1) for index in range(10)])).values()) == {Outcome.WRITTEN}
    bench.results.clear()
    bench.meta.limit_ops = 1
    assert set((await bench.write([bench.state_of(0, 2)])).values()) == {Outcome.REFUSED}


async def test_foreign_children_refuse_a_removal() -> None:
    bench = Bench()
    await bench.start()
    await bench.meta.multi([Create(f"{znodes.partition_path('t', 0)}/foreign")])
    assert set((await bench.write([PartitionRemoval(TopicPartition("t", 0))])).values()) == {Outcome.REFUSED}


@requirement("ZooKeeper stores the current leader and ISR")
@requirement("One state znode holds leader, ISR and epochs of a partition")
@requirement("ZooKeeper lists brokers, topics and their partitions")
@requirement("The replicas of each partition are stored in ZooKeeper")
async def test_a_snapshot_reads_everything_back() -> None:
    bench = Bench(partitions=3)
    await bench.start()
    await bench.meta.multi([Create(f"{znodes.DELETE_TOPICS}/old")])
    await bench.write([PartitionRemoval(TopicPartition("t", 1))])
    one, two = BrokerId(1), BrokerId(2)
    assignment = znodes.TopicAssignment(b"id", ((one,), (one,), (two, one)), {2: znodes.Move((one,), (two,))})
    await bench.meta.multi([SetData(znodes.topic_path("t"), znodes.encode_topic(assignment))])
    carried = Carried(5_000_000, 60_000_000)
    registration = znodes.BrokerRegistration(BrokerId(7), (), "r", znodes.INTACT_SINCE_NOW, "x", carried=carried)
    await bench.meta.multi([Create(znodes.broker_path(7), znodes.encode_broker(registration), ephemeral=True)])
    await bench.meta.multi([Create(f"{znodes.BROKER_IDS}/8", b"junk"), Create(f"{znodes.BROKER_IDS}/x", b"{}")])
    snapshot = await read_snapshot(bench.meta)
    (topic,) = snapshot.topics
    assert (topic.name, topic.topic_id, topic.configs, topic.has_config_node) == ("t", b"id", {}, True)
    assert (topic.replicas, topic.moves) == (assignment.partitions, assignment.moves)
    assert topic.states == (state(1, 0, isr(b1=11), 0), None, state(1, 0, isr(b1=11), 0))
    assert snapshot.deletions == ("old",)
    (broker,) = snapshot.brokers
    assert (broker.broker_id, broker.intact_since, broker.carried) == (7, broker.epoch, carried)
    assert broker.live().fetch_max_bytes == 60_000_000, "as brokers are told"


async def test_a_name_that_no_topic_has_is_left_out() -> None:
    bench = Bench(partitions=1)
    await bench.start()
    topic = znodes.encode_topic(znodes.TopicAssignment(b"other", ROWS))
    await bench.meta.multi([Create(znodes.topic_path(".."), topic), Create(znodes.topic_path("a b"), topic)])
    assert [each.name for each in (await read_snapshot(bench.meta)).topics] == ["t"]


def test_directories_are_those_up_to_the_life_that_is_registered() -> None:
    def known(directory: str, epoch: int, *stored: tuple[int, str]) -> tuple[tuple[int, str], ...]:
        data = znodes.encode_broker(znodes.BrokerRegistration(BrokerId(1), (), "", 7, "x", directory_id=directory))
        (found,) = brokers_of({"1": (data, Stat(0, epoch, epoch, 1))}, {"1": stored} if stored else {})
        return found.directories

    assert known("d1", 50) == ((50, "d1"),)
    assert known("d1", 50, (40, "d1")) == ((40, "d1"),)
    assert known("d1", 50, (40, "d1"), (60, "d2")) == ((40, "d1"),), "what follows is of the next life"
    # A broker of a release that does not store its directory has another one.
    assert known("d2", 50, (40, "d1")) == ((40, "d1"), (50, "d2"))
    assert known("", 50, (40, "d1")) == ((40, "d1"),)


async def test_a_new_controller_reads_the_directories_of_brokers() -> None:
    bench = Bench()
    await bench.start()
    for path in (znodes.BROKER_IDS, znodes.BROKER_DIRECTORIES, znodes.TOPICS, znodes.DELETE_TOPICS):
        await ensure_path(bench.meta, path)
    data = znodes.encode_broker(znodes.BrokerRegistration(BrokerId(7), (), "", 7, "x", directory_id="d2"))
    stored = znodes.StoredDirectories("d1").replaced("d2", 3)
    *_, stat = await bench.meta.multi(
        [
            Create(znodes.broker_directories_path(7), znodes.encode_directories(stored)),
            Create(znodes.broker_path(7), data, ephemeral=True),
        ]
    )
    (broker,) = (await read_snapshot(bench.meta)).brokers
    assert stat is not None and broker.directories == ((3, "d1"), (stat.czxid, "d2"))


def test_intact_since_is_resolved_and_kept() -> None:
    stat = Stat(version=0, czxid=50, mzxid=50, ephemeral_owner=1)

    def registered(intact_since: int) -> bytes:
        return znodes.encode_broker(znodes.BrokerRegistration(BrokerId(1), (), "", intact_since, "x"))

    assert [each.intact_since for each in brokers_of({"1": (registered(-1), stat)}, {})] == [50]
    assert [each.intact_since for each in brokers_of({"1": (registered(7), stat)}, {})] == [7]
