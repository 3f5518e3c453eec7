"""Compaction of a log on a simulated disk, as a broker does it but for the other process; and what should be left."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from tidelog.client.records import decode_batch
from tidelog.ids import TopicPartition
from tidelog.ports.disk import Disk
from tidelog.storage.compaction import Cleaned, Compaction, CompactionRules, Finished, Step
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.segment_swap import SegmentSwap, closed_below
from tidelog.wire.batch import iter_batches

from .logs import contents

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000
RULES = CompactionRules(
    now_ms=NOW_MS,
    delete_retention_ms=HOUR_MS,
    drops_tombstones=True,
    keys_max=1_000,
    inflated_bytes_max=1 << 20,
    segment_bytes=1 << 20,
    index_interval_bytes=100,
)


class Kept(NamedTuple):
    """A record as a reader sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


def keyed(
    *records: tuple[bytes | None, bytes | None], codec: int = 0, timestamp: int = NOW_MS, step_ms: int = 1
) -> bytes:
    """One batch of (key, value) as a producer sends it."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 30)
    for offset, (key, value) in enumerate(records):
        assert builder.append(offset, timestamp + offset * step_ms, key, value, []) is not None
    return bytes(builder.build())


def compact(
    log: PartitionLog,
    disk: Disk,
    *,
    first_dirty: int = 0,
    now_ms: int = NOW_MS,
    rules: CompactionRules = RULES,
    producers: Iterable[int] | None = None,
    meanwhile: Callable[[], None] = lambda: None,
    after: Callable[[], None] = lambda: None,
) -> list[Step]:
    """One whole pass over all that may be compacted; what was done. `meanwhile`: before, `after`: after each swap."""
    steps: list[Step] = []
    job = whole_pass(log, first_dirty=first_dirty, rules=replace(rules, now_ms=now_ms), producers=producers)
    cuts = log.cuts
    if job is not None:
        with closing(job.run(disk)) as found:
            for step in found:
                steps.append(step)
                if isinstance(step, Cleaned):
                    meanwhile()
                    swap_in(log, disk, step, cuts)
                    after()
    return steps


def whole_pass(
    log: PartitionLog,
    *,
    first_dirty: int = 0,
    rules: CompactionRules = RULES,
    producers: Iterable[int] | None = None,
) -> Compaction | None:
    """None when nothing may be compacted. `producers`: who is not forgotten, everybody if it is None."""
    sources = closed_below(log, log.log_end_offset)
    known = frozenset(f.producer_id for f in log.producers.facts() if producers is None or f.producer_id in producers)
    return Compaction(log.folder, sources, first_dirty, known, rules) if sources else None


def begun_swap(log: PartitionLog, disk: Disk) -> SegmentSwap:
    """The first of a pass, which stops there."""
    job = whole_pass(log)
    assert job is not None
    with closing(job.run(disk)) as found:
        swap = SegmentSwap.begun(disk, log, next(step for step in found if isinstance(step, Cleaned)), log.cuts)
    assert swap is not None
    return swap


def swap_in(log: PartitionLog, disk: Disk, cleaned: Cleaned, cuts: int) -> bool:
    swap = SegmentSwap.begun(disk, log, cleaned, cuts)
    if swap is None:
        return False
    swap.sync()
    assert swap.install()
    swap.sync()
    assert swap.end()
    swap.purge()
    return True


def finished(steps: Sequence[Step]) -> Finished:
    (last,) = (step for step in steps if isinstance(step, Finished))
    return last


def read_all(log: PartitionLog, start: int | None = None) -> list[Kept]:
    return list(_records(contents(log) if start is None else contents(log, start=start)))


def _records(data: bytes) -> Iterator[Kept]:
    tp = TopicPartition("events", 0)
    view = memoryview(data)
    for at, header in iter_batches(data):
        for record in decode_batch(tp, view[at : at + header.size_bytes], header):
            yield Kept(record.offset, record.key, record.value, record.timestamp_ms)
