"""A batch that has the producer id, the epoch and the sequences of a stored one, and other bytes: it is never a repetition."""

import pytest

from helpers.batches import batch, headers
from helpers.broker import BrokerBench
from helpers.cpu import calls_of
from helpers.logs import contents
from helpers.replication import FakeLeader, Node, World, broker_world, until
from helpers.requirements import requirement
from tidelog.errors import ErrorCode
from tidelog.storage.checkpoint import encode_lines
from tidelog.testing.disk import Crash, SimDisk
from tidelog.topic_config import TopicConfig
from tidelog.wire import messages as m
from tidelog.wire.batch import numbered

OWN, FOREIGN = (numbered(batch(value * 100), 7, 0, 1) for value in (b"own", b"foreign"))
FIRST = numbered(batch(b"first"), 7, 0, 0)
ALONE = TopicConfig(min_insync_replicas=1)
ZSTD = TopicConfig(min_insync_replicas=1, compression_type="zstd")


async def refused(bench: BrokerBench, records: bytes) -> None:
    end = bench.host.log.log_end_offset
    result = await bench.send(records)
    assert (result.error_code, result.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert result.error_message == (
        "base_sequence: 1 of producer 7 in epoch 0: another batch with these sequences is stored at 1"
    )
    assert bench.host.log.log_end_offset == end, "nothing is appended"


async def repeated(bench: BrokerBench, records: bytes, *, unverified: int = 0) -> None:
    end, before = bench.host.log.log_end_offset, unverified_of(bench)
    result = await bench.send(records)
    assert (result.error_code, result.base_offset) == (ErrorCode.NONE, 1)
    assert bench.host.log.log_end_offset == end
    assert unverified_of(bench) - before == unverified


def unverified_of(bench: BrokerBench) -> float:
    return bench.registry.get_sample_value("tidelog_unverified_repetitions_total") or 0.0


async def filled(config: TopicConfig) -> BrokerBench:
    """A leader with the first batch, and a stranger's in the place of the second."""
    bench = BrokerBench()
    bench.told(config=config)
    for records in (FIRST, FOREIGN):
        assert (await bench.send(records)).error_code is ErrorCode.NONE
    return bench


def restarted(disk: SimDisk, config: TopicConfig) -> BrokerBench:
    bench = BrokerBench(disk)
    bench.told(leader_epoch=4, config=config)
    return bench


@requirement("A producer batch that is sent again is stored once")
@pytest.mark.parametrize("config", [ALONE, ZSTD], ids=["as-sent", "compressed-anew"])
async def test_a_leader_refuses_another_batch(config: TopicConfig) -> None:
    bench = await filled(config)
    await refused(bench, OWN)
    await repeated(bench, FOREIGN)
    assert [h.crc == headers(FOREIGN)[0].crc for h in headers(contents(bench.host.log))[1:]] == [config is ALONE]


@requirement("A producer batch that is sent again is stored once")
@pytest.mark.parametrize("config", [ALONE, ZSTD], ids=["as-sent", "compressed-anew"])
async def test_the_next_leader_refuses_another_batch(config: TopicConfig) -> None:
    world: World
    first: Node
    second: Node
    async with broker_world() as (world, first, second):
        world.told(1, 3, config=config)
        assert (await first.send(FIRST, acks=1)).base_offset == 0
        await until(lambda: second.end == 1)
        assert (await first.send(FOREIGN, acks=1)).base_offset == 1
        await until(lambda: second.high_watermark == 2)
        world.told(2, 4, isr=(2,), only=(2,), config=config)
        await refused(second, OWN)
        await repeated(second, FOREIGN)


@requirement("A producer batch that is sent again is stored once")
@pytest.mark.parametrize("config", [ALONE, ZSTD], ids=["as-sent", "compressed-anew"])
async def test_a_restart_from_a_snapshot_refuses_another_batch(config: TopicConfig) -> None:
    bench = await filled(config)
    assert bench.logs.close({}, 1)
    again = restarted(bench.disk, config)
    await refused(again, OWN)
    await repeated(again, FOREIGN)


@requirement("A producer batch that is sent again is stored once")
async def test_a_recovered_log_refuses_another_batch() -> None:
    bench = await filled(ALONE)
    bench.disk.crash(Crash.PROCESS)
    again = restarted(bench.disk, ALONE)
    await refused(again, OWN)
    await repeated(again, FOREIGN)


@requirement("A producer batch that is sent again is stored once")
async def test_a_changed_batch_that_recovery_finds_is_not_told_apart() -> None:
    bench = await filled(ZSTD)
    bench.disk.crash(Crash.PROCESS)
    await repeated(restarted(bench.disk, ZSTD), OWN, unverified=1)


@requirement("A producer batch that is sent again is stored once")
async def test_a_copy_that_was_cut_knows_the_rest_still() -> None:
    bench = await filled(ALONE)
    assert (await bench.send(numbered(batch(b"last"), 7, 0, 2))).base_offset == 2
    bench.host.log.truncate_to(2)
    await refused(bench, OWN)


class TestRelease020:
    """Release 0.2.0 kept no CRCs, and did not mark what it had compressed anew."""

    @requirement("A producer batch that is sent again is stored once")
    async def test_its_snapshot_is_read(self) -> None:
        disk = (await self.stopped()).disk
        (name,) = [e.name for e in disk.list_dir("/data/events-0") if e.name.endswith(".snapshot")]
        old = disk.read(f"/data/events-0/{name}").decode().splitlines()
        assert old[2].count(" ") == 3, "0.2.0 passes over it: a fourth number"
        entries = " ".join(each.rpartition(",")[0] for each in old[3].split(" ")[3:])
        lines = [old[2].rpartition(" ")[0], f"{' '.join(old[3].split(' ')[:3])} {entries}"]
        self.put(disk, f"/data/events-0/{name}", encode_lines(lines))
        await repeated(restarted(disk, ALONE), OWN, unverified=1)

    @requirement("A producer batch that is sent again is stored once")
    @pytest.mark.parametrize("again", [False, True])
    async def test_a_killed_one_leaves_batches_that_are_not_told_apart(self, again: bool) -> None:
        bench = await filled(ALONE)
        bench.disk.crash(Crash.PROCESS)
        life = bench.disk.read("/data/incarnation").decode().splitlines()
        self.put(bench.disk, "/data/incarnation", encode_lines([line for line in life[2:-1] if "marked" not in line]))
        bench = restarted(bench.disk, ALONE)
        if again:
            bench.disk.crash(Crash.PROCESS)
            bench = restarted(bench.disk, ALONE)
        await repeated(bench, OWN, unverified=1)
        assert (await bench.send(numbered(batch(b"new"), 7, 0, 2))).base_offset == 2
        result = await bench.send(numbered(batch(b"other"), 7, 0, 2))
        assert result.error_code is ErrorCode.INVALID_RECORD, "what this release appends is known"

    async def test_what_it_has_left_is_not_told_apart_by_a_follower(self) -> None:
        disk = (await self.stopped()).disk
        life = disk.read("/data/incarnation").decode().splitlines()
        self.put(disk, "/data/incarnation", encode_lines([line for line in life[2:-1] if "marked" not in line]))
        bench = restarted(disk, ALONE)
        assert bench.host.log.sent_crcs(0) is None, "it may have changed them before it stored them"
        assert bench.host.log.sent_crcs(2) == {}
        assert bench.logs.close({}, 2)
        assert restarted(disk, ALONE).host.log.sent_crcs(0) == {}

    @requirement("A producer batch that is sent again is stored once")
    async def test_a_leader_of_it_sends_batches_that_are_not_told_apart(self) -> None:
        world = World((2,))
        await world.start()
        leader = FakeLeader(world)
        await leader.start()
        follower = world.nodes[2]
        follower.told(1, 3, isr=(1, 2), replicas=(1, 2), config=ALONE)
        await until(lambda: leader.requests)
        source = await filled(ALONE)
        await leader.send(records=contents(source.host.log), high_watermark=2)
        assert follower.end == 2
        follower.disk.crash(Crash.PROCESS)
        again = BrokerBench(follower.disk, broker_id=2)
        again.told(leader=2, leader_epoch=4, isr=(2,), replicas=(1, 2), config=ALONE)
        await repeated(again, OWN, unverified=1)

    async def stopped(self) -> BrokerBench:
        bench = await filled(ALONE)
        assert bench.logs.close({}, 1)
        return bench

    @staticmethod
    def put(disk: SimDisk, path: str, data: bytes) -> None:
        disk.remove(path)
        file = disk.open(path, create=True)
        file.append([data])
        file.close()


def test_knowing_what_was_sent_costs_few_calls() -> None:
    bench = BrokerBench()
    bench.told(config=ALONE)

    def produce(producer_id: int) -> int:
        parts = [numbered(batch(b"v"), producer_id, 0, n) if producer_id >= 0 else batch(b"v") for n in range(20)]
        requests = [
            m.ProduceRequest(
                client_id="",
                acks=1,
                timeout_ms=1000,
                partitions=(m.ProducePartition(topic="events", partition=0, leader_epoch=-1, records=records),),
            )
            for records in parts
        ]
        return min(calls_of(lambda each=each: bench.produce.submit(each, lambda _: None)) for each in requests)

    assert produce(7) - produce(-1) <= 10
