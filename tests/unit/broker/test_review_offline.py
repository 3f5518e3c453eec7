"""A disk that fails under a partition: the controller hears of it at once, from the broker itself (row 31, L37)."""

import asyncio

import pytest

from helpers.batches import batch
from helpers.broker import TOPIC_ID, BrokerBench
from helpers.requirements import requirement
from tidelog.broker.control_service import ControlService
from tidelog.broker.metadata_cache import MetadataCache
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ports.net import KnownCaller
from tidelog.topic_config import TopicConfig
from tidelog.wire import messages as m
from tidelog.wire.batch import validate_produce

CONTEXT = KnownCaller("test")
FAILED = m.PartitionResult(topic="events", partition=0, error_code=ErrorCode.KAFKA_STORAGE_ERROR, topic_id=TOPIC_ID)


class HeldStream:
    """A controller that pings once and listens until it is gone."""

    def __init__(self, write_fails: bool = False) -> None:
        self.pongs: list[m.LivenessPong] = []
        self.gone = asyncio.Event()
        self._pings = 1
        self._write_fails = write_fails

    async def read(self) -> m.LivenessPing:
        if self._pings:
            self._pings -= 1
            return m.LivenessPing(controller_id=9, controller_epoch=5)
        await self.gone.wait()
        raise TransportError("UNAVAILABLE", "connection reset")

    async def write(self, message: m.LivenessPong) -> None:
        if self._write_fails and self.pongs:
            raise TransportError("CANCELLED", "the stream has ended")
        self.pongs.append(message)

    def cancel(self) -> None: ...


async def epoch_in_store() -> int:
    return 5


def built() -> tuple[BrokerBench, ControlService]:
    bench = BrokerBench()
    control = ControlService(
        1,
        lambda: 101,
        bench.manager,
        MetadataCache(),
        lambda _: TopicConfig(),
        bench.manager.set_strays_aside,
        lambda _: None,
        lambda _: None,
        epoch_in_store,
    )
    bench.manager.on_failed = control.disk_failed
    bench.told(config=TopicConfig(min_insync_replicas=1))
    return bench, control


def break_the_disk(bench: BrokerBench) -> None:
    bench.disk.fail("append", 5, path="events-0")
    with pytest.raises(TidelogError):
        bench.host.append(validate_produce(batch(b"x"), batch_bytes_max=1 << 20), -1, acks=1)


@requirement("A disk error takes one partition of one broker offline")
@pytest.mark.parametrize("write_fails", [False, True])
async def test_a_leader_whose_disk_fails_says_so_unasked_and_on_every_later_stream(write_fails: bool) -> None:
    bench, control = built()
    stream = HeldStream(write_fails)
    async with asyncio.TaskGroup() as group:
        group.create_task(control.liveness(stream, CONTEXT))
        await asyncio.sleep(1.0)
        assert [pong.failed for pong in stream.pongs] == [()]
        break_the_disk(bench)
        await asyncio.sleep(1.0)
        assert [pong.failed for pong in stream.pongs[1:]] == [(FAILED,)][write_fails:]
        stream.gone.set()
    control.disk_failed()  # nobody listens
    later = HeldStream()
    later.gone.set()
    await control.liveness(later, CONTEXT)
    assert [pong.failed for pong in later.pongs] == [(FAILED,)]
