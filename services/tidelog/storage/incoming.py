"""What a follower is sent: whether it goes on from its log's end."""

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.ids import NO_EPOCH
from tidelog.storage.checkpoint import LogKey
from tidelog.wire.batch import BatchHeader, corrupt, iter_batches


class Incoming(NamedTuple):
    headers: Sequence[BatchHeader]
    news: Sequence[BatchHeader]
    """The first batch of each leader epoch that the log has not seen."""

    @property
    def base_offset(self) -> int:
        return self.headers[0].base_offset

    @property
    def end_offset(self) -> int:
        return self.headers[-1].end_offset


def check_incoming(records: bytes, key: LogKey, *, end: int, epoch: int, empty: bool) -> Incoming:
    """`records` for a log that ends at `end`, `epoch` being the newest of its history.

    CORRUPT_MESSAGE when a CRC is wrong, the offsets do not go on from `end`, or an epoch is older than one before it. An
    `empty` log may be sent the whole batch that holds `end`: records can be deleted up to the middle of a batch, and a
    leader keeps and sends batches whole (as Kafka's Partition.doAppendRecordsToFollowerOrFutureReplica).
    """
    headers: list[BatchHeader] = []
    news: list[BatchHeader] = []
    for at, header in iter_batches(records):
        if empty and not headers and header.base_offset < end < header.end_offset:
            end, epoch = header.base_offset, NO_EPOCH
        if header.base_offset != end:
            raise corrupt(f"base_offset: {header.base_offset} at position {at}, the log of {key} goes on at {end}")
        if header.leader_epoch != epoch or epoch < 0:
            if header.leader_epoch < max(epoch, 0):
                raise corrupt(f"partition_leader_epoch: {header.leader_epoch} at offset {end}, after {epoch}")
            epoch = header.leader_epoch
            news.append(header)
        end = header.end_offset
        headers.append(header)
    if not headers:
        raise corrupt("records: empty, at least one batch is needed")
    return Incoming(headers, news)
