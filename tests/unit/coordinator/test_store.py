"""What a coordinator writes: fenced, in order for each group, packed, and repeated until its outcome is known."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from helpers.requirements import requirement
from helpers.spy_meta import SpyMeta
from tidelog.coordinator.effects import DeleteGroup, Write
from tidelog.coordinator.events import Outcome, WriteId
from tidelog.coordinator.model import Committed, GroupHead, Owner, Phase, StoredGroup, StoredMember
from tidelog.coordinator.store import FencedGroupStore, Stored, read_groups
from tidelog.ids import TopicPartition
from tidelog.ports.meta import Check, Create, SetData
from tidelog.runtime.tasks import Supervisor
from tidelog.testing.clock import SimClock
from tidelog.testing.meta import SimZooKeeper
from tidelog.testing.meta_tree import Change
from tidelog.testing.rand import seeded
from tidelog.wire import znodes

FENCE = Check(znodes.COORDINATOR_EPOCH, 0)
WALL_MS = 1_700_000_000_000


class Bench:
    def __init__(self) -> None:
        self.zookeeper = SimZooKeeper(seeded(1))
        self.meta = SpyMeta(self.zookeeper.client())
        self.tasks = Supervisor("store")
        self.outcomes: dict[int, Outcome] = {}
        self.order: list[int] = []
        self.write_ids = 0
        self.store: FencedGroupStore

    async def start(self) -> None:
        await self.meta.start()
        await self.meta.multi([Create(znodes.CONSUMERS), Create(znodes.COORDINATOR_EPOCH, b"1")])
        await self.elect()

    async def elect(self) -> Stored:
        """A new coordinator of everything, under the epoch as it stands."""
        _, stat = await self.meta.get(znodes.COORDINATOR_EPOCH)
        stored = await self.read()
        self.store = FencedGroupStore(
            self.meta, SimClock(), Check(FENCE.path, stat.version), stored.known, self.tasks.start, self._report
        )
        self.tasks.start("store", self.store.run())
        self.meta.multis.clear()
        self.meta.running_max = 0
        return stored

    def _report(self, write_id: WriteId, outcome: Outcome) -> None:
        assert write_id not in self.outcomes, "reported twice"
        self.outcomes[write_id] = outcome
        self.order.append(write_id)

    def write(
        self,
        group_id: str = "g",
        offsets: dict[TopicPartition, Committed] | None = None,
        owners: dict[TopicPartition, Owner | None] | None = None,
        head: GroupHead | None = None,
    ) -> int:
        self.write_ids += 1
        self.store.submit(Write(WriteId(self.write_ids), group_id, offsets or {}, owners or {}, head))
        return self.write_ids

    def delete(self, group_id: str = "g") -> int:
        self.write_ids += 1
        self.store.submit(DeleteGroup(WriteId(self.write_ids), group_id))
        return self.write_ids

    async def drained(self) -> None:
        async with asyncio.timeout(60):
            await self.store.drained()

    async def read(self) -> Stored:
        return await read_groups(self.meta, lambda group_id: True, WALL_MS)

    async def group(self, group_id: str = "g") -> StoredGroup:
        return next(each for each in (await self.read()).groups if each.group_id == group_id)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    await bench.start()
    yield bench
    assert not bench.tasks.failures


def tp(partition: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, partition)


def head(generation: int = 1, **members: int) -> GroupHead:
    return GroupHead(
        generation, Phase.STABLE, {c: StoredMember(s, 2**62 + s) for c, s in members.items()}, "sticky", -1
    )


@requirement("A new coordinator reads its groups and their members")
@requirement("Committed offsets of a group are stored in ZooKeeper")
async def test_what_is_written_is_what_a_new_coordinator_reads(bench: Bench) -> None:
    offsets = {tp(n): Committed(n + 10, n, f"m{n}") for n in range(5)}
    owners: dict[TopicPartition, Owner | None] = {tp(0): Owner("c-0", "c", 1), tp(0, "u"): Owner("c-1", "c", 1)}
    bench.write("g", offsets, owners, head(3, c=6000))
    bench.write("g", {tp(1): Committed(99)}, {tp(0): None})
    bench.write("h", {tp(0): Committed(7)})
    await bench.drained()
    assert set(bench.outcomes.values()) == {Outcome.WRITTEN}
    found = await bench.group()
    assert found.head == head(3, c=6000)
    assert found.offsets == offsets | {tp(1): Committed(99)}
    assert found.owners == {tp(0, "u"): Owner("c-1", "c", 1)}
    headless = await bench.group("h")
    assert (headless.offsets, headless.head.members) == ({tp(0): Committed(7)}, {})
    assert headless.head.empty_since_ms == WALL_MS, "its retention begins now, not in 1970"


@requirement("Consumer ids are stored with their group and not as znodes")
async def test_members_are_stored_in_the_znode_of_their_group(bench: Bench) -> None:
    bench.write("g", {tp(0): Committed(1)}, {tp(0): Owner("c-0", "c", 3)}, head(3, c=6000, d=9000))
    await bench.drained()
    paths = {path for path in bench.zookeeper.dump() if path.startswith("/consumers/g")}
    below = {f"/consumers/g/{kind}{rest}" for kind in ("offsets", "owners") for rest in ("", "/t", "/t/0")}
    assert paths == {"/consumers/g"} | below, "no ids"
    node = bench.zookeeper.find("/consumers/g")
    assert node is not None
    stored = znodes.decode_head("g", node.data)
    assert {name: each.session_timeout_ms for name, each in stored.members.items()} == {"c": 6000, "d": 9000}


@requirement("Owners and generation are stored before any fetcher starts")
async def test_offsets_are_stored_before_owners_and_owners_before_the_head(bench: Bench) -> None:
    owners: dict[TopicPartition, Owner | None] = {tp(n): Owner("c-0", "c", 1) for n in range(700)}
    bench.write("g", {tp(n): Committed(n) for n in range(700)}, owners, head())
    await bench.drained()
    assert len(bench.meta.multis) > 2
    written = [op.path for ops in bench.meta.multis for op in ops if isinstance(op, Create | SetData)]
    kinds = [path.split("/")[3] for path in written if path.count("/") == 5]
    assert kinds == ["offsets"] * 700 + ["owners"] * 700
    last = bench.meta.multis[-1][-1]
    assert isinstance(last, SetData) and last.path == "/consumers/g" and last.data


async def test_find_10_coord_10_every_multi_checks_the_epoch_first_and_keeps_the_limits(bench: Bench) -> None:
    bench.write("g", {tp(n): Committed(n, metadata="x" * 4096) for n in range(1000)})
    bench.write("h", {tp(n): Committed(n) for n in range(1000)})
    await bench.drained()
    assert set(bench.outcomes.values()) == {Outcome.WRITTEN}
    assert len(bench.meta.multis) > 8
    for ops in bench.meta.multis:
        assert ops[0] == FENCE
        assert len(ops) <= 500
    assert len((await bench.group("g")).offsets) == len((await bench.group("h")).offsets) == 1000


async def test_small_writes_of_many_groups_share_multis_and_large_ones_run_side_by_side(bench: Bench) -> None:
    for n in range(50):
        bench.write(f"g{n}", {tp(0): Committed(n)})
    await bench.drained()
    assert len(bench.meta.multis) == 1
    for n in range(4):
        bench.write(f"g{n}", {tp(p): Committed(p) for p in range(1000)})
    await bench.drained()
    assert bench.meta.running_max >= 4


async def test_writes_of_one_group_keep_their_order(bench: Bench) -> None:
    for n in range(200):
        bench.write("g", {tp(0): Committed(n), tp(n): Committed(0)}, head=head(n))
        await SimClock().sleep(0.0003)
    bench.delete("g")
    last = bench.write("g", {tp(3): Committed(5)})
    await bench.drained()
    assert bench.order == sorted(bench.order) and bench.order[-1] == last
    assert (await bench.group()).offsets == {tp(3): Committed(5)}


@requirement("Every multi of a coordinator checks the coordinator epoch")
async def test_a_deposed_coordinator_writes_nothing(bench: Bench) -> None:
    bench.write("g", {tp(0): Committed(1)})
    await bench.drained()
    await bench.meta.twin.multi([SetData(FENCE.path, b"2")])
    before = bench.zookeeper.dump()
    fenced = [bench.write("g", {tp(0): Committed(2)}), bench.write("h", head=head()), bench.delete("g")]
    await bench.drained()
    fenced.append(bench.write("g", {tp(0): Committed(3)}))
    await bench.drained()
    assert {bench.outcomes[each] for each in fenced} == {Outcome.FENCED}
    assert bench.zookeeper.dump() == before


async def test_coord_10_after_the_end_of_the_session_nothing_is_written(bench: Bench) -> None:
    bench.write("g", {tp(0): Committed(1)})
    await bench.drained()
    bench.zookeeper.expire(bench.meta.session_id)
    await SimClock().sleep(0.001)
    fenced = [bench.write("g", {tp(0): Committed(2)}), bench.write("h", {tp(0): Committed(2)})]
    await bench.drained()
    assert {bench.outcomes[each] for each in fenced} == {Outcome.FENCED}
    assert (await bench.group()).offsets == {tp(0): Committed(1)}


async def test_an_unknown_outcome_is_repeated_until_it_is_known(bench: Bench) -> None:
    for applied in (True, False):
        bench.meta.unanswered = [applied, applied]
        bench.write("g", {tp(n): Committed(n) for n in range(600)}, {tp(0): Owner("c-0", "c", 1)}, head(1, c=6000))
        await bench.drained()
        bench.meta.unanswered = [applied]
        bench.write("g", {}, {tp(0): None})
        bench.meta.unanswered = [applied]
        bench.write("g", {tp(700): Committed(5)})
        await bench.drained()
        assert not bench.meta.unanswered
        found = await bench.group()
        assert len(found.offsets) == 601 and not found.owners and found.head == head(1, c=6000)
        bench.meta.unanswered = [applied]
        bench.delete("g")
        await bench.drained()
        assert bench.zookeeper.find("/consumers/g") is None
    assert set(bench.outcomes.values()) == {Outcome.WRITTEN}


@requirement("Committed offsets never move back and leave no gap")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(1, 8))])
async def test_no_stored_offset_falls_while_writes_are_repeated(bench: Bench, seed: int) -> None:
    """More groups than there may be multis under way, so that what is repeated finds others before it."""
    rand, groups = seeded(seed), [f"g{number}" for number in range(16)]
    seen: dict[str, int] = {}

    def watch(changes: Sequence[Change]) -> None:
        for path, node in dict(changes).items():
            if path.endswith("/offsets/t/0") and node is not None:
                offset = znodes.decode_offset(path, node.data).offset
                assert offset >= seen.get(path, 0), f"{path} fell from {seen[path]}"
                seen[path] = offset

    bench.zookeeper.on_commit = watch
    for turn in range(6):
        bench.meta.unanswered = [rand.random() < 0.8 for _ in range(rand.randrange(12))]
        for group in groups:
            more = {tp(n, "u"): Committed(turn) for n in range(rand.randrange(330))}
            for part in (1, 2):
                bench.write(group, {tp(0): Committed(10 * turn + part)} | more)
        await asyncio.sleep(rand.random() / 100)
    await bench.drained()
    assert set(bench.outcomes.values()) == {Outcome.WRITTEN}
    assert list(seen.values()) == [52] * len(groups)


async def test_what_somebody_else_has_put_into_a_group_goes_with_it(bench: Bench) -> None:
    bench.write("g", {tp(0): Committed(1)})
    await bench.drained()
    await bench.meta.twin.multi([Create("/consumers/g/ids"), Create("/consumers/g/ids/c1")])
    bench.delete("g")
    await bench.drained()
    assert bench.zookeeper.find("/consumers/g") is None


@requirement("An empty group expires after its retention")
async def test_deleting_what_is_not_there_is_done_at_once(bench: Bench) -> None:
    bench.delete("never")
    await bench.drained()
    assert set(bench.outcomes.values()) == {Outcome.WRITTEN}


async def test_a_head_that_no_multi_can_hold_is_refused_and_the_next_write_goes_on(bench: Bench) -> None:
    members = {f"consumer-{n}" + "x" * 200: 6000 for n in range(4000)}
    refused = bench.write("g", {tp(0): Committed(1)}, head=head(1, **members))
    written = bench.write("g", {tp(1): Committed(2)})
    await bench.drained()
    assert bench.outcomes == {refused: Outcome.REFUSED, written: Outcome.WRITTEN}
    assert (await bench.group()).offsets == {tp(0): Committed(1), tp(1): Committed(2)}


@requirement("A new coordinator serves once its groups and topics are read")
async def test_a_damaged_group_is_set_aside_and_the_others_are_read(bench: Bench) -> None:
    for group_id in ("good", "head", "emptied", "offset", "owner", "name"):
        bench.write(group_id, {tp(0): Committed(1)}, {tp(0): Owner("c-0", "c", 1)}, head())
    await bench.drained()
    await bench.meta.twin.multi(
        [
            SetData(znodes.group_path("head"), b"{}"),
            SetData(znodes.group_path("emptied"), b""),
            SetData(znodes.offset_path("offset", "t", 0), b"12"),
            SetData(znodes.owner_path("owner", "t", 0), b""),
            Create(f"{znodes.offsets_path('name')}/t/first", b""),
            Create(znodes.SHARDS),
        ]
    )
    stored = await bench.elect()
    assert [each.group_id for each in stored.groups] == ["good"]
    assert set(stored.damaged) == {"head", "emptied", "offset", "owner", "name"}
    assert stored.damaged["offset"].startswith("/consumers/offset/offsets/t/0")


async def test_a_new_coordinator_goes_on_with_what_it_has_read(bench: Bench) -> None:
    bench.write("g", {tp(0): Committed(1)}, {tp(0): Owner("c-0", "c", 1)}, head())
    await bench.drained()
    stored = await bench.elect()
    assert stored.known["g"] == {path for path in bench.zookeeper.dump() if path.startswith("/consumers/g")}
    bench.write("g", {tp(0): Committed(2), tp(0, "u"): Committed(3)}, {tp(0): None})
    await bench.drained()
    assert len(bench.meta.multis) == 1, "it had to look at what is there"
    assert (await bench.group()).offsets == {tp(0): Committed(2), tp(0, "u"): Committed(3)}
