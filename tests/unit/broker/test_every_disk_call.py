"""A broker at work whose disk fails at one call, whichever: one partition pays, no task ends, and nothing is lost in silence."""

import asyncio
import errno
from collections.abc import Iterator

import pytest

from helpers.batches import batch
from helpers.broker import BrokerBench
from tidelog.broker.retention import Retention
from tidelog.client.records import decode_batch, split_batches
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.storage.log_context import LogConfig
from tidelog.testing.clock import SimClock
from tidelog.testing.disk import SimDisk
from tidelog.testing.loop import SimProcess
from tidelog.topic_config import TopicConfig

TOPICS = ("events", "other")
CONFIG = TopicConfig(min_insync_replicas=1, segment_bytes=300, retention_bytes=900)
REFUSED = {
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # it has come back, and waits for an order
}
ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EMFILE": errno.EMFILE}


class Failing(SimDisk):
    """Fails at one call, counted from when it is armed."""

    def __init__(self) -> None:
        super().__init__()
        self.armed = False
        self.calls = 0
        self.fails_at = -1
        self.error = 0
        self.struck = ""

    def step(self, op: str, path: str, *, changes: bool = True) -> None:
        if self.armed:
            self.calls += 1
            if self.calls - 1 == self.fails_at:
                self.struck = f"{op} {path}"
                raise OSError(self.error, "injected", path)
        super().step(op, path, changes=changes)


class Work:
    """The work of a broker with two topics that it alone has, and the records that it has acknowledged."""

    def __init__(self, fails_at: int, error: int) -> None:
        self.disk = Failing()
        self.disk.fails_at, self.disk.error = fails_at, error
        self.bench = BrokerBench(disk=self.disk, clock=SimClock(), config=LogConfig(segment_bytes=300))
        self.acked: dict[str, dict[int, bytes]] = {topic: {} for topic in TOPICS}
        self.refused: set[str] = set()
        self.epoch = 3
        self.process = SimProcess("broker")

    async def do(self) -> None:
        bench = self.bench
        for topic in TOPICS:
            assert bench.told(topic=topic, config=CONFIG) is ErrorCode.NONE
        retention = Retention(bench.clock, self.disk, bench.manager, 1.0)
        for name, task in (
            ("checkpoints", bench.manager.run_checkpoints()),
            ("revivals", bench.reviver.run(1_000)),
            ("flushes", bench.flusher.run(bench.manager, 0.5)),
            ("retention", retention.run()),
        ):
            self.process.start(name, task)
        self.disk.armed = True
        for number in range(15):
            for topic in TOPICS:
                await self._use(topic, b"%d" % number)
            await asyncio.sleep(0.4)
        self.disk.armed = False
        await asyncio.sleep(15.0)
        self._tell_again()
        for topic in TOPICS:
            await self._use(topic, b"after")

    async def _use(self, topic: str, value: bytes) -> None:
        sent = await self.bench.send(batch(value), topic=topic)
        if sent.error_code is ErrorCode.NONE:
            self.acked[topic][sent.base_offset] = value
        else:
            assert sent.error_code in REFUSED, sent
            self.refused.add(topic)
            self._tell_again()
        host = self.bench.manager.find_named(topic, 0)
        if host is not None:
            host.log._tail.clear()  # so that it is read from the disk
            got = await self.bench.get(host.log.log_start_offset, topic=topic)
            assert got.error_code in {ErrorCode.NONE, *REFUSED}, got

    def _tell_again(self) -> None:
        """Orders as of a controller that hears of a failed copy, or of one that has come back."""
        self.epoch += 1
        for topic in TOPICS:
            self.bench.told(topic=topic, config=CONFIG, leader_epoch=self.epoch)

    def left(self, topic: str) -> Iterator[tuple[int, bytes | None]]:
        tp, log = TopicPartition(topic, 0), self.bench.manager.host(topic, 0).log
        at = log.log_start_offset
        while at < log.log_end_offset:
            records = log.read(at, 1 << 20, log.log_end_offset)
            for header, data in split_batches(tp, records, at):
                yield from ((record.offset, record.value) for record in decode_batch(tp, data, header))
                at = header.end_offset

    def judge(self) -> None:
        assert not self.process.supervisor.failures, "a task of the broker has ended"
        offline = {each.topic for each in self.bench.manager.failed()}
        assert len(self.refused | offline) <= 1, "more than one partition has paid"
        for topic in set(TOPICS) - offline:
            held = dict(self.left(topic))
            start = self.bench.manager.host(topic, 0).log.log_start_offset
            lost = {offset for offset in self.acked[topic] if offset >= start} - held.keys()
            assert not lost, f"acknowledged records of {topic} are gone"
            assert all(held[offset] == value for offset, value in self.acked[topic].items() if offset >= start)


async def worked(fails_at: int, error: int) -> Work:
    work = Work(fails_at, error)
    try:
        await work.do()
        work.judge()
    except BaseException as problem:
        problem.add_note(f"call {fails_at}: {work.disk.struck}")
        raise
    finally:
        await work.process.supervisor.stop()
    return work


@pytest.mark.exhaustive
@pytest.mark.parametrize("error", ERRORS)
async def test_any_call_may_fail(error: str) -> None:
    calls = (await worked(-1, 0)).disk.calls
    assert calls > 100
    for at in range(calls):
        assert (await worked(at, ERRORS[error])).disk.struck
