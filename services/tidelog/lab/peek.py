"""A look at the log of a partition from outside, of which the cluster notices nothing."""

from typing import Final

from tidelog.client.records import ConsumerRecord, decode_batch
from tidelog.ids import TopicPartition
from tidelog.testing.sim_node import World
from tidelog.wire.batch import iter_batches

READ_BYTES: Final = 1 << 24


def peek(world: World, tp: TopicPartition, leader: int, offset: int = 0) -> list[ConsumerRecord] | None:
    """Returns all records that a leader has from `offset` on, committed or not. None: none runs, or its log does not work."""
    log = world.log_of(leader, tp) if leader >= 0 else None
    if log is None:
        return None
    disk = world.nodes[f"broker-{leader}"].disk
    disk.observed = True
    try:
        found: list[ConsumerRecord] = []
        at = max(offset, log.log_start_offset)
        while at < log.log_end_offset:
            data = log.read(at, READ_BYTES, log.log_end_offset)
            for place, header in iter_batches(data):
                found += decode_batch(tp, memoryview(data)[place : place + header.size_bytes], header, at)
                at = header.end_offset
        return found
    finally:
        disk.observed = False
