"""A reader and a log that is not the one it has read: cut below the position (KIP-320), or of another topic (HOLE-10)."""

from typing import Any

import pytest

from helpers.brokers import Brokers, brokers, fetch_result
from helpers.logs import contents, lead, new_log
from helpers.requirements import requirement
from tidelog.broker.fetch import diverging
from tidelog.client.consumer import Consumer
from tidelog.client.errors import LogTruncationError
from tidelog.client.fetch_state import Ask, FetchState
from tidelog.client.producer import Producer
from tidelog.client.records import Record, encode_batch
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import BrokerId, TopicPartition
from tidelog.storage.partition_log import PartitionLog
from tidelog.wire import messages as m

T0 = TopicPartition("t", 0)


def written(*counts: tuple[int, int]) -> PartitionLog:
    """A log with so many records, in batches of one, for each (leader epoch, records)."""
    log = new_log()
    for epoch, count in counts:
        for _ in range(count):
            write(log, epoch)
    return log


def write(log: PartitionLog, epoch: int) -> None:
    at = log.log_end_offset
    lead(log, encode_batch([Record(None, b"%d/%d" % (epoch, at), (), 1000 + at)]), epoch)


class Reader:
    """A FetchState that asks partitions directly."""

    def __init__(self, reset: str) -> None:
        self.state = FetchState(partition_bytes=1 << 20, reset=reset)
        self.state.assign([T0])
        self.topic_id = b"one"

    def ask(self) -> Ask:
        wanted = self.state.wanted(0.0, lambda _: BrokerId(1), lambda _: True, lambda _: self.topic_id)
        ((ask,),) = wanted.asks.values()
        return ask

    def fetch(self, log: PartitionLog, bytes_max: int = 1 << 20) -> m.FetchResult:
        ask = self.ask()
        request = m.FetchPartition(
            topic="t", partition=0, leader_epoch=-1, offset=ask.offset, last_fetched_epoch=ask.last_fetched_epoch,
            max_bytes=bytes_max,
        )  # fmt: skip
        end = log.log_end_offset
        epoch, epoch_end = diverging(log, request) or (-1, -1)
        held = contents(log, start=ask.offset) if epoch < 0 and ask.offset < end else b""
        result = fetch_result(
            request, diverging_epoch=epoch, diverging_end_offset=epoch_end, high_watermark=end, records=held
        )
        self.state.fetched(ask, result)
        return result

    def read(self, count: int) -> list[bytes | None]:
        return [r.value for r in self.state.take(count)]


def test_kip_320_epoch_of_the_last_record_goes_with_each_ask() -> None:
    reader = Reader("error")
    reader.state.seek(T0, 0)
    assert reader.ask().last_fetched_epoch == -1
    reader = Reader("error")
    reader.state.seek(T0, 0)
    reader.fetch(written((1, 2), (4, 3)))
    ask = reader.ask()
    assert (ask.offset, ask.last_fetched_epoch) == (5, 4)


@requirement("Truncation repeats until leader and follower share an epoch")
@pytest.mark.parametrize("reset", ["error", "earliest", "latest"])
def test_a_reader_goes_back_to_where_its_own_epoch_began(reset: str) -> None:
    """It read 5..9 in epoch 2. The new leader never saw epoch 2 and holds other records there, of epoch 1."""
    reader = Reader(reset)
    reader.state.seek(T0, 0)
    reader.fetch(written((1, 5), (2, 5)))
    assert len(reader.read(10)) == 10
    leader = written((1, 20), (3, 5))
    assert reader.fetch(leader).diverging_end_offset == 20
    if reset == "error":
        with pytest.raises(LogTruncationError) as caught:
            reader.read(1)
        assert caught.value.diverging_offset == 5
        reader.state.seek(T0, 5)
    assert reader.state.position(T0) == 5
    reader.fetch(leader)
    assert reader.read(100) == [b"1/%d" % i for i in range(5, 20)] + [b"3/%d" % i for i in range(20, 25)]


def test_a_second_round_finds_where_they_really_part() -> None:
    """The largest epoch below may be one that the reader never saw: it asks again with its own before (KIP-279)."""
    reader = Reader("earliest")
    reader.state.seek(T0, 0)
    reader.fetch(written((1, 5), (4, 5)))
    reader.read(10)
    leader = written((1, 3), (2, 9), (5, 2))
    reader.fetch(leader)  # (2, 12): below what both may share
    assert reader.state.position(T0) == 5
    reader.fetch(leader)  # (1, 3)
    assert reader.state.position(T0) == 3
    reader.fetch(leader)
    assert reader.read(100) == [b"2/%d" % i for i in range(3, 12)] + [b"5/12", b"5/13"]


@pytest.mark.parametrize("reset", ["error", "latest"])
def test_what_was_fetched_ahead_and_cut_is_not_handed_out(reset: str) -> None:
    reader = Reader(reset)
    reader.state.seek(T0, 0)
    reader.fetch(written((1, 10)))
    assert reader.read(4) == [b"1/%d" % i for i in range(4)]
    leader = written((1, 6), (2, 3))
    reader.fetch(leader)
    assert reader.read(1) == []  # nothing that the reader has seen is gone: no error, only another look
    reader.fetch(leader)
    assert reader.read(100) == [b"1/4", b"1/5", b"2/6", b"2/7", b"2/8"]


def test_records_of_the_log_that_was_cut_do_not_come_before_the_error() -> None:
    reader = Reader("error")
    reader.state.seek(T0, 0)
    reader.fetch(written((1, 10)))
    assert len(reader.read(7)) == 7
    reader.fetch(written((1, 3), (2, 9)))
    for _ in range(2):
        with pytest.raises(LogTruncationError) as caught:
            reader.read(10)
        assert (caught.value.offset, caught.value.diverging_offset) == (7, 3)
    assert reader.state.position(T0) == 7


@pytest.mark.parametrize(("epoch", "goes_on"), [(-1, True), (1, True), (3, False)])
def test_a_kept_offset_with_its_epoch_is_checked_after_a_restart(epoch: int, goes_on: bool) -> None:
    reader = Reader("error")
    reader.state.seek(T0, 8, epoch)
    leader = written((1, 12), (5, 2))
    reader.fetch(leader)
    if goes_on:
        assert reader.read(1) == [b"1/8"]
    else:
        with pytest.raises(LogTruncationError) as caught:
            reader.read(1)
        # The record at 7 was one of epoch 3; here there is none.
        assert caught.value.diverging_offset == 7


def test_a_position_behind_an_epoch_without_records_is_no_truncation() -> None:
    """`latest` was answered by a leader of epoch 5 that had written nothing; it left no trace in the next one's history."""
    reader = Reader("error")
    reader.state.found(T0, 10, 5)
    leader = written((3, 10), (6, 2))
    reader.fetch(leader)
    assert reader.read(1) == []
    reader.fetch(leader)
    assert reader.read(9) == [b"6/10", b"6/11"]


@pytest.mark.parametrize("reset", ["error", "latest"])
def test_an_unclean_election_before_the_first_record_is_found_too(reset: str) -> None:
    """Nothing was read yet, but a leader has said that the log ends at 10 in epoch 5."""
    reader = Reader(reset)
    reader.state.found(T0, 10, 5)
    reader.fetch(written((5, 6), (7, 9)))
    if reset == "error":
        with pytest.raises(LogTruncationError) as caught:
            reader.read(1)
        assert caught.value.diverging_offset == 6
    else:
        assert reader.state.position(T0) == 6


def test_a_very_long_history_keeps_its_last_epochs() -> None:
    reader = Reader("earliest")
    reader.state.seek(T0, 0)
    reader.fetch(written(*((e, 1) for e in range(300))))
    reader.read(300)
    reader.fetch(written(*((e, 1) for e in range(290)), (301, 1)))
    assert reader.state.position(T0) == 290


# --- leaders that others have followed ---------------------------------------------------------------------------------


async def test_x5_a_leader_of_an_older_epoch_than_the_position_is_not_asked() -> None:
    """Found by the simulator: it called the position out of range, and a member began its partition from the start."""

    cluster = await brokers()
    await cluster.create("t")
    await fill(cluster, 5, b"old")
    async with consumer(cluster) as c:
        await c.assign([T0])
        c.seek(T0, 5, last_epoch=3)
        assert await c.poll(timeout_s=3.0) == [] and cluster.of("Fetch") == []
        for leader in (2, 3, 1):
            await cluster.elect("t", 0, leader)
        await fill(cluster, 1, b"new")
        assert [r.value for _ in range(9) for r in await c.poll(timeout_s=1.0)] == [b"new"]


# --- topics that were deleted and created again ----------------------------------------------------------------------


def consumer(cluster: Brokers, **options: Any) -> Consumer:
    return Consumer(cluster.bootstrap, ports=cluster.ports, max_wait_ms=100, **options)


async def fill(cluster: Brokers, count: int, word: bytes) -> None:
    await cluster.append("t", 0, *[encode_batch([Record(None, word, (), 1000)])] * count)


@requirement("A topic id separates topics that share a name")
@pytest.mark.parametrize("reset", ["earliest", "latest", "error"])
@pytest.mark.parametrize(("epoch", "count"), [(0, 8), (5, 8), (0, 3)])
async def test_a_position_in_a_topic_that_is_gone_means_nothing_in_the_next_one(
    reset: str, epoch: int, count: int
) -> None:
    """Whether the new topic has more records than were read of the old one, so that only its id differs, or fewer; and its
    leader epochs count from zero again."""

    cluster = await brokers()
    await cluster.create("t")
    for leader in (2, 3, 1, 2, 1)[:epoch]:
        await cluster.elect("t", 0, leader)
    await fill(cluster, 5, b"old")
    async with consumer(cluster, auto_offset_reset=reset) as c:
        await c.assign([T0])
        c.seek(T0, 0)
        got = [r.value for _ in range(5) for r in await c.poll(timeout_s=0.1)]
        assert got == [b"old"] * 5
        await cluster.delete("t")
        await cluster.create("t")
        await fill(cluster, count, b"new")
        if reset == "error":
            for _ in range(2):
                with pytest.raises(TidelogError, match="deleted and created again") as caught:
                    await c.poll(timeout_s=5)
                assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_ID
            await c.seek_to_beginning(T0)
        if reset == "latest":
            await cluster.clock.sleep(3)
            await fill(cluster, 1, b"newest")
        got = [r.value for _ in range(20) for r in await c.poll(timeout_s=0.1)]
        assert got == ([b"newest"] if reset == "latest" else [b"new"] * count)


@requirement("A topic id separates topics that share a name")
@pytest.mark.parametrize("reset", ["earliest", "latest", "error"])
async def test_a_position_is_not_thrown_away_because_its_reader_knew_an_older_topic_of_the_name(
    reset: str,
) -> None:
    """Nothing has made it ask for metadata since: its first fetch names the topic that is gone."""

    cluster = await brokers()
    await cluster.create("t")
    async with consumer(cluster, auto_offset_reset=reset) as c:
        await c.assign([T0])
        await c.assign([])
        await cluster.delete("t")
        await cluster.create("t")
        await fill(cluster, 9, b"new")
        await c.assign([T0])
        c.seek(T0, 7)
        assert [r.offset for _ in range(20) for r in await c.poll(timeout_s=0.1)] == [7, 8]


@requirement("A topic id separates topics that share a name")
@pytest.mark.parametrize("reset", ["earliest", "latest", "error"])
def test_metadata_of_a_broker_that_still_knows_the_topic_before_resets_no_reader(reset: str) -> None:
    reader = Reader(reset)
    reader.state.seek(T0, 0)
    log = written((0, 5))
    reader.fetch(log)
    assert len(reader.read(10)) == 5
    now, reader.topic_id = reader.topic_id, b"before"
    refused = reader.ask()
    assert refused.topic_id == b"before"
    reader.state.later(refused, lambda _: 0.0, 0.0)
    reader.topic_id = now
    write(log, 0)
    reader.fetch(log)
    assert reader.read(10) == [b"0/5"]


@requirement("A topic id separates topics that share a name")
async def test_a_producer_refreshes_and_writes_to_the_topic_that_has_the_name_now() -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with Producer(cluster.bootstrap, ports=cluster.ports, linger_ms=0) as producer:
        await (await producer.send("t", b"old"))
        await cluster.delete("t")
        await cluster.create("t")
        sent = await (await producer.send("t", b"new"))
        assert (sent.partition, sent.offset) == (0, 0)
        assert cluster.values("t") == [b"new"]


@requirement("A topic id separates topics that share a name")
async def test_offsets_of_a_topic_that_is_gone_are_asked_for_again() -> None:
    cluster = await brokers()
    await cluster.create("t")
    await fill(cluster, 5, b"old")
    async with consumer(cluster) as c:
        assert await c.end_offsets([T0]) == {T0: 5}
        await cluster.delete("t")
        await cluster.create("t")
        await fill(cluster, 2, b"new")
        assert await c.end_offsets([T0]) == {T0: 2}
