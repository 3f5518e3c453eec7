"""Reads what a load left in a topic and compares it with the ledger."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add

from tidelog.chaos.ledger import SEQUENCE, Findings, Ledger, PartitionCheck, digest
from tidelog.client.consumer import Consumer
from tidelog.client.records import ConsumerRecord, Header
from tidelog.ids import TopicPartition

POLL_RECORDS = 5_000
POLL_S = 30.0
"""A partition that yields nothing for so long, below its high watermark, cannot be read."""


class CannotRead(Exception):
    """The final read did not reach the end, so there is no verdict."""


async def read_back(consumer: Consumer, ledger: Ledger, starts: Mapping[TopicPartition, int], header: str) -> Findings:
    """From `starts` to the high watermarks of now. Records that do not carry `header` are somebody else's."""
    entries = ledger.entries
    checks = {tp: PartitionCheck(entries, tp.partition) for tp in starts}
    ends = await consumer.end_offsets(starts)
    left = {tp for tp, start in starts.items() if start < ends[tp]}
    await consumer.assign(left)
    for tp in left:
        consumer.seek(tp, starts[tp])
    while left:
        records = await consumer.poll(POLL_RECORDS, POLL_S)
        if not records:
            raise CannotRead(f"nothing came in {POLL_S:g} s from {', '.join(map(str, sorted(left)))}")
        by_partition: dict[TopicPartition, list[ConsumerRecord]] = {}
        for record in records:
            by_partition.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        for tp, read in by_partition.items():
            ours = [(r, n) for r in read if (n := _number(r.headers, header)) is not None]
            checks[tp].feed(
                [r.offset for r, _ in ours], [n for _, n in ours], [digest(r.key, r.value) for r, _ in ours]
            )
            if read[-1].offset + 1 >= ends[tp]:
                left.discard(tp)
    return reduce(add, (check.finish() for check in checks.values()), Findings())


def _number(headers: Sequence[Header], header: str) -> int | None:
    for key, value in headers:
        if key == header and value is not None and len(value) == SEQUENCE.size:
            return int(SEQUENCE.unpack(value)[0])
    return None
