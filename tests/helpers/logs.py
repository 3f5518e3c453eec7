"""A broker's log store on a simulated disk, and what its logs hold."""

import random

from tidelog.ids import TopicPartition
from tidelog.ports.disk import Disk
from tidelog.storage.epoch_cache import EpochCache, EpochStart
from tidelog.storage.log_context import LogConfig
from tidelog.storage.log_store import LogStore
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.producer_state import ProducerFacts, ProducerLimits, ProducerTable
from tidelog.testing.disk import Loss, SimDisk
from tidelog.wire.batch import Batches, iter_batches

from .batches import headers, placed

ROOT = "/data/broker-1"
TP = TopicPartition("events", 0)
TOPIC_ID = bytes(range(16))
SMALL = LogConfig(segment_bytes=300, index_interval_bytes=100)
"""Two or three small batches a segment, an index entry for every other batch."""


def open_store(disk: Disk, config: LogConfig = SMALL, *, broker_id: int = 1, cluster_id: str = "c1") -> LogStore:
    """Opened and loaded."""
    store = LogStore.open(disk, ROOT, cluster_id=cluster_id, broker_id=broker_id, rand=random.Random(1), config=config)
    store.load()
    return store


def new_log(config: LogConfig = SMALL, disk: SimDisk | None = None) -> PartitionLog:
    return open_store(disk or SimDisk(), config).create(TP, TOPIC_ID)


def lead(log: PartitionLog, records: bytes, epoch: int) -> None:
    log.append_as_leader(Batches(records, headers(records)), epoch)


def follow(log: PartitionLog, records: bytes, epoch: int) -> None:
    """One batch from a leader of `epoch`, at the log's end."""
    log.append_as_follower(placed(records, log.log_end_offset, epoch))


def contents(log: PartitionLog, bytes_max: int = 1 << 20, *, start: int | None = None) -> bytes:
    """Every byte, read from the log's start or from `start`; from disk where the tail is not held."""
    parts = []
    offset = log.log_start_offset if start is None else start
    while offset < log.log_end_offset:
        part = log.read(offset, bytes_max, log.log_end_offset)
        assert part, (offset, log)
        parts.append(part)
        offset = list(iter_batches(part))[-1][1].end_offset
    return b"".join(parts)


def unseen(disk: SimDisk, seen: set[object], *, loss: Loss | None = None, expected: object = None) -> bool:
    """True for the first disk that holds such files after `loss`, of which this is `expected`; they are `seen` from then on.

    A start knows nothing but the files and the boot: to open a second disk that has the same would show nothing new.
    """
    found = disk.boot_id(), loss is None, frozenset(disk.image(loss).items()), expected
    if found in seen:
        return False
    seen.add(found)
    return True


def rebuilt_epochs(records: bytes) -> list[EpochStart]:
    """The epoch history that the batches themselves tell."""
    cache = EpochCache()
    for _, header in iter_batches(records):
        if header.leader_epoch > cache.latest_epoch:
            cache.assign(header.leader_epoch, header.base_offset)
    return list(cache.entries)


def rebuilt_producers(records: bytes) -> list[ProducerFacts]:
    """The producers that the batches themselves tell, read from the first to the last."""
    table = ProducerTable(ProducerLimits())
    for _, header in iter_batches(records):
        table.note((header,), header.base_offset)
    return table.facts()
