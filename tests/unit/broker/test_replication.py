"""Replication between brokers: what crosses a ReplicaFetch stream, and what both ends make of it."""

import asyncio

import pytest

from helpers.batches import batch, headers, offsets, sized_batch
from helpers.broker import TOPIC_ID, member
from helpers.replication import CHUNK_BYTES, FLUSH_S, FakeFollower, Node, World, broker_world, until
from helpers.requirements import requirement
from tidelog.broker.leader_fetcher import RETRY_S
from tidelog.errors import ErrorCode, TransportError
from tidelog.replica import events as ev
from tidelog.replica.isr import Member
from tidelog.topic_config import TopicConfig
from tidelog.wire import messages as m

KEEPALIVE_S = 4.0
OTHER_ID = b"\xbb" * 16


def epochs(node: Node) -> list[tuple[int, int]]:
    """The leader epoch history: (epoch, start)."""
    return [(int(epoch), int(start)) for epoch, start in node.host.log.epochs.entries]


# -- the stream ------------------------------------------------------------------------------------------------------


@requirement("A broker ends its old fetch before it changes its role")
@requirement("Followers copy the log of the leader over one stream in order")
async def test_what_the_leader_appends_is_what_the_follower_has_byte_for_byte() -> None:
    async with broker_world(1, 2, 3) as (world, one, two, three):
        world.told(1, 3)
        for codec in range(5):
            one.append(batch(b"a" * 100, b"b" * codec, codec=codec))
        one.append(batch(b"c") + batch(b"d", b"e"))
        await until(lambda: two.end == three.end == 13)
        assert two.everything() == three.everything() == one.everything()
        assert epochs(two) == epochs(one) == [(3, 0)]
        await until(lambda: two.high_watermark == three.high_watermark == 13)


@requirement("The next fetch position of a follower is its acknowledgement")
async def test_one_chunk_is_unacknowledged_and_what_comes_meanwhile_is_the_next_one() -> None:
    async with broker_world() as (world, one, two):
        world.told(1, 3)
        await until(lambda: one.host.sinks)
        world.network.cut("broker-2", "broker-1")  # acknowledgements wait, chunks do not
        one.append(batch(b"first"))
        await until(lambda: two.end == 1)
        for _ in range(100):
            one.append(sized_batch(16 << 10))
        await asyncio.sleep(0.5)
        sent = len([c for c in one.chunks if any(p.records for p in c.partitions)])
        assert (sent, two.end) == (1, 1)
        world.network.heal("broker-2", "broker-1")
        await until(lambda: two.end == 101)
        with_records = [c for c in one.chunks if any(p.records for p in c.partitions)]
        # 1.6 MB in as few chunks as their limit allows, filled up to the last whole batch.
        assert [len(offsets(c.partitions[0].records)) for c in with_records] == [1, 64, 36]
        assert all(tap.unacked_max == 1 for tap in one.taps)


async def test_chunks_of_all_partitions_together_stay_within_the_limit() -> None:
    async with broker_world() as (world, one, two):
        topics = [f"t{i}" for i in range(5)]
        world.told(1, 3, topics=topics)
        await until(lambda: one.taps)
        for topic in topics:
            for _ in range(30):
                one.append(sized_batch(16 << 10), topic)
        await until(lambda: all(two.part(t).log.log_end_offset == 30 for t in topics))
        sizes = [sum(len(p.records) for p in c.partitions) for c in one.chunks]
        assert max(sizes) <= CHUNK_BYTES
        assert max(sizes) > CHUNK_BYTES - (16 << 10)
        assert max(len(c.partitions) for c in one.chunks) > 1


async def test_a_busy_partition_does_not_keep_the_others_waiting() -> None:
    async with broker_world() as (world, one, two):
        world.told(1, 3, topics=("busy", "idle"))
        await until(lambda: one.taps)
        for _ in range(40):
            one.append(sized_batch(256 << 10), "busy")
        await until(lambda: two.part("busy").log.log_end_offset >= 4)
        one.append(topic="idle")
        sent_before = len(one.chunks)
        await until(lambda: two.part("idle").log.log_end_offset == 1)
        assert two.part("busy").log.log_end_offset < 40
        # The chunk that was under way, and the one after it.
        assert len(one.chunks) - sent_before <= 2


async def test_a_batch_larger_than_a_chunk_goes_alone() -> None:
    async with broker_world() as (world, one, two):
        config = TopicConfig(max_message_bytes=8 << 20)
        world.told(1, 3, topics=("small", "large"), config=config)
        await until(lambda: one.taps)
        one.append(batch(b"x"), "small")
        one.append(sized_batch(3 << 20), "large")
        one.append(sized_batch(3 << 20), "large")
        one.append(batch(b"y"), "small")
        await until(lambda: two.part("large").log.log_end_offset == 2)
        await until(lambda: two.part("small").log.log_end_offset == 2)
        assert two.everything("large") == one.everything("large")
        large = [c for c in one.chunks if sum(len(p.records) for p in c.partitions) > CHUNK_BYTES]
        assert [[len(p.records) for p in c.partitions if p.records] for c in large] == [[3 << 20], [3 << 20]]


@requirement("A fetch offset tells the leader how far its follower is")
async def test_a_follower_gets_what_lies_behind_its_offset() -> None:
    async with broker_world() as (world, one, two):
        two.process.kill()
        one.lay((2, 5), by=1)
        world.told(1, 3, only=[1])
        follower = FakeFollower(world)
        await follower.state(3, last_epoch=2)
        (part,) = (await follower.read()).partitions
        assert (part.offset, offsets(part.records), part.high_watermark) == (3, [3, 4], 3)


# -- the high watermark ----------------------------------------------------------------------------------------------


@requirement("The high watermark rides on what followers fetch")
async def test_an_idle_follower_learns_the_last_high_watermark() -> None:
    async with broker_world() as (world, one, two):
        world.told(1, 3)
        one.append()
        await until(lambda: one.high_watermark == 1)
        assert two.high_watermark == 0
        await until(lambda: two.high_watermark == 1, limit_s=3 * FLUSH_S)
        chunks = len(one.chunks)
        await asyncio.sleep(10 * FLUSH_S)
        assert len(one.chunks) == chunks, "an idle stream is silent"


@requirement("A replica fetch returns messages and the high watermark")
@requirement("The high watermark rides on what followers fetch")
async def test_a_chunk_has_the_records_and_the_high_watermark() -> None:
    async with broker_world() as (world, one, two):
        two.process.kill()
        one.lay((2, 5), by=1)
        world.told(1, 3, only=[1])
        follower = FakeFollower(world)
        await follower.state(5, last_epoch=2)
        await until(lambda: one.high_watermark == 5)
        one.append()
        one.append()
        chunk = await follower.read()
        while not any(p.records for p in chunk.partitions):
            await follower.write(chunk.chunk)
            chunk = await follower.read()
        assert [p.partition for p in chunk.partitions] == [0], "one chunk for it"
        part = chunk.partitions[0]
        assert offsets(part.records) == [5, 6]
        assert part.high_watermark == 5, "the first offset that is not committed"


async def test_live_4_a_follower_that_has_everything_already_learns_the_high_watermark() -> None:
    """Its first position is what commits the last records, and no append follows."""

    async with broker_world() as (world, one, two):
        one.lay((2, 5), by=1)
        two.lay((2, 5), by=1)
        world.told(1, 3)
        await until(lambda: one.high_watermark == 5)
        await until(lambda: two.high_watermark == 5, limit_s=1.0)


async def test_live_4_a_high_watermark_that_was_lost_with_a_stream_is_told_on_the_next() -> None:
    async with broker_world() as (world, one, two):
        world.told(1, 3)
        one.append()
        await until(lambda: one.high_watermark == 1)
        two.links.new_broker_epoch(202)  # before the pause in which it would have been told
        assert two.high_watermark == 0
        await until(lambda: two.high_watermark == 1, limit_s=1.0)


# -- divergence ------------------------------------------------------------------------------------------------------


@requirement("An asynchronous write is acknowledged after the local append")
@requirement("Diverging logs are cut where their leader epochs part")
async def test_diverging_logs_are_cut_where_the_histories_part_and_fetched_again() -> None:
    async with broker_world() as (world, one, two):
        one.lay((2, 3), by=1)
        one.lay((4, 2), by=1)
        two.lay((2, 3), by=1)
        two.lay((3, 4), by=2)  # longer, and wrong
        world.told(1, 5)
        await until(lambda: two.everything() == one.everything(), "equal logs")
        assert headers(two.everything())[3].leader_epoch == 4
        assert epochs(two) == [(2, 0), (4, 3)]  # epoch 5 has begun at the leader alone: nothing is in it yet
        one.append()
        await until(lambda: two.end == 6)
        assert epochs(two) == [(2, 0), (4, 3), (5, 5)]


@requirement("Truncation repeats until leader and follower share an epoch")
async def test_a_history_that_shares_no_late_epoch_is_found_in_rounds() -> None:
    """KIP-279: the leader's answer names an epoch that this follower has never seen, so it asks again from below."""

    async with broker_world() as (world, one, two):
        one.lay((1, 2), by=1)
        two.lay((1, 2), by=1)
        two.lay((1, 1), by=1)
        one.lay((2, 2), by=1)
        two.lay((3, 3), by=2)
        one.lay((5, 1), by=1)
        world.told(1, 6)
        await until(lambda: two.everything() == one.everything(), "equal logs")
        answers = [(p.diverging_epoch, p.diverging_end_offset) for c in one.chunks for p in c.partitions]
        assert [a for a in answers if a != (-1, -1)] == [(2, 4), (1, 2)]


@requirement("A crash of the whole cluster loses at most unflushed records")
async def test_after_a_crash_of_all_a_tail_of_one_copy_is_cut() -> None:
    """The leader lost what it had not synced, and has other records there when the follower asks."""

    async with broker_world() as (world, one, two):
        one.lay((2, 3), by=1)
        two.lay((2, 3), (3, 2), by=1)
        world.told(1, 4, only=[1])
        for _ in range(3):
            one.append()
        world.told(1, 4, only=[2])
        await until(lambda: two.end == one.end == 6 and two.high_watermark == 6)
        assert two.everything() == one.everything()


async def test_a_history_with_nothing_in_common_is_cut_to_the_start() -> None:
    async with broker_world() as (world, one, two):
        one.lay((5, 3), by=1)
        two.lay((5, 1), by=1)
        two.lay((6, 4), by=2)
        world.told(1, 7)
        await until(lambda: two.everything() == one.everything(), "equal logs")


async def test_kafka_10706_an_epoch_begun_in_vain_leaves_the_history() -> None:
    async with broker_world() as (world, one, two):
        one.lay((2, 3), by=1)
        two.lay((2, 3), by=1)
        world.told(2, 4, only=[2])  # it led for a moment and appended nothing
        assert epochs(two) == [(2, 0), (4, 3)]
        world.told(1, 5)
        one.append()
        await until(lambda: two.end == 4)
        assert epochs(two) == [(2, 0), (5, 3)]
        diverging = [p for c in one.chunks for p in c.partitions if p.diverging_epoch >= 0]
        assert len(diverging) == 1


@requirement("Every replica fetch carries the current leader epoch")
async def test_a_diverging_position_commits_nothing() -> None:
    async def story(world: World, one: Node, two: Node) -> None:
        one.lay((2, 2), by=1)
        one.lay((4, 2), by=1)
        world.told(1, 5)
        follower = FakeFollower(world)
        await follower.state(9, last_epoch=3, leader_epoch=5)
        (part,) = (await follower.read()).partitions
        assert (part.diverging_epoch, part.diverging_end_offset, part.records) == (2, 2, b"")
        assert one.high_watermark == 0
        await follower.state(4, last_epoch=4, leader_epoch=5, acked=1)
        await until(lambda: one.high_watermark == 4)

    async with broker_world() as (world, one, two):
        two.process.kill()
        await story(world, one, two)


# -- streams come and go ---------------------------------------------------------------------------------------------


@requirement("A replica fetch names topic, partition, replica and offset")
@requirement("Followers copy the log of the leader over one stream in order")
async def test_a_broken_stream_is_opened_again_and_lists_everything() -> None:
    async with broker_world() as (world, one, two):
        topics = ("a", "b", "c")
        world.told(1, 3, topics=topics)
        for topic in topics:
            one.append(topic=topic)
        await until(lambda: all(two.part(t).log.log_end_offset == 1 for t in topics))
        world.network.isolate("broker-2")
        one.append(topic="b")
        await asyncio.sleep(KEEPALIVE_S + 1)
        assert two.part("b").log.log_end_offset == 1
        world.network.heal_all()
        await until(lambda: two.part("b").log.log_end_offset == 2)
        assert len(one.taps) == 2
        first = one.taps[1].requests[0]
        assert first.replica_id == 2
        assert {(p.topic, p.partition, p.offset) for p in first.partitions} == {(t, 0, 1) for t in topics}


@requirement("AlterIsr names the broker epoch of every ISR member")
async def test_a_new_broker_epoch_opens_the_streams_again() -> None:
    async with broker_world() as (world, one, two):
        world.told(1, 3)
        one.append()
        await until(lambda: one.high_watermark == 1)
        two.links.new_broker_epoch(202)
        await until(lambda: len(one.taps) == 2 and one.taps[1].requests)
        first = one.taps[1].requests[0]
        assert first.broker_epoch == 202
        assert [(p.topic, p.offset, p.last_fetched_epoch) for p in first.partitions] == [("events", 1, 3)]
        leading = one.host.replica.leading
        assert leading is not None
        await until(lambda: leading.progress[2].member == Member(2, 202))
        one.append()
        await until(lambda: two.end == 2)
        assert one.high_watermark == 1  # the ISR still names the former life, which holds who knows what


@requirement("Followers copy the log of the leader over one stream in order")
async def test_the_newest_stream_of_a_follower_is_the_one_that_counts() -> None:
    """What an older one still says is late: it took the partitions away from the new one, and with itself to the grave."""

    async with broker_world() as (world, one, two):
        two.process.kill()
        world.told(1, 3, only=[1])
        old = FakeFollower(world)
        await old.state(0)
        await until(lambda: one.taps and one.taps[0].requests)
        new = FakeFollower(world)
        await new.state(0)
        await until(lambda: len(one.taps) == 2 and one.taps[1].requests)
        with pytest.raises(TransportError):
            for _ in range(100):
                await old.state(0)
                await asyncio.sleep(0.01)
        one.append()
        while not any(p.records for p in (await new.read()).partitions):
            await new.write(1)
        leading = one.host.replica.leading
        assert leading is not None and leading.progress[2].connected


async def test_a_follower_that_speaks_on_two_streams_in_turn_is_served_in_the_end() -> None:
    async with broker_world() as (world, one, two):
        world.told(1, 3)
        await until(lambda: one.taps and one.taps[0].requests)
        intruder = FakeFollower(world)
        await intruder.state(0)  # as if an old connection's first message came last
        await until(lambda: len(one.taps) >= 3, "the follower's next stream")
        one.append()
        await until(lambda: two.end == 1)


async def test_another_follower_is_none_of_its_business() -> None:
    async with broker_world(1, 2, 3) as (world, one, two, three):
        world.told(1, 3)
        one.append()
        await until(lambda: two.end == three.end == 1)
        assert len(one.taps) == 2


async def test_a_stream_that_ends_is_not_waited_for() -> None:
    async with broker_world() as (world, one, _two):
        world.told(1, 3)
        await until(lambda: one.host.sinks)
        world.network.kill("broker-2")
        await until(lambda: not one.host.sinks)
        leading = one.host.replica.leading
        assert leading is not None and not leading.progress[2].connected
        one.append()
        assert one.end == 1


# -- epochs on the wire ----------------------------------------------------------------------------------------------


@requirement("A paused ZooKeeper causes no split brain")
@requirement("A deposed leader that wakes up commits nothing")
async def test_a_follower_that_leaves_for_a_newer_epoch_deposes_its_leader() -> None:
    async with broker_world(1, 2, 3) as (world, one, two, three):
        world.told(1, 3)
        await until(lambda: len(one.host.sinks) == 2)
        world.network.cut("broker-3", "broker-1")
        sending = asyncio.ensure_future(one.send(batch(b"parked"), timeout_ms=60_000))
        await until(lambda: two.end == 1)
        assert not sending.done()
        world.told(3, 4, only=[2])  # the leader hears nothing of it from the controller
        await until(lambda: not one.host.is_leader)
        assert (await sending).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert one.host.replica.leader_epoch == 3  # so that the decision still applies when it comes
        world.told(3, 4, only=[1, 3])
        world.network.heal_all()
        three.append()
        await until(lambda: one.everything() == two.everything() == three.everything())


async def test_leaving_for_nothing_newer_deposes_nobody() -> None:
    async with broker_world() as (world, one, two):
        two.process.kill()
        world.told(1, 3, only=[1])
        follower = FakeFollower(world)
        await follower.state(0)
        await until(lambda: one.host.sinks)
        await follower.state(0, leaving=True)
        await until(lambda: not one.host.sinks)
        assert one.host.is_leader


@requirement("A topic id separates topics that share a name")
async def test_the_epochs_of_a_deleted_topic_depose_no_leader_of_its_successor() -> None:
    async with broker_world() as (world, one, two):
        two.process.kill()
        world.told(1, 0, only=[1])
        follower = FakeFollower(world)
        await follower.state(0, leader_epoch=9, topic_id=OTHER_ID, leaving=True)
        await follower.state(0, leader_epoch=0)
        await until(lambda: one.host.sinks)
        assert one.host.is_leader


async def test_who_has_left_is_not_proposed_for_the_isr() -> None:
    async with broker_world() as (world, one, two):
        two.process.kill()
        world.told(1, 3, only=[1], isr=(1,), config=TopicConfig(min_insync_replicas=1))
        follower = FakeFollower(world)
        await follower.state(0)
        await until(lambda: one.proposals.proposals)
        ((tp, proposal),) = one.proposals.proposals
        await follower.state(0, leaving=True)
        await until(lambda: not one.host.sinks)
        in_force = m.LeaderAndIsr(leader=1, leader_epoch=3, isr=(member(1),), current_zk_version=30)
        one.manager.isr_answered(tp, TOPIC_ID, proposal, ErrorCode.INELIGIBLE_REPLICA, in_force)
        one.host.step(ev.Tick(one.clock.now() + 5.0))
        assert len(one.proposals.proposals) == 1


async def test_a_position_that_the_leader_cannot_judge_yet_is_stated_again() -> None:
    async with broker_world() as (world, one, two):
        world.told(1, 3)
        one.append()
        await until(lambda: two.end == 1)
        world.told(1, 4, only=[2])
        # It names the newer epoch when it leaves the older one; its leader steps down and waits for the decision.
        await until(lambda: not one.host.is_leader)
        await asyncio.sleep(20 * RETRY_S)
        stated = [p for r in one.taps[-1].requests for p in r.partitions if p.leader_epoch == 4 and not p.leaving]
        refused = {p.error_code for c in one.chunks for p in c.partitions} - {ErrorCode.NONE}
        assert refused == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert 15 <= len(stated) <= 25, "with a pause, and for as long as it takes"
        world.told(1, 4, only=[1])
        one.append()
        await until(lambda: two.end == 2)


async def test_unknown_leader_epoch_is_stated_again_until_the_leader_has_heard_of_it() -> None:
    async with broker_world() as (world, one, two):
        world.told(1, 3, only=[1])
        one.append()
        world.told(1, 4, only=[2])
        await asyncio.sleep(5 * RETRY_S)
        assert {p.error_code for c in one.chunks for p in c.partitions} == {ErrorCode.UNKNOWN_LEADER_EPOCH}
        assert one.host.is_leader and two.end == 0
        world.told(1, 4, only=[1])
        await until(lambda: two.end == 1)


async def test_a_leader_that_does_not_know_the_partition_yet_is_asked_again() -> None:
    async with broker_world() as (world, one, two):
        world.told(1, 3, only=[2])
        await asyncio.sleep(5 * RETRY_S)
        assert {p.error_code for c in one.chunks for p in c.partitions} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        world.told(1, 3, only=[1])
        one.append()
        await until(lambda: two.end == 1)


async def test_a_fenced_position_is_not_stated_again_but_a_newer_decision_ends_the_wait() -> None:
    async with broker_world() as (world, one, two):
        world.told(1, 4, only=[1])
        one.append()
        world.told(1, 3, only=[2])
        await asyncio.sleep(20 * RETRY_S)
        assert [p.error_code for c in one.chunks for p in c.partitions] == [ErrorCode.FENCED_LEADER_EPOCH]
        assert (two.end, one.high_watermark) == (0, 0)
        world.told(1, 4, only=[2])
        await until(lambda: two.end == 1)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"leader_epoch": 2}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 4}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic_id": OTHER_ID}, ErrorCode.INCONSISTENT_TOPIC_ID),
        ({"offset": 5, "last_epoch": -1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
    ids=str,
)
async def test_mut_4_a_refused_position_counts_for_nothing_and_the_stream_lives_on(
    fields: dict[str, object], code: ErrorCode
) -> None:
    async with broker_world() as (world, one, two):
        two.process.kill()
        one.lay((2, 5), by=1)
        world.told(1, 3, only=[1])
        follower = FakeFollower(world)
        await follower.state(**{"offset": 5, "last_epoch": 2, **fields})  # type: ignore[arg-type]
        (part,) = (await follower.read()).partitions
        assert (part.error_code, part.records) == (code, b"")
        assert one.high_watermark == 0 and not one.host.sinks
        await follower.state(5, last_epoch=2, acked=1)
        await until(lambda: one.high_watermark == 5)


async def test_kafka_13837_who_is_no_replica_is_refused() -> None:
    async with broker_world() as (world, _one, two):
        two.process.kill()
        world.told(1, 3, only=[1])
        for replica in (1, 7):
            follower = FakeFollower(world, replica=replica)
            await follower.state(0)
            (part,) = (await follower.read()).partitions
            assert part.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@requirement("AlterIsr names the broker epoch of every ISR member")
async def test_a_former_life_of_a_follower_is_refused() -> None:
    async with broker_world() as (world, one, two):
        two.process.kill()
        world.told(1, 3, only=[1])
        await FakeFollower(world, broker_epoch=202).state(0)
        await until(lambda: one.host.sinks)
        former = FakeFollower(world, broker_epoch=201)
        await former.state(0)
        with pytest.raises(
            TransportError, match="STALE_BROKER_EPOCH: broker_epoch is 201: broker 2 follows in epoch 202"
        ):
            await former.read()
        leading = one.host.replica.leading
        assert leading is not None and leading.progress[2].member == Member(2, 202)
        assert leading.progress[2].connected, "the stream of the living one goes on"


@requirement("A leader crash after the append keeps all copies or none")
@requirement("A leader killed between append and ack stores all or nothing")
@pytest.mark.parametrize("seed", range(5))
async def test_any_succession_of_leaders_ends_in_equal_logs(seed: int) -> None:
    async with broker_world(1, 2, 3, seed=seed) as (world, one, two, three):
        nodes = {1: one, 2: two, 3: three}
        for epoch, leader in enumerate((1, 2, 3, 2, 1, 3, 1), start=3):
            cut = f"broker-{epoch % 3 + 1}"
            world.told(leader, epoch)
            world.network.isolate(cut)
            for _ in range(3):
                nodes[leader].append(batch(b"of leader %d in epoch %d" % (leader, epoch)))
            await asyncio.sleep(0.02)
            world.network.heal_all()
        await until(lambda: one.everything() == two.everything() == three.everything(), "equal logs", 20.0)
        await until(lambda: {n.high_watermark for n in nodes.values()} == {one.end}, "equal high watermarks")
        assert epochs(one) == epochs(two) == epochs(three)


# -- what a change of leader took ------------------------------------------------------------------------------------


def step_count(node: Node, step: str) -> float:
    return node.registry.get_sample_value("tidelog_replica_failover_step_seconds_count", {"step": step}) or 0.0


@requirement("Every step of a failover has a histogram")
async def test_a_leader_measures_until_every_follower_of_its_isr_has_connected() -> None:
    async with broker_world(1, 2, 3) as (world, one, two, three):
        world.told(1, 3, only=(1, 2))
        await until(lambda: 2 in one.host.sinks)
        assert step_count(one, "connect") == 0, "broker 3 is in the ISR and has not said anything"
        world.told(1, 3, only=(3,))
        await until(lambda: 3 in one.host.sinks)
        assert step_count(one, "connect") == 1
        assert step_count(two, "connect") == step_count(three, "connect") == 0
        one.append()
        await until(lambda: three.end == 1)
        assert step_count(one, "connect") == 1, "acknowledgements are no connections"
        world.told(1, 4)
        await until(lambda: step_count(one, "connect") == 2, "a new epoch begins anew")


@requirement("Every step of a failover has a histogram")
async def test_a_follower_measures_what_it_cuts_off_before_it_fetches() -> None:
    async with broker_world() as (world, one, two):
        one.lay((0, 2), (1, 1), by=1)
        two.lay((0, 5), by=1)
        world.told(1, 3, isr=(1,))
        await until(lambda: two.everything() == one.everything())
        assert (step_count(two, "truncate"), step_count(one, "truncate")) == (1, 0)
        assert step_count(one, "connect") == 0, "nobody else is in the ISR: nobody is waited for"
