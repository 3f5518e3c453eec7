"""Which brokers hold the replicas of a new partition (HL2), and what an administrator may ask for."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Final

from tidelog.controller.racks import Racks, alternated, check_racks
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import BrokerId
from tidelog.wire import messages as m

Assignment = tuple[tuple[BrokerId, ...], ...]
"""Replicas of each partition, index by index; the first is the preferred leader."""

PARTITIONS_MAX: Final = 10_000
"""Of one topic: its assignment is one znode, far below the 512 KiB of a multi."""


def spread(
    brokers: Mapping[BrokerId, str], partitions: int, factor: int, start: int = 0, shift: int = 0, first: int = 0
) -> Assignment:
    """Round robin over the brokers, the other replicas so that a dead broker's load goes to all others.

    `brokers` are ids and racks. Partition i goes to broker (start + i) mod n. Its j-th further replica lies
    1 + (k + j) mod (n - 1) brokers on, where k grows with each full round: HL2.07's formula can put two replicas on one
    broker, the wrapped shift of F09.1 cannot. With racks the ring alternates between them, k grows by their number, and
    brokers of a rack that has a replica are passed over until every rack has one (F09.2).
    `first` is the index of the first partition that is wanted: the rows are those that it would have had from the start.
    """
    assert 0 < factor <= len(brokers) and partitions > 0, (brokers, partitions, factor)
    return tuple(islice(_rows(brokers, factor, start, shift, first), partitions))


def _rows(
    brokers: Mapping[BrokerId, str], factor: int, start: int, shift: int, first: int
) -> Iterator[tuple[BrokerId, ...]]:
    ring, racks = alternated(brokers), Racks(brokers)
    n, turn_by = len(ring), len(set(brokers.values()))
    for index in count(first):
        head = (start + index) % n
        turn = (shift + index // n) * turn_by
        row = [ring[head]]
        others = (ring[(head + 1 + (turn + k) % (n - 1)) % n] for k in count())
        while len(row) < factor:
            each = next(others)
            if racks.comes_next(row, each):
                row.append(each)
        yield tuple(row)


def plan(
    topic: m.NewTopic, live: Mapping[BrokerId, str], *, default_partitions: int, default_factor: int, start: int
) -> Assignment:
    """The assignment that `topic` asks for. TidelogError names the field and the limit that it breaks.

    `live` are the brokers with their racks. Where only some have one, replicas are placed by hand or not at all, as in Kafka.
    """
    if topic.assignments:
        return _explicit(topic, live)
    partitions = default_partitions if topic.num_partitions == -1 else topic.num_partitions
    factor = default_factor if topic.replication_factor == -1 else topic.replication_factor
    if not 0 < partitions <= PARTITIONS_MAX:
        raise TidelogError(
            f"number of partitions {partitions} is not from 1 to {PARTITIONS_MAX} (-1: the cluster's default)",
            ErrorCode.INVALID_PARTITIONS,
        )
    if not 0 < factor <= len(live):
        raise TidelogError(
            f"replication factor {factor} is not from 1 to {len(live)}, the number of live brokers",
            ErrorCode.INVALID_REPLICATION_FACTOR,
        )
    check_racks(live)
    rounds = max(len(live) - 1, 1)
    return spread(live, partitions, factor, start=start % len(live), shift=start // len(live) % rounds)


def grow(wanted: m.NewPartitions, present: Sequence[tuple[BrokerId, ...]], live: Mapping[BrokerId, str]) -> Assignment:
    """Replicas of the partitions that `wanted` adds to `present`. TidelogError names the field and the limit it breaks."""
    old, total, factor = len(present), wanted.total_count, len(present[0])
    if not old < total <= PARTITIONS_MAX:
        raise TidelogError(_bad_total(wanted.name, old, total), ErrorCode.INVALID_PARTITIONS)
    if wanted.assignments:
        by_index = {each.partition: each.replicas for each in wanted.assignments}
        if len(by_index) != len(wanted.assignments) or sorted(by_index) != list(range(old, total)):
            raise _bad_assignment(f"partitions {old} to {total - 1} are not each named once")
        rows = {index: tuple(map(BrokerId, by_index[index])) for index in range(old, total)}
        for index, row in rows.items():
            _check_row(index, row, factor, live)
        return tuple(rows.values())
    if factor > len(live):
        raise TidelogError(
            f"the topic's replication factor is {factor}, and {len(live)} brokers are alive",
            ErrorCode.INVALID_REPLICATION_FACTOR,
        )
    check_racks(live)
    return spread(live, total - old, factor, *_origin(present, live), first=old)


def _bad_total(topic: str, old: int, total: int) -> str:
    if total > old:
        return f"number of partitions {total} is over the limit of {PARTITIONS_MAX}"
    if total == old:
        return f"topic {topic!r} has {old} partitions already"
    return f"topic {topic!r} has {old} partitions, which is more than the requested {total}"


def _origin(present: Sequence[tuple[BrokerId, ...]], brokers: Mapping[BrokerId, str]) -> tuple[int, int]:
    """`start` and `shift` that gave these rows. On another set of brokers than then: the nearest one on."""
    ring, row = alternated(brokers), present[0]
    n = len(ring)
    start = ring.index(min((each for each in ring if each >= row[0]), default=ring[0]))
    for shift in range(n - 1):
        made = _rows(brokers, len(row), start, shift, first=0)
        if all(a == b for a, b in zip(present, made, strict=False)):
            return start, shift
    if len(row) < 2 or row[1] not in ring or row[1] == ring[start]:
        return start, 0
    return start, (ring.index(row[1]) - start - 1) % n


def _explicit(topic: m.NewTopic, live: Collection[BrokerId]) -> Assignment:
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        raise TidelogError(
            "num_partitions and replication_factor must be -1 where assignments are given", ErrorCode.INVALID_REQUEST
        )
    if len(topic.assignments) > PARTITIONS_MAX:
        raise TidelogError(
            f"assignments name {len(topic.assignments)} partitions, the limit is {PARTITIONS_MAX}",
            ErrorCode.INVALID_PARTITIONS,
        )
    by_index = {each.partition: each.replicas for each in topic.assignments}
    if sorted(by_index) != list(range(len(topic.assignments))):
        raise _bad_assignment("partitions are not each named once from 0 on")
    rows = [tuple(BrokerId(replica) for replica in by_index[index]) for index in range(len(by_index))]
    for index, row in enumerate(rows):
        _check_row(index, row, len(rows[0]), live)
    return tuple(rows)


def _check_row(index: int, row: Sequence[BrokerId], factor: int, live: Collection[BrokerId]) -> None:
    if not row:
        raise _bad_assignment(f"partition {index} has no replica")
    if len(set(row)) != len(row):
        raise _bad_assignment(f"partition {index} names a broker twice: {list(row)}")
    if len(row) != factor:
        raise _bad_assignment(f"partition {index} has {len(row)} replicas and partition 0 has {factor}")
    unknown = [replica for replica in row if replica not in live]
    if unknown:
        raise _bad_assignment(f"partition {index} names brokers {unknown}, which are not alive or are drained")


def _bad_assignment(problem: str) -> TidelogError:
    return TidelogError(f"assignments: {problem}", ErrorCode.INVALID_REPLICA_ASSIGNMENT)
