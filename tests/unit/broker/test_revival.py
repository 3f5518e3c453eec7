"""What a disk error took offline comes back by itself where that is safe, and stays for an operator where it is not."""

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from helpers.batches import batch, placed
from helpers.broker import TOPIC_ID, BrokerBench, member
from helpers.logs import contents
from helpers.requirements import requirement
from tidelog.broker.control_plane.port import Decision
from tidelog.broker.revival import NO_PAUSE, PAUSE_MAX_S, Step, next_step
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.replica import events as ev
from tidelog.replica.partition import Role
from tidelog.storage.log_context import LogConfig
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.recovery import Damage
from tidelog.storage.reserve import RESERVE_FILE
from tidelog.storage.trouble import Trouble
from tidelog.testing.clock import SimClock
from tidelog.testing.disk import Crash, SimDisk
from tidelog.topic_config import TopicConfig
from tidelog.wire import messages as m

ALONE = TopicConfig(min_insync_replicas=1)
EVENTS = TopicPartition("events", 0)
WANTED_BYTES = 1_000


def told(leader: int = 2, isr: tuple[int, ...] = (2, 3), offline: tuple[int, ...] = (1,)) -> m.PartitionState:
    return m.PartitionState(
        topic="events",
        topic_id=TOPIC_ID,
        partition=0,
        controller_epoch=1,
        leader=leader,
        leader_epoch=4,
        isr=tuple(member(i) for i in isr),
        partition_epoch=8,
        replicas=(1, 2, 3),
        offline_replicas=offline,
    )


@requirement("A last ISR member that lost power is not elected automatically")
@requirement("A flipped bit is never served or replicated")
@pytest.mark.parametrize(
    ("trouble", "state", "room", "step"),
    [
        (Trouble.NO_SPACE, None, 999, Step.WAIT),
        (Trouble.NO_SPACE, None, 1_000, Step.REOPEN),
        (Trouble.NO_SPACE, told(1, (1,)), 1_000, Step.REOPEN),
        (Trouble.IO, None, 0, Step.REOPEN),
        (Trouble.SYNC, None, 1_000, Step.WAIT),
        (Trouble.SYNC, told(), 0, Step.DISCARD),
        (Trouble.DAMAGE, told(), 0, Step.DISCARD),
        (Trouble.DAMAGE, told(offline=()), 0, Step.WAIT),
        (Trouble.DAMAGE, told(offline=(3,)), 0, Step.WAIT),
        (Trouble.DAMAGE, told(leader=-1), 0, Step.WAIT),
        (Trouble.DAMAGE, told(1, (1,)), 0, Step.WAIT),
        (Trouble.DAMAGE, told(2, (1, 2)), 0, Step.WAIT),
    ],
)
def test_only_a_copy_that_nobody_counts_is_thrown_away(
    trouble: Trouble, state: m.PartitionState | None, room: int, step: Step
) -> None:
    assert next_step(trouble, 1, state, room, WANTED_BYTES) is step


def test_pauses_grow_to_a_limit_and_are_forgotten() -> None:
    pause, now, seen = NO_PAUSE, 100.0, []
    for _ in range(9):
        pause = pause.longer(now)
        seen.append(pause.until - now)
    assert seen == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert not pause.forgotten(pause.until) and pause.forgotten(pause.until + PAUSE_MAX_S + 1)
    assert NO_PAUSE.forgotten(0.0)


@asynccontextmanager
async def lone_leader(reserve_bytes: int = 0) -> AsyncIterator[BrokerBench]:
    """A broker that leads events-0 alone and tries again what failed."""
    bench = BrokerBench(clock=SimClock(), config=LogConfig(reserve_bytes=reserve_bytes))
    bench.told(config=ALONE)
    bench.told(topic="other", config=ALONE)
    revivals = asyncio.create_task(bench.reviver.run(WANTED_BYTES))
    yield bench
    revivals.cancel()


@pytest.fixture
async def bench() -> AsyncIterator[BrokerBench]:
    async with lone_leader() as leader:
        yield leader


def tell(bench: BrokerBench, state: m.PartitionState, config: TopicConfig = ALONE) -> ErrorCode:
    (result,) = bench.manager.become([Decision(state, config)], {i: member(i).broker_epoch for i in (1, 2, 3)})
    return result.error_code


@requirement("A full or failed disk fails over only the partitions on it")
@requirement("A full disk moves leadership and heals when space returns")
async def test_a_full_disk_refuses_retriably_appends_nothing_and_recovers_by_itself(bench: BrokerBench) -> None:
    for _ in range(3):
        assert (await bench.send(batch(b"kept"))).error_code is ErrorCode.NONE
    held = contents(bench.host.log)
    size = bench.host.log.size_bytes
    bench.disk.capacity_bytes = bench.disk.used_bytes + 20
    for _ in range(3):
        result = await bench.send(batch(b"x" * 100))
        assert result.error_code is ErrorCode.KAFKA_STORAGE_ERROR
        assert TidelogError(result.error_message, result.error_code).retriable
    (segment,) = bench.host.log.segments
    assert len(bench.disk.read(segment.path)) == size, "cut back to the last whole batch before the answer"
    assert [f.topic for f in bench.manager.failed()] == ["events"]
    await asyncio.sleep(60.0)
    assert bench.manager.failed(), "no space yet"
    bench.disk.mend()
    changed = asyncio.Event()
    bench.manager.on_failed = changed.set
    await asyncio.wait_for(changed.wait(), 120.0)
    assert bench.manager.failed() == ()
    # The controller hears of it and begins another epoch with the same leader, since it knew of nobody else.
    assert bench.told(leader_epoch=4, config=ALONE) is ErrorCode.NONE
    assert (await bench.send(batch(b"after"))).error_code is ErrorCode.NONE
    assert contents(bench.host.log).startswith(held) and bench.host.log.log_end_offset == 4
    assert bench.host.replica.high_watermark == 4


@requirement("A full or failed disk fails over only the partitions on it")
@requirement("A disk error takes one partition of one broker offline")
async def test_an_error_of_one_append_is_tried_again_after_a_pause(bench: BrokerBench) -> None:
    await bench.send(batch(b"a"))
    bench.disk.fail("append", errno.EIO, path="events-0", kept_bytes=7)
    assert (await bench.send(batch(b"b"))).error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (await bench.send(batch(b"c"))).error_code is ErrorCode.KAFKA_STORAGE_ERROR, "MUT-23: fenced until reopened"
    assert (await bench.send(batch(b"d"), topic="other")).error_code is ErrorCode.NONE
    await asyncio.sleep(5.0)
    assert bench.manager.failed() == ()
    assert bench.told(leader_epoch=4, config=ALONE) is ErrorCode.NONE
    assert (await bench.send(batch(b"e"))).base_offset == 1


@requirement("A leader whose disk failed leads again only in a new epoch")
async def test_a_copy_that_came_back_does_not_lead_in_the_epoch_it_led(bench: BrokerBench) -> None:
    """A late copy of an order: its ISR may lack a member that this leader has proposed since."""
    await bench.send(batch(b"a"))
    bench.disk.fail("append", errno.EIO, path="events-0", kept_bytes=7)
    await bench.send(batch(b"b"))
    await asyncio.sleep(5.0)
    assert bench.manager.failed() == ()
    for _ in range(2):
        assert bench.told(config=ALONE) is ErrorCode.KAFKA_STORAGE_ERROR
        assert (await bench.send(batch(b"c"))).error_code is not ErrorCode.NONE
    assert bench.told(leader_epoch=4, config=ALONE) is ErrorCode.NONE
    assert (await bench.send(batch(b"d"))).base_offset == 1
    other = bytes(reversed(TOPIC_ID))
    assert bench.told(leader_epoch=0, topic_id=other, config=ALONE) is ErrorCode.NONE, "another topic of the name"


@requirement("A disk error takes one partition of one broker offline")
async def test_a_disk_that_goes_on_failing_is_asked_less_and_less(bench: BrokerBench) -> None:
    opened: list[float] = []
    loop = asyncio.get_running_loop()
    bench.disk.fail("append", errno.EIO, path="events-0")
    await bench.send(batch(b"a"))
    bench.disk.fail("list_dir", errno.EIO, path="events-0", times=1_000_000)
    reopen = bench.logs.begin_reopen

    def counted(tp: TopicPartition, **options: bool) -> object:
        opened.append(loop.time())
        return reopen(tp, **options)

    bench.logs.begin_reopen = counted  # type: ignore[method-assign, assignment]
    await asyncio.sleep(600.0)
    assert 10 <= len(opened) <= 20
    assert bench.manager.failed() and bench.host.offline is not None
    bench.disk.mend()
    await asyncio.sleep(61.0)
    assert bench.manager.failed() == ()


async def fenced(bench: BrokerBench, *topics: str) -> None:
    """Three records in each, and a fourth that the disk refused."""
    for topic in topics:
        bench.told(topic=topic, config=ALONE)
        for value in (b"a", b"b", b"c"):
            await bench.send(batch(value), topic=topic)
        bench.disk.fail("append", errno.EIO, path=topic)
        assert (await bench.send(batch(b"d"), topic=topic)).error_code is ErrorCode.KAFKA_STORAGE_ERROR


async def test_logs_are_opened_again_beside_the_event_loop(bench: BrokerBench) -> None:
    topics = ("t1", "t2", "t3")
    await fenced(bench, *topics)
    for op in ("pread", "read", "list_dir", "create"):
        bench.disk.slow(op, 1.0, path="/data/t")
    working: list[int] = []
    for _ in range(60):
        await asyncio.sleep(0.5)
        working.append(len(bench.manager.failed()))
        assert (await bench.send(batch(b"e"), topic="other")).error_code is ErrorCode.NONE
    assert {3, 2, 1, 0} == set(working), "one after the other"
    assert bench.disk.stalled_s == 0.0
    for topic in topics:
        bench.told(topic=topic, leader_epoch=4, config=ALONE)
        assert (await bench.send(batch(b"d"), topic=topic)).base_offset == 3


async def test_a_log_that_is_being_opened_again_is_deleted_later(bench: BrokerBench) -> None:
    """A thread is at work in its folder, which may not become that of another log."""
    await fenced(bench, "t1")
    bench.disk.slow("list_dir", 5.0, path="t1")
    await asyncio.sleep(3.0)
    tp = TopicPartition("t1", 0)
    assert bench.manager.stop(tp, TOPIC_ID, 9, delete=True) is ErrorCode.KAFKA_STORAGE_ERROR
    await asyncio.sleep(10.0)
    assert bench.manager.stop(tp, TOPIC_ID, 9, delete=True) is ErrorCode.NONE
    assert bench.disk.kind("/data/t1-0") is None and not bench.logs._reopening
    bench.disk.mend()
    assert bench.told(topic="t1", leader_epoch=10, config=ALONE) is ErrorCode.NONE
    assert (await bench.send(batch(b"new"), topic="t1")).base_offset == 0


async def test_nothing_is_thrown_away_on_an_order_of_before(bench: BrokerBench) -> None:
    """While the log is read, the controller comes to count this copy."""
    await rotten(bench)
    path = bench.host.log.segments[0].path
    held = bench.disk.read(path)
    tell(bench, told())
    bench.disk.slow("list_dir", 5.0, path="events")
    await asyncio.sleep(3.0)
    assert bench.logs._reopening
    tell(bench, told(2, (1, 2)))
    await asyncio.sleep(60.0)
    assert bench.host.offline is not None and bench.disk.read(path) == held and not bench.logs._reopening
    bench.disk.mend()
    tell(bench, told())
    await asyncio.sleep(70.0)
    assert bench.host.offline is None and bench.host.log.log_end_offset == 1


async def test_free_space_that_is_not_known_ends_no_revivals(bench: BrokerBench) -> None:
    await bench.send(batch(b"a"))
    bench.disk.capacity_bytes = bench.disk.used_bytes
    assert (await bench.send(batch(b"b"))).error_code is ErrorCode.KAFKA_STORAGE_ERROR
    bench.disk.mend()
    bench.disk.fail("free_bytes", errno.EIO, times=2)
    await asyncio.sleep(30.0)
    assert bench.manager.failed() == () and not bench.disk.failing


async def test_a_log_that_comes_back_shorter_than_it_was_is_damaged(bench: BrokerBench) -> None:
    """It may be in an in-sync set, and go on leading in the epoch in which it had appended more."""

    for _ in range(4):
        await bench.send(batch(b"a"))
    path = bench.host.log.segments[0].path
    bench.disk.fail("append", errno.EIO, path="events-0")
    await bench.send(batch(b"b"))
    bench.disk.overwrite(path, bench.disk.read(path)[: -len(batch(b"a"))])
    await asyncio.sleep(30.0)
    assert [f.topic for f in bench.manager.failed()] == ["events"]
    assert bench.logs.logs[EVENTS].trouble is Trouble.DAMAGE
    assert "records up to offset 4 had been" in str(bench.logs.logs[EVENTS].failure)
    assert bench.logs.intact_since is None


@requirement("A flipped bit is never served or replicated")
@pytest.mark.parametrize("harm", ["rot", "failed sync"])
async def test_what_is_lost_is_fetched_again_when_the_controller_knows(bench: BrokerBench, harm: str) -> None:
    bench.told(isr=(1, 2, 3), replicas=(1, 2, 3), config=replace(ALONE, flush="sync"), leader_epoch=3)
    for value in (b"a", b"b", b"c"):
        await bench.send(batch(value), acks=1)
    log = bench.host.log
    if harm == "rot":
        bench.disk.flip_bit(log.segments[0].path, len(batch(b"a")) + 65)
        log._tail.clear()
        await bench.get(0, partition_max_bytes=1)
        bench.host.replica.high_watermark = 3
        assert (await bench.get(1)).error_code is ErrorCode.KAFKA_STORAGE_ERROR
    else:
        bench.disk.fail("sync", errno.EIO, path="events-0")
        await bench.send(batch(b"d"), acks=1)
    assert bench.host.offline is not None
    await asyncio.sleep(30.0)
    # Told without the flag, or as a member, or without a leader: a copy that somebody counts stays as it is.
    for state in (told(offline=()), told(2, (1, 2)), told(leader=-1)):
        assert tell(bench, state) is ErrorCode.KAFKA_STORAGE_ERROR
        await asyncio.sleep(70.0)
        assert bench.manager.failed()
    assert tell(bench, told()) is ErrorCode.KAFKA_STORAGE_ERROR
    await asyncio.sleep(70.0)
    assert bench.host.offline is None
    assert bench.host.replica.role is Role.FOLLOWER and bench.fetchers.following[EVENTS] == 2
    assert bench.host.log.log_end_offset == (1 if harm == "rot" else 3)
    assert bench.host.log.log_end_offset == bench.host.log.recovery_point or harm == "rot"
    assert (
        bench.said(m.LogTruncated)
        == {
            "rot": ["events-0: truncates its log from 3 to 1 (it is damaged from there on)"],
            "failed sync": ["events-0: truncates its log from 4 to 3 (a sync failed, and what follows may be lost)"],
        }[harm]
    )


@requirement("A flipped bit is never served or replicated")
async def test_a_segment_that_stays_unreadable_is_fetched_again(bench: BrokerBench) -> None:
    bench.told(isr=(1, 2, 3), replicas=(1, 2, 3), config=ALONE)
    await bench.send(batch(b"a"), acks=1)
    path = bench.host.log.segments[0].path
    bench.disk.fail("pread", errno.EIO, path=path, times=1_000)
    bench.host.condemn(Damage(path, 0, 0, "it cannot be read"))
    tell(bench, told())
    await asyncio.sleep(5.0)
    assert bench.host.offline is None and bench.host.log.log_end_offset == 0


@requirement("A flipped bit is never served or replicated")
async def test_a_copy_that_no_attempt_can_read_is_fetched_again(bench: BrokerBench) -> None:
    bench.told(isr=(1, 2, 3), replicas=(1, 2, 3), config=ALONE)
    await bench.send(batch(b"a"), acks=1)
    bench.disk.fail("pread", errno.EIO, path=bench.host.log.segments[0].path, times=1_000)
    bench.host.log._tail.clear()
    bench.host.replica.high_watermark = 1
    assert (await bench.get(0)).error_code is ErrorCode.KAFKA_STORAGE_ERROR
    await asyncio.sleep(30.0)
    assert bench.host.offline is not None, "an in-sync copy stays as it is"
    tell(bench, told())
    await asyncio.sleep(70.0)
    assert bench.host.offline is None and bench.host.log.log_end_offset == 0


@requirement("A flipped bit is never served or replicated")
async def test_a_log_that_no_start_can_read_is_fetched_again() -> None:
    async with lone_leader() as before:
        await before.send(batch(b"a"), acks=1)
        before.logs.checkpoint(before.manager.high_watermarks())
    before.disk.crash(Crash.PROCESS)
    before.disk.fail("pread", errno.EIO, path=before.host.log.segments[0].path, times=1_000_000)
    bench = BrokerBench(before.disk, clock=SimClock())
    assert EVENTS in bench.logs.failed
    revivals = asyncio.create_task(bench.reviver.run(WANTED_BYTES))
    assert tell(bench, told(isr=(1, 2), offline=())) is ErrorCode.KAFKA_STORAGE_ERROR
    await asyncio.sleep(30.0)
    assert EVENTS in bench.logs.failed, "a copy that counts stays as it is"
    assert tell(bench, told()) is ErrorCode.KAFKA_STORAGE_ERROR
    await asyncio.sleep(70.0)
    assert bench.host.offline is None and bench.host.log.log_end_offset == 0
    assert names(bench.manager.failed()) == ["events"], "it holds nothing of what its leader has committed"
    answered(bench, b"a", high_watermark=1)
    await asyncio.sleep(5.0)
    assert names(bench.manager.failed()) == []
    revivals.cancel()


async def test_a_log_that_cannot_be_listed_counts_as_failed() -> None:
    """The log is to be thrown away, and cannot be; the controller must not believe that this copy works."""
    disk, folder = SimDisk(), "/data/events-0"
    BrokerBench(disk, clock=SimClock()).told()
    disk.crash(Crash.PROCESS)
    disk.fail("list_dir", errno.EIO, path=folder, times=1_000_000)
    bench = BrokerBench(disk, clock=SimClock())
    revivals = asyncio.create_task(bench.reviver.run(WANTED_BYTES))
    assert tell(bench, told()) is ErrorCode.KAFKA_STORAGE_ERROR
    for _ in range(70):
        await asyncio.sleep(1.0)
        assert names(bench.manager.failed()) == ["events"]
    revivals.cancel()


async def rotten(bench: BrokerBench) -> None:
    """Three records, of which the second rots and takes the copy offline."""
    bench.told(isr=(1, 2, 3), replicas=(1, 2, 3), config=ALONE)
    for value in (b"a", b"b", b"c"):
        await bench.send(batch(value), acks=1)
    bench.disk.flip_bit(bench.host.log.segments[0].path, len(batch(b"a")) + 65)
    bench.host.log._tail.clear()
    bench.host.replica.high_watermark = 3
    assert (await bench.get(1)).error_code is ErrorCode.KAFKA_STORAGE_ERROR


async def cut(bench: BrokerBench) -> None:
    """The controller knows, and the copy is cut to the first record."""
    await rotten(bench)
    tell(bench, told())
    await asyncio.sleep(5.0)
    assert bench.host.offline is None and bench.host.log.log_end_offset == 1


def answered(bench: BrokerBench, *values: bytes, high_watermark: int) -> None:
    """As the fetcher does when the leader has answered this follower's position."""
    for value in values:
        bench.host.append_chunk(placed(batch(value), bench.host.log.log_end_offset, 3))
    bench.host.leader_high_watermark = high_watermark


async def made_whole(bench: BrokerBench) -> None:
    """Fetches the two records that were cut; then the copy no longer counts as failed."""
    answered(bench, b"b", b"c", high_watermark=3)
    await asyncio.sleep(1.5)
    assert bench.manager.failed() == ()


def rot_again(bench: BrokerBench) -> None:
    """The second record rots, and a scrub finds it."""
    path, position = bench.host.log.segments[0].path, len(batch(b"a"))
    bench.disk.flip_bit(path, position + 65)
    bench.host.condemn(Damage(path, position, 1, "it rots again"))
    assert bench.host.offline is not None


def names(failed: tuple[m.PartitionResult, ...]) -> list[str]:
    assert {each.error_code for each in failed} <= {ErrorCode.KAFKA_STORAGE_ERROR}
    return [each.topic for each in failed]


@requirement("A flipped bit is never served or replicated")
async def test_what_was_cut_counts_as_failed_until_it_holds_what_its_leader_has_committed(
    bench: BrokerBench,
) -> None:
    """An expansion asked for before the cut may be judged after it, by a controller that has just been elected: no
    controller may believe in between that this copy works (reliability 3.6)."""

    changed: list[list[str]] = []
    bench.manager.on_failed = lambda: changed.append(names(bench.manager.failed()))
    await cut(bench)
    await asyncio.sleep(5.0)
    assert names(bench.manager.failed()) == ["events"], "its leader has not answered yet"
    answered(bench, b"b", high_watermark=3)
    await asyncio.sleep(5.0)
    assert names(bench.manager.failed()) == ["events"]
    # What it is told meanwhile it does, and it goes on counting as failed.
    assert tell(bench, replace(told(3, (2, 3)), leader_epoch=5)) is ErrorCode.NONE
    assert bench.fetchers.following[EVENTS] == 3
    assert set(map(tuple, changed)) == {("events",)}
    answered(bench, b"c", high_watermark=3)
    await asyncio.sleep(1.5)
    assert bench.manager.failed() == () and changed[-1] == []


@requirement("A flipped bit is never served or replicated")
async def test_a_copy_that_fails_while_it_is_rebuilt_goes_on_counting_as_failed(bench: BrokerBench) -> None:
    await cut(bench)
    assert tell(bench, replace(told(3, (2, 3)), leader_epoch=5)) is ErrorCode.NONE
    bench.disk.fail("append", errno.EIO, path="events-0")
    with pytest.raises(TidelogError):
        answered(bench, b"b", high_watermark=3)
    assert bench.host.offline is not None
    await asyncio.sleep(70.0)
    assert bench.host.offline is None and bench.fetchers.following[EVENTS] == 3, "no order had to come again"
    assert names(bench.manager.failed()) == ["events"]
    await made_whole(bench)


@requirement("A flipped bit is never served or replicated")
async def test_a_copy_that_rots_again_while_it_is_rebuilt_is_cut_again(bench: BrokerBench) -> None:
    """It counts as failed already, so the controller sends no new orders."""
    await cut(bench)
    assert tell(bench, replace(told(3, (2, 3)), leader_epoch=5)) is ErrorCode.NONE
    answered(bench, b"b", high_watermark=3)
    rot_again(bench)
    await asyncio.sleep(70.0)
    assert bench.host.offline is None and bench.fetchers.following[EVENTS] == 3
    assert bench.host.log.log_end_offset == 1
    assert names(bench.manager.failed()) == ["events"]
    await made_whole(bench)


@requirement("A flipped bit is never served or replicated")
async def test_a_copy_that_rots_after_it_was_rebuilt_waits_for_orders(bench: BrokerBench) -> None:
    """Once it holds everything again, it may be in the ISR: its earlier orders no longer hold."""
    await cut(bench)
    await made_whole(bench)
    rot_again(bench)
    await asyncio.sleep(70.0)
    assert bench.host.offline is not None
    tell(bench, told())
    await asyncio.sleep(70.0)
    assert bench.host.offline is None and bench.host.log.log_end_offset == 1


async def test_a_cut_that_a_full_disk_refuses_is_set_aside_later(bench: BrokerBench) -> None:
    for value in (b"a", b"b", b"c"):
        await bench.send(batch(value))
    held = contents(bench.host.log)
    bench.logs.checkpoint(bench.manager.high_watermarks())
    assert tell(bench, told(isr=(2,), offline=())) is ErrorCode.NONE
    diverges = ev.ChunkArrived(4, 3, diverging_epoch=3, diverging_end=1, own_epoch=3, own_end=3)
    bench.disk.capacity_bytes = bench.disk.used_bytes + 20
    with pytest.raises(TidelogError):
        bench.host.step(diverges)
    assert bench.host.offline is not None and not bench.manager.strays
    bench.disk.mend()
    bench.logs.checkpoint(bench.manager.high_watermarks())
    await asyncio.sleep(120.0)
    assert tell(bench, told(isr=(2,), offline=())) is ErrorCode.NONE
    assert contents(bench.host.log) == held
    bench.host.step(diverges)
    (stray,) = bench.manager.strays
    assert contents(bench.host.log) + bench.disk.read(f"{stray.folder}/{1:020d}.log") == held


@requirement("A flipped bit is never served or replicated")
async def test_an_unclean_leader_has_nothing_to_rebuild(bench: BrokerBench) -> None:
    await cut(bench)
    assert tell(bench, replace(told(1, (1,), ()), leader_epoch=5, recovering=True)) is ErrorCode.NONE
    assert bench.manager.failed() == () and bench.host.is_leader


@requirement("A flipped bit is never served or replicated")
async def test_a_topic_that_was_made_again_is_not_rebuilt(bench: BrokerBench) -> None:
    await cut(bench)
    assert bench.manager.stop(EVENTS, TOPIC_ID, -2, delete=True) is ErrorCode.NONE
    assert tell(bench, told()) is ErrorCode.NONE, "it is made again, empty"
    assert bench.fetchers.following[EVENTS] == 2 and bench.manager.failed() == ()


async def test_a_partition_that_could_not_be_made_is_listed_and_made_later(bench: BrokerBench) -> None:
    bench.disk.fail("make_dir", errno.ENOSPC, path="late-0")
    assert bench.told(topic="late", config=ALONE) is ErrorCode.KAFKA_STORAGE_ERROR
    assert [(f.topic, f.topic_id) for f in bench.manager.failed()] == [("late", TOPIC_ID)]
    await asyncio.sleep(5.0)
    assert bench.manager.failed() == ()
    assert bench.told(topic="late", config=ALONE) is ErrorCode.NONE


@requirement("A disk error takes one partition of one broker offline")
async def test_a_folder_that_cannot_be_listed_ends_no_revivals(bench: BrokerBench) -> None:
    """Their task is supervised: what it raises ends the broker."""
    bench.disk.fail("create", errno.EIO, path="late-0")
    assert bench.told(topic="late", config=ALONE) is ErrorCode.KAFKA_STORAGE_ERROR
    bench.disk.fail("list_dir", errno.EMFILE, path="late-0")
    await asyncio.sleep(1.5)
    assert bench.manager.failed(), "one try has failed"
    await asyncio.sleep(5.0)
    assert bench.manager.failed() == ()


@requirement("A disk error takes one partition of one broker offline")
async def test_a_rebuilt_copy_that_cannot_be_cut_ends_no_revivals(
    bench: BrokerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compacted copy is cut to its start before it is fetched again."""
    cuts: list[int] = []

    def truncate_to(self: PartitionLog, offset: int, committed: int) -> int:
        cuts.append(offset)
        if len(cuts) == 1:
            self.failed("truncate", OSError(errno.EIO, "planted"))
        return original(self, offset, committed)

    original = PartitionLog.truncate_to
    monkeypatch.setattr(PartitionLog, "truncate_to", truncate_to)
    await rotten(bench)
    tell(bench, told(), replace(ALONE, cleanup_policy="compact"))
    await asyncio.sleep(3.0)
    assert cuts == [0] and bench.manager.failed(), "the first try has failed"
    await asyncio.sleep(5.0)
    assert cuts == [0, 0] and bench.host.offline is None and bench.host.log.log_end_offset == 0


@requirement("A full disk moves leadership and heals when space returns")
async def test_the_epoch_journal_of_a_full_disk_is_written_on_the_reserve() -> None:
    async with lone_leader(reserve_bytes=4096) as bench:
        reserve = f"/data/{RESERVE_FILE}"
        assert len(bench.disk.read(reserve)) == 4096
        bench.disk.capacity_bytes = bench.disk.used_bytes
        assert bench.told(leader_epoch=9, config=ALONE) is ErrorCode.NONE
        assert bench.disk.kind(reserve) is None, "it has been used"
        bench.logs.checkpoint(bench.manager.high_watermarks())
        bench.disk.mend()
        await asyncio.sleep(2.0)
        assert len(bench.disk.read(reserve)) == 4096, "and is set aside again"

    bench.disk.crash(Crash.PROCESS)
    assert BrokerBench(bench.disk).logs.logs[EVENTS].latest_epoch == 9


@requirement("A disk error takes one partition of one broker offline")
async def test_a_journal_that_cannot_be_written_takes_the_new_leaders_offline_and_nobody_else() -> None:
    async with lone_leader() as bench:
        bench.disk.fail("append", errno.EIO, path="leader-epoch-journal", times=1_000_000)
        assert bench.told(leader_epoch=9, config=ALONE) is ErrorCode.KAFKA_STORAGE_ERROR
        assert [f.topic for f in bench.manager.failed()] == ["events"]
        assert (await bench.send(batch(b"x"), topic="other")).error_code is ErrorCode.NONE
        bench.disk.mend()
        await asyncio.sleep(5.0)
        assert bench.manager.failed() == ()
        assert bench.told(leader_epoch=10, config=ALONE) is ErrorCode.NONE

    bench.disk.crash(Crash.PROCESS)
    assert BrokerBench(bench.disk).logs.logs[EVENTS].latest_epoch == 10


def test_kafka_13773_a_full_disk_leaves_no_clean_stop_behind_unless_all_was_written() -> None:
    def stopped(reserve_bytes: int) -> bool:
        bench = BrokerBench(config=LogConfig(reserve_bytes=reserve_bytes))
        bench.told(config=ALONE)
        bench.disk.capacity_bytes = bench.disk.used_bytes
        return bench.logs.close({EVENTS: 0}, 7)

    assert not stopped(0)
    assert stopped(4096), "the reserve is for this too"
