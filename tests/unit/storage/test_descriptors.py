"""A process without a free file descriptor: what needs one is refused for now, and no disk counts as failed."""

import errno
from collections.abc import Callable
from typing import Any

import pytest

from helpers.batches import batch, offsets
from helpers.broker import BrokerBench
from helpers.logs import contents
from tidelog.errors import ErrorCode, LeaderNotAvailableError, TidelogError
from tidelog.storage.partition_log import PartitionLog
from tidelog.wire.batch import Batches, validate_produce

ONE = batch(b"one")


def closed_files(bench: BrokerBench) -> PartitionLog:
    """A log of one record that is on the disk alone, without an open file."""
    bench.told()
    log = bench.host.log
    log.append_as_leader(validated(), 3)
    log._tail.clear()
    log._context.files.close()
    return log


def validated() -> Batches:
    return validate_produce(ONE, batch_bytes_max=1 << 20)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE], ids=["process", "machine"])
@pytest.mark.parametrize(
    "use",
    [lambda bench: bench.host.append(validated(), 3, acks=1), lambda bench: bench.host.read(0, 100, 1, min_one=True)],
    ids=["append", "read"],
)
def test_what_finds_no_descriptor_is_refused_for_now(use: Callable[[BrokerBench], Any], error: int) -> None:
    bench = BrokerBench()
    log = closed_files(bench)
    bench.disk.fail("open", error, times=1)
    with pytest.raises(LeaderNotAvailableError):
        use(bench)
    assert bench.host.offline is None and log.failure is None
    use(bench)
    bench.host.append(validated(), 3, acks=1)
    assert offsets(contents(log)) == list(range(log.log_end_offset))


def test_another_error_of_an_open_still_takes_the_log_offline() -> None:
    bench = BrokerBench()
    closed_files(bench)
    bench.disk.fail("open", errno.EIO, times=1)
    assert bench.host.offline is None
    with pytest.raises(TidelogError, match="append failed") as caught:
        bench.host.append(validated(), 3, acks=1)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR and bench.host.offline is not None
